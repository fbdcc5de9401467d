package leman

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
)

const (
	authorization   = "authorization"
	requestIDHeader = "x-request-id"
	// guardInterval is how often a waiting call checks its connection.
	guardInterval = time.Second
)

var (
	errAway = errors.New("not connected")
	// errReplaced ends a call to a service that is not connected, so that the call is made through the endpoint
	// instead.
	errReplaced = errors.New("the service itself is not connected")
	// onceByGRPC turns off gRPC's own retries: this package decides which calls to retry.
	onceByGRPC = grpc.MaxRetryRPCBufferSize(0)
)

// Invoke makes a unary call; the generated stubs use it. While the services are unavailable it retries, until the
// client's patience or the context ends.
func (c *Client) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	if err := cmp.Or(checked(ctx, options), c.made()); err != nil {
		return err
	}
	facts := factsOf(method)
	if request == nil || facts.requestID != nil && isNil(request) { // the request of a method that only reads may be nil
		return invalid("request", "request is nil: give the message that is sent")
	}
	if isNil(reply) {
		return invalid("reply", "reply is nil: give the message that takes the answer")
	}
	ctx, cancel := withDeadline(ctx, method)
	defer cancel()
	request = withRequestID(ctx, facts, request)
	waiting := newPatience(c.patience)
	if facts.repeatable {
		options = append(slices.Clip(options), onceByGRPC)
		if facts.requestID == nil {
			waiting.forReading()
		}
	}
	for {
		failed := c.invokeOnce(ctx, method, request, reply, options)
		if failed == nil {
			return nil
		}
		if !facts.repeatable || !c.again(ctx, failed, waiting) {
			return c.ending(ctx, failed)
		}
	}
}

func (c *Client) invokeOnce(ctx context.Context, method string, request, reply any, options []grpc.CallOption) *Error {
	ctx, id, token, err := c.outgoing(ctx, method)
	if err != nil {
		return c.explain(ctx, method, id, err)
	}
	conn, replaceable := c.conn(method)
	guarded, stop := c.guard(ctx, conn, replaceable)
	defer stop()
	if err := conn.Invoke(guarded, method, request, reply, options...); err != nil {
		failed := c.explain(guarded, method, id, err)
		if wrong := unsendable(failed, request); wrong != nil {
			return wrong
		}
		failed.token = token
		return failed
	}
	return nil
}

// again returns true if a call should be retried. It pauses first, if the error asks for a pause.
func (c *Client) again(ctx context.Context, failed *Error, waiting *patience) bool {
	ctx, stop := c.untilClosed(ctx)
	defer stop()
	if failed.Code == codes.Unauthenticated && failed.token != "" && !waiting.renewed {
		waiting.renewed = true
		return c.tokens.renew(ctx, failed.token)
	}
	if c.closed.Load() || errors.Is(failed.cause, errAway) || !passing(ctx, failed) || !waiting.mayLose(failed) {
		return false
	}
	c.logger.DebugContext(ctx, "leman: sending a call again", "method", failed.Method, "error", failed.Message)
	return waiting.wait(ctx, failed.RetryDelay)
}

// untilClosed returns a context that also ends when the client is closed.
func (c *Client) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ending returns the error of a call that is not retried. If the client was closed or the context ended meanwhile, it
// returns the error for that.
func (c *Client) ending(ctx context.Context, failed *Error) *Error {
	if c.closed.Load() {
		return c.explain(ctx, failed.Method, failed.RequestID, failed)
	}
	if !errors.Is(ctx.Err(), context.Canceled) || failed.Code == codes.Canceled {
		return failed
	}
	return asError(failed.Method, failed.RequestID, ctx.Err())
}

// outgoing adds the token and a request id to the metadata of the caller's context.
func (c *Client) outgoing(ctx context.Context, method string) (_ context.Context, id, token string, _ error) {
	if chosen, ok := ctx.Value(requestIDKey{}).(string); ok && chosen == "" {
		return ctx, "", "", invalid("request_id", "the request id is empty: leave WithRequestID out to have one made up")
	}
	given, _ := metadata.FromOutgoingContext(ctx)
	carried := given.Copy()
	if carried == nil {
		carried = metadata.MD{}
	}
	if found := carried.Get(requestIDHeader); len(found) > 0 {
		id = found[0]
	} else {
		id = rand.Text()
		carried.Set(requestIDHeader, id)
	}
	if err := headersGiven(carried); err != nil {
		return ctx, id, "", err
	}
	if c.exposed != "" && len(carried.Get(authorization)) > 0 {
		return ctx, id, "", inTheClear(c.exposed)
	}
	if len(carried.Get(authorization)) == 0 {
		var err error
		if token, err = c.token(ctx, method); err != nil {
			return ctx, id, "", err
		}
		if token != "" {
			carried.Set(authorization, "Bearer "+token)
		}
	}
	return metadata.NewOutgoingContext(ctx, carried), id, token, nil
}

