package functions

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Option is an option of [New].
type Option func(*settings)

type settings struct {
	allows func(ctx context.Context, token string) bool // nil: accept every caller
	tls    *TLSFiles
	grace  time.Duration
	wrong  error
}

// WithToken accepts only callers that send this token.
func WithToken(token string) Option {
	return func(s *settings) {
		if token == "" {
			s.wrong = errors.New("functions: the token is empty: set it, or leave WithToken out and listen at 127.0.0.1")
		}
		s.allows = func(_ context.Context, shown string) bool {
			return subtle.ConstantTimeCompare([]byte(shown), []byte(token)) == 1
		}
	}
}

// WithTokenCheck accepts the callers for whose token allows returns true. The token is "" if a caller sends none.
// allows is called concurrently.
func WithTokenCheck(allows func(ctx context.Context, token string) bool) Option {
	return func(s *settings) {
		if allows == nil {
			s.wrong = errors.New("functions: WithTokenCheck was given nil: leave it out, and listen at 127.0.0.1, to serve anybody")
		}
		s.allows = allows
	}
}

// WithGrace sets how long [Server.Serve] waits at its end for batches that are being computed. The default is half a
// minute. After that it cancels the contexts of their functions.
func WithGrace(grace time.Duration) Option {
	return func(s *settings) { s.grace = grace }
}

func (s *settings) serverOptions() ([]grpc.ServerOption, error) {
	if s.wrong != nil {
		return nil, s.wrong
	}
	options := []grpc.ServerOption{grpc.UnaryInterceptor(s.checkCall), grpc.StreamInterceptor(s.checkStream)}
	if s.tls == nil {
		return options, nil
	}
	config, err := s.tls.config()
	if err != nil {
		return nil, fmt.Errorf("functions: %w", err)
	}
	return append(options, grpc.Creds(credentials.NewTLS(config))), nil
}

func (s *settings) checkCall(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

func (s *settings) checkStream(
	service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler,
) error {
	if err := s.check(stream.Context()); err != nil {
		return err
	}
	return handle(service, stream)
}

func (s *settings) check(ctx context.Context) error {
	if s.allows == nil {
		return nil
	}
	shown := strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ",")
	scheme, token, _ := strings.Cut(shown, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	if !s.allows(ctx, token) {
		return status.Error(codes.Unauthenticated, "this function server takes calls with its token only: send the"+
			" header authorization: Bearer TOKEN")
	}
	return nil
}
