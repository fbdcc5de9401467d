// Package functions serves functions that compute columns of Leman from a program in Go: remote functions.
//
//	server := functions.New()
//	functions.AddScalar(server, "length", "text", func(_ context.Context, text string) (int64, error) {
//		return int64(len(text)), nil
//	})
//	log.Fatal(server.Serve(ctx, "127.0.0.1:7815"))
//
// The server speaks Arrow Flight: leman.function.v1 in docs/remote_functions.md. Once it runs, the function is registered
// by its address, and its columns are those of any other function: checkpoints, error policy, time limits. Its version is
// the binary's, unless [Version] says otherwise: values that another binary computed are known to be others.
package functions