// token returns the token for a call. A stream waits for it for at most the default deadline of a unary call of its
// service.
func (c *Client) token(ctx context.Context, method string) (string, error) {
	ctx, stop := c.untilClosed(ctx)
	defer stop()
	ctx, cancel := withDeadline(ctx, method)
	defer cancel()
	return c.tokens.get(ctx)
}

// guard ends a call if it has had no connection for as long as the client's patience. If the endpoint can replace the
// connection, it ends the call at once. Without this, calls would wait for a connection until their deadline, because
// the published policy sets wait-for-ready.
func (c *Client) guard(
	ctx context.Context, conn *grpc.ClientConn, replaceable bool,
) (context.Context, context.CancelFunc) {
	limit, why := max(c.patience, guardInterval), errAway
	if replaceable {
		limit, why = 0, errReplaced
	}
	guarded, cancel := context.WithCancelCause(ctx)
	connected := time.Now()
	var lock sync.Mutex
	var timer *time.Timer
	look := func() {
		lock.Lock()
		defer lock.Unlock()
		if conn.GetState() == connectivity.Ready {
			connected = time.Now()
		} else if time.Since(connected) > limit {
			cancel(why)
		}
		if guarded.Err() == nil {
			timer.Reset(guardInterval)
		}
	}
	lock.Lock()
	timer = time.AfterFunc(guardInterval, look)
	lock.Unlock()
	return guarded, func() {
		cancel(nil)
		timer.Stop()
	}
}

// explain returns the error of a guarded call.
func (c *Client) explain(guarded context.Context, method, id string, err error) *Error {
	failed := asError(method, id, err)
	switch {
	case c.closed.Load():
		return &Error{Code: codes.Canceled, Reason: ReasonClosed, Message: "the client was closed", Method: method, cause: err}
	case errors.Is(context.Cause(guarded), errReplaced):
		return &Error{Code: codes.Unavailable, Message: errReplaced.Error(), Method: method, RequestID: id, cause: err}
	case errors.Is(context.Cause(guarded), errAway):
		message := "the services cannot be reached: " + failed.Message
		return &Error{Code: codes.Unavailable, Message: message, Method: method, RequestID: id, cause: errors.Join(errAway, err)}
	}
	return failed
}

// NewStream opens a stream; the generated stubs use it. A stream is opened once: only methods of this package resume
// one. If the services refuse the token, this stream fails, and the next one gets a new token.
func (c *Client) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if err := cmp.Or(checked(ctx, options), c.made()); err != nil {
		return nil, err
	}
	if description == nil {
		return nil, invalid("description", "description is nil: give that of the stream")
	}
	ctx, id, token, err := c.outgoing(ctx, method)
	if err != nil {
		return nil, c.explain(ctx, method, id, err)
	}
	conn, replaceable := c.conn(method)
	guarded, stop := c.guard(ctx, conn, replaceable)
	opened, err := conn.NewStream(guarded, description, method, options...)
	stream := &clientStream{ClientStream: opened, client: c, guarded: guarded, stop: stop}
	stream.method, stream.id, stream.token, stream.answers = method, id, token, description.ServerStreams
	if err != nil {
		return nil, stream.failed(err)
	}
	return stream, nil
}

// clientStream is a stream that returns errors of this package and releases everything when it ends.
type clientStream struct {
	grpc.ClientStream
	client            *Client
	guarded           context.Context
	stop              context.CancelFunc
	method, id, token string
	answers           bool // true if more than one response may come
}

// SendMsg sends a message.
func (s *clientStream) SendMsg(message any) error {
	err := s.ClientStream.SendMsg(message)
	if err == nil || errors.Is(err, io.EOF) { // for EOF, RecvMsg returns the cause
		return err
	}
	failed := s.failed(err)
	if wrong := unsendable(failed, message); wrong != nil {
		return wrong
	}
	return failed
}

// RecvMsg receives the next response. It returns io.EOF after the last one.
func (s *clientStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	switch {
	case err == nil && s.answers:
		return nil
	case err == nil || errors.Is(err, io.EOF):
		s.stop()
		return err
	}
	return s.failed(err)
}

// failed ends the stream and returns its error. If the services refused the token, the next call asks the source for
// another one.
func (s *clientStream) failed(err error) *Error {
	explained := s.client.explain(s.guarded, s.method, s.id, err)
	s.stop()
	explained.token = s.token
	return explained
}
