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

// Client holds the connections to the services. Create one with [Connect] and close it with [Client.Close]. Calls of a
// zero Client, and of zero values of the types that it creates, return INVALID_ARGUMENT.
//
// It can be passed to the generated stubs, such as lemanv1.NewJobServiceClient(client).
type Client struct {
	endpoint *grpc.ClientConn
	own      map[string]*grpc.ClientConn // direct connections, by the service's full name
	direct   map[string]*grpc.ClientConn // direct connections that the endpoint replaces while they are down
	tokens   *tokens
	patience time.Duration
	logger   *slog.Logger
	closed   atomic.Bool
	life     context.Context // ends when the client is closed
	end      context.CancelFunc
	exposed  string // an address on another machine that must not get a token, for lack of TLS; may be empty
}

var _ grpc.ClientConnInterface = (*Client)(nil)

// Connect connects to the services and waits for the first response. The endpoint is the host:port of any one service,
// which accepts the calls of all of them. It may also be several such addresses, separated by commas. Then the client
// uses the first one that answers, and switches to another one when that becomes unavailable.
//
// Without [WithTLS] the connection is plaintext. The client then sends a token only to this machine, unless you pass
// [WithPlaintext].
//
// Errors are of type [*Error]: INVALID_ARGUMENT for options that contradict each other, UNAVAILABLE if no address
// answers, UNAUTHENTICATED for an invalid token.
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

// expose records whether the client may send tokens to the given addresses.
func (c *Client) expose(addresses string, s *settings) {
	if hosts, err := hostsOf(addresses); err == nil && c.exposed == "" {
		c.exposed = s.exposed(hosts)
	}
}

// unreachable returns the error of a first contact that got no response in time.
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

// Close closes the connections. All running calls end with CANCELLED (CLOSED), including calls that wait for a token or
// for a retry. Jobs continue. It always returns nil.
func (c *Client) Close() error {
	if c.made() != nil || c.closed.Swap(true) {
		return nil
	}
	c.end()
	_ = c.endpoint.Close()
	for _, conns := range []map[string]*grpc.ClientConn{c.own, c.direct} {
		for _, conn := range conns {
			_ = conn.Close() // several services may share a connection; closing it twice does no harm
		}
	}
	return nil
}

// Info returns which service answers at the endpoint, and the addresses of the others.
func (c *Client) Info(ctx context.Context) (*lemanv1.GetInfoResponse, error) {
	return c.info().GetInfo(ctx, &lemanv1.GetInfoRequest{})
}

// Database returns a handle for a database, by its registered name, or by its path or URI as the services see it. It
// makes no call. A database is created with its first table.
func (c *Client) Database(name string) *Database {
	return &Database{client: c, name: name}
}

// conn returns the connection to the service of a method, and whether the endpoint can replace it.
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

// warn logs the entries that a listing left out.
func (c *Client) warn(ctx context.Context, warnings []string) {
	for _, text := range warnings {
		c.logger.WarnContext(ctx, "leman: "+text)
	}
}
