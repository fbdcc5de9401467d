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
	// pingsEvery is how often a client may ask whether the server is there: more often than the services do.
	pingsEvery = 5 * time.Second
)

// Server serves functions. [Server.Add] and [AddScalar] give it some, [Server.Serve] serves them.
type Server struct {
	settings settings
	lock     sync.RWMutex
	byName   map[string]*function
	names    []string // in the order of Add
}

// New makes a server that has no functions yet.
func New(options ...Option) *Server {
	s := &Server{byName: map[string]*function{}, settings: settings{grace: defaultGrace}}
	for _, option := range options {
		option(&s.settings)
	}
	return s
}

// Serve serves the functions at an address, such as "127.0.0.1:7815", until the context ends, and then stops: batches that are
// being computed are answered, clients are sent to other instances. It returns nil then, and what was wrong otherwise.
func (s *Server) Serve(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return s.ServeOn(ctx, listener)
}

// ServeOn is [Server.Serve] on a listener, which knows its port where any was asked for. It closes the listener.
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

// stop lets the batches that are being computed be answered, as long as the grace lasts.
func (s *Server) stop(server *grpc.Server) {
	late := time.AfterFunc(s.settings.grace, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}
