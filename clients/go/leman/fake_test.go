package leman

import (
	"context"
	"flag"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// TestMain leaves the examples out where there are no services for them: LEMAN_ENDPOINT, LEMAN_TOKEN and LEMAN_DATABASE
// say where these are.
func TestMain(m *testing.M) {
	if os.Getenv("LEMAN_ENDPOINT") == "" {
		_ = flag.Set("test.skip", "^Example")
	}
	goleak.VerifyTestMain(m)
}

// handler serves one call.
type handler func(stream grpc.ServerStream) error

// fake is services at one address that do what a test says.
type fake struct {
	t        *testing.T
	address  string
	secured  credentials.TransportCredentials
	lock     sync.Mutex
	handlers map[string]handler
	calls    map[string][]metadata.MD
	server   *grpc.Server
}

// serve starts services whose calls are called "JobService/GetJob".
func serve(t *testing.T, handlers map[string]handler, options ...func(*fake)) *fake {
	t.Helper()
	f := &fake{t: t, address: "127.0.0.1:0", handlers: map[string]handler{}, calls: map[string][]metadata.MD{}}
	f.handlers["InfoService/GetInfo"] = unary(func(context.Context, *lemanv1.GetInfoRequest) (*lemanv1.GetInfoResponse, error) {
		return &lemanv1.GetInfoResponse{Service: "fake"}, nil
	})
	for name, serves := range handlers {
		f.handlers[name] = serves
	}
	for _, option := range options {
		option(f)
	}
	f.start()
	t.Cleanup(func() {
		f.lock.Lock()
		defer f.lock.Unlock()
		f.server.Stop()
	})
	return f
}

// die ends the services in the middle of their calls, and starts them again.
func (f *fake) die() {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.server.Stop()
	f.start()
}

func (f *fake) start() {
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		f.t.Fatal(err)
	}
	f.address = listener.Addr().String()
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(f.handle)}
	if f.secured != nil {
		options = append(options, grpc.Creds(f.secured))
	}
	f.server = grpc.NewServer(options...)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(f.server)
}

func (f *fake) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	name := strings.TrimPrefix(method, "/leman.v1.")
	received, _ := metadata.FromIncomingContext(stream.Context())
	f.lock.Lock()
	f.calls[name] = append(f.calls[name], received)
	serves := f.handlers[name]
	f.lock.Unlock()
	if serves == nil {
		return status.Error(codes.Unimplemented, name)
	}
	return serves(stream)
}

// count tells how often a call was made.
func (f *fake) count(name string) int {
	f.lock.Lock()
	defer f.lock.Unlock()
	return len(f.calls[name])
}

// shown returns the tokens that a call carried.
func (f *fake) shown(name string) []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	var all []string
	for _, received := range f.calls[name] {
		all = append(all, strings.Join(received.Get(authorization), ","))
	}
	return all
}

// connected connects to the services for the length of a test.
func (f *fake) connected(options ...Option) *Client {
	f.t.Helper()
	client, err := Connect(f.t.Context(), f.address, options...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = client.Close() })
	return client
}

func unary[Q any, P interface {
	*Q
	proto.Message
}, R proto.Message](serves func(context.Context, P) (R, error)) handler {
	return func(stream grpc.ServerStream) error {
		request := P(new(Q))
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		answer, err := serves(stream.Context(), request)
		if err != nil {
			return err
		}
		return stream.SendMsg(answer)
	}
}

// failing fails the given number of calls, and then serves.
func failing(times int, err error, serves handler) handler {
	var lock sync.Mutex
	return func(stream grpc.ServerStream) error {
		lock.Lock()
		times--
		fails := times >= 0
		lock.Unlock()
		if fails {
			return err
		}
		return serves(stream)
	}
}

// refusal is an error as the services give it.
func refusal(code codes.Code, reason string, delay time.Duration) error {
	from := status.New(code, "what was wrong; what to do")
	info := &errdetails.ErrorInfo{Domain: "leman", Reason: reason, Metadata: map[string]string{"table": "docs"}}
	bad := &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "table", Description: "no"}}}
	from, err := from.WithDetails(info, bad)
	if err == nil && delay > 0 {
		from, err = from.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	}
	if err != nil {
		panic(err)
	}
	return from.Err()
}

func job(state lemanv1.Job_State) *lemanv1.Job {
	return &lemanv1.Job{JobId: "j1", State: state, Progress: &lemanv1.Progress{RowsCommitted: 7}}
}

func gotJob(context.Context, *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
	return &lemanv1.GetJobResponse{Job: job(lemanv1.Job_STATE_DONE)}, nil
}

func check(t *testing.T, holds bool, format string, values ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, values...)
	}
}
