package leman

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	lemanv1 "leman.dev/go/leman/v1"
)

// Client is connections to the services. It is made by [Connect], and closed by its maker. Calls of a zero value, and of
// zero values of what it makes, are INVALID_ARGUMENT.
//
// It is also what the generated stubs ask for, such as lemanv1.NewJobServiceClient(client).
type Client struct {
	endpoint *grpc.ClientConn
	own      map[string]*grpc.ClientConn // of services that are called themselves, by the service's full name
	direct   map[string]*grpc.ClientConn // the same, but by way of the endpoint while they cannot be reached
	tokens   *tokens
	patience time.Duration
	logger   *slog.Logger
	closed   atomic.Bool
	life     context.Context // ends when the client is closed
	end      context.CancelFunc
	exposed  string // the address of another machine that no token may go to, as there is no TLS; empty: there is none
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// Connect connects to the services and waits for a first answer. The endpoint is host:port of any one service, which
// answers for all of them, or several of these separated by commas: the first that answers is called, and another one
// when it goes away.
//
// Without [WithTLS] the connection is plaintext, and a token goes to this machine alone, unless [WithPlaintext] says
// otherwise.
//
// The error is an [*Error]: INVALID_ARGUMENT for options that do not go together, UNAVAILABLE where nothing answers,
// UNAUTHENTICATED for a token that does not hold.
func Connect(ctx context.Context, endpoint string, options ...Option) (*Client, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	s := &settings{patience: defaultPatience, contact: firstContact, logger: slog.Default()}
	for _, option := range options {
		option(s)
	}
	if s.wrong != nil {
		return nil, s.wrong
	}
	return connect(ctx, endpoint, s)
}

func connect(ctx context.Context, endpoint string, s *settings) (*Client, error) {
	client, err := newClient(endpoint, s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.contact)
	defer cancel()
	told, err := client.Info(ctx)
	if err != nil {
		_ = client.Close()
		return nil, unreachable(endpoint, err)
	}
	if s.direct {
		client.discover(ctx, told, s)
	}
	return client, nil
}

func newClient(endpoint string, s *settings) (*Client, error) {
	client := &Client{
		own:      map[string]*grpc.ClientConn{},
		direct:   map[string]*grpc.ClientConn{},
		tokens:   newTokens(s.tokens),
		patience: s.patience,
		logger:   s.logger,
	}
	client.life, client.end = context.WithCancel(context.Background())
	open := dial
	if s.lake != nil {
		open = s.lake.dial
	}
	var err error
	if client.endpoint, err = open(endpoint, s); err != nil {
		client.end()
		return nil, err
	}
	client.expose(endpoint, s)
	for service, address := range map[string]string{
		"planner": s.services.Planner, "executor": s.services.Executor, "commit_coordinator": s.services.CommitCoordinator,
	} {
		if address == "" {
			continue
		}
		conn, err := open(address, s)
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		client.expose(address, s)
		for _, name := range servedBy[service] {
			client.own[name] = conn
		}
	}
	return client, nil
}

// expose keeps of addresses that were opened whether tokens may go there.
func (c *Client) expose(addresses string, s *settings) {
	if hosts, err := hostsOf(addresses); err == nil && c.exposed == "" {
		c.exposed = s.exposed(hosts)
	}
}

// unreachable says of a first contact that took too long that nothing answered.
func unreachable(endpoint string, err error) error {
	failed := asError("", "", err)
	if failed.Code != codes.DeadlineExceeded {
		return failed
	}
	if errors.Is(err, errNoToken) {
		return &Error{Code: codes.Unavailable, Message: errNoToken.Error() + ": nothing was sent", cause: err}
	}
	return &Error{
		Code:    codes.Unavailable,
		Message: "nothing answered at " + endpoint + " in time: check the address, and TLS (" + failed.Message + ")",
		Method:  failed.Method,
		cause:   err,
	}
}

// Close ends all calls that are under way, those too that wait for a token or to be sent again: with CANCELLED (CLOSED).
// Jobs go on. It returns nil.
func (c *Client) Close() error {
	if c.made() != nil || c.closed.Swap(true) {
		return nil
	}
	c.end()
	_ = c.endpoint.Close()
	for _, conns := range []map[string]*grpc.ClientConn{c.own, c.direct} {
		for _, conn := range conns {
			_ = conn.Close() // of several services: closed before is closed
		}
	}
	return nil
}

// Info tells which service answers at the endpoint, and where the others are.
func (c *Client) Info(ctx context.Context) (*lemanv1.GetInfoResponse, error) {
	return c.info().GetInfo(ctx, &lemanv1.GetInfoRequest{})
}

// Database names a database: by its registered name, or its path or uri as the services reach it. Nothing is called; a
// database is made with its first table.
func (c *Client) Database(name string) *Database {
	return &Database{client: c, name: name}
}

// conn gives the connection to the service of a method, and whether the endpoint can take its place.
func (c *Client) conn(method string) (conn *grpc.ClientConn, replaceable bool) {
	service := serviceOf(method)
	if conn, ok := c.own[service]; ok {
		return conn, false
	}
	if conn, ok := c.direct[service]; ok {
		if conn.GetState() == connectivity.Ready {
			return conn, true
		}
		conn.Connect()
	}
	return c.endpoint, false
}

// warn logs what a listing left out.
func (c *Client) warn(ctx context.Context, warnings []string) {
	for _, text := range warnings {
		c.logger.WarnContext(ctx, "leman: "+text)
	}
}
