package leman

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	lemanv1 "leman.dev/go/leman/v1"
)

// What README says of traces: metadata of the context is sent, and interceptors add theirs to each attempt.
func TestCallsCarryTheTraceOfTheirContextAndOfInterceptors(t *testing.T) {
	watched := func(stream grpc.ServerStream) error {
		return stream.SendMsg(&lemanv1.WatchJobResponse{Sequence: 1, Job: job(lemanv1.Job_STATE_DONE)})
	}
	services := serve(t, map[string]handler{
		"JobService/GetJob": unary(gotJob), "JobService/WatchJob": watched,
	})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", trace)
	found := services.connected().Database("lake").Job("j1")
	check(t, second(found.Get(ctx)) == nil && second(found.Wait(ctx)) == nil, "they fail")

	intercepted := WithDialOptions(grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		return next(metadata.AppendToOutgoingContext(ctx, "traceparent", trace), method, request, reply, conn, options...)
	}))
	check(t, second(services.connected(intercepted).Database("lake").Job("j1").Get(t.Context())) == nil, "it fails")

	services.lock.Lock()
	defer services.lock.Unlock()
	for method, times := range map[string]int{"JobService/GetJob": 2, "JobService/WatchJob": 1} {
		check(t, len(services.calls[method]) == times, "%s: %v", method, services.calls[method])
		for _, received := range services.calls[method] {
			given := received.Get("traceparent")
			check(t, len(given) == 1 && given[0] == trace, "%s: %v", method, given)
		}
	}
}
