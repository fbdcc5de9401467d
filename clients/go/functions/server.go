package functions

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	defaultGrace = 30 * time.Second
	// pingsEvery is the shortest interval at which a client may send keepalive pings; the services send them less
	// often.
	pingsEvery = 5 * time.Second
)

// Server serves functions. Add functions with [Server.Add] and [AddScalar], then call [Server.Serve].
type Server struct {
	settings settings
	lock     sync.RWMutex
	byName   map[string]*function
	names    []string // in the order in which they were added
}

// New creates a server without functions.
func New(options ...Option) *Server {
	s := &Server{byName: map[string]*function{}, settings: settings{grace: defaultGrace}}
	for _, option := range options {
		option(&s.settings)
	}
	return s
}

// Serve serves the functions at an address, such as "127.0.0.1:7815", until the context ends. Then it finishes the
// batches that are being computed, tells clients to use other instances, and returns nil. It returns an error if it
// cannot serve.
func (s *Server) Serve(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return s.ServeOn(ctx, listener)
}

// ServeOn is [Server.Serve] on a listener, so that you can learn the port if you asked for any. It closes the listener.
func (s *Server) ServeOn(ctx context.Context, listener net.Listener) error {
	options, err := s.settings.serverOptions()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	stopping := make(chan struct{})
	server := grpc.NewServer(append(options,
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsEvery, PermitWithoutStream: true}),
	)...)
	flight.RegisterFlightServiceServer(server, &service{server: s, stopping: stopping})

	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		server.Stop()
		return err
	case <-ctx.Done():
	}
	close(stopping)
	s.stop(server)
	return <-ended
}

// stop waits, up to the grace period, until the batches that are being computed are finished.
func (s *Server) stop(server *grpc.Server) {
	late := time.AfterFunc(s.settings.grace, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}
