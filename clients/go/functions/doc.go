// Package functions serves functions that compute columns of Leman from a program in Go: remote functions.
//
//	server := functions.New()
//	functions.AddScalar(server, "length", "text", func(_ context.Context, text string) (int64, error) {
//		return int64(len(text)), nil
//	})
//	log.Fatal(server.Serve(ctx, "127.0.0.1:7815"))
//
// The server speaks the protocol leman.function.v1 over Arrow Flight (docs/remote_functions.md). Start it, then register
// the function with the server's address. Its columns have checkpoints, an error policy and time limits like those of any
// other function. The version of a function is a digest of the binary, unless you set [Version]. So values that another
// binary computed count as stale.
package functions
