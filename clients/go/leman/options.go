package leman

import (
	"crypto/tls"
	"log/slog"
	"time"

	"google.golang.org/grpc"
)

const (
	defaultPatience = time.Minute
	firstContact    = 10 * time.Second
)

// Option is an option of [Connect].
type Option func(*settings)

type settings struct {
	tokens    TokenSource
	tls       func() (*tls.Config, error) // nil: no TLS
	plaintext bool
	services  ServiceAddresses
	direct    bool
	lake      *lake // set for a local database; nil: connect to an endpoint
	patience  time.Duration
	contact   time.Duration
	logger    *slog.Logger
	dial      []grpc.DialOption
	wrong     error // the first invalid option
}

func (s *settings) refuse(field, why string) {
	if s.wrong == nil {
		s.wrong = invalid(field, "%s", why)
	}
}

// WithToken sends the same token with every call.
func WithToken(token string) Option { return WithTokenSource(StaticToken(token)) }

// WithTokenSource sends tokens that can be renewed: see [TokenSource], [TokenFile] and [TokenFunc].
func WithTokenSource(source TokenSource) Option {
	return func(s *settings) {
		if isNil(source) {
			s.refuse("source", "WithTokenSource was given nil: leave it out to show no token")
		} else if source == StaticToken("") {
			s.refuse("token", "the token is empty: leave WithToken out to show none")
		} else if source == TokenFile("") {
			s.refuse("path", "TokenFile was given no path: leave it out to show no token")
		}
		s.tokens = source
	}
}

// TLSFiles names PEM files. The client rereads them for each connection, so you can renew them in place. While they do
// not match, because only some of them have been replaced, it uses the previous contents.
type TLSFiles struct {
	// CA has the certificates that verify the services; empty: those of the system.
	CA string
	// Cert and Key are the client certificate and its key, which identify the caller if the services accept that.
	// Empty: no client certificate.
	Cert, Key string
	// ServerName is the name that the services' certificate must have. Empty: the host of the address.
	ServerName string
}

// WithTLS connects with TLS, and with mutual TLS if Cert and Key are set.
func WithTLS(files TLSFiles) Option {
	return func(s *settings) { s.tls = files.config }
}

// WithTLSConfig connects with TLS and the given configuration.
func WithTLSConfig(config *tls.Config) Option {
	return func(s *settings) {
		if config == nil {
			s.refuse("config", "WithTLSConfig was given nil: use WithTLS(TLSFiles{}) for the certificates of the system")
		}
		s.tls = func() (*tls.Config, error) { return config.Clone(), nil }
	}
}

// WithPlaintext lets the client send its token to other machines without TLS. Use it only in networks that are
// protected otherwise: anyone on the way can read the token and the rows. Without this option and without [WithTLS],
// Connect returns an error before it sends such a token ([ReasonPlaintextToken]).
func WithPlaintext() Option {
	return func(s *settings) { s.plaintext = true }
}

// ServiceAddresses has the address of each service, as host:port. Calls of a service without an address go through the
// endpoint.
type ServiceAddresses struct {
	Planner, Executor, CommitCoordinator string
}

// WithServiceAddresses calls the services directly, which saves each call a hop. [Client.Info] returns their addresses.
func WithServiceAddresses(addresses ServiceAddresses) Option {
	return func(s *settings) { s.services = addresses }
}

// WithDirectServices asks the endpoint for the addresses of the services when it connects, and then calls these
// directly, with the same token and TLS. It waits at most two seconds for them to answer. Calls of a service that does
// not answer go through the endpoint, and so do calls of one that becomes unavailable, until it is back.
func WithDirectServices() Option {
	return func(s *settings) { s.direct = true }
}

// WithPatience sets how long calls, watches and reads wait for unavailable services before they fail. The default is a
// minute. With 0, only the retries of the published policy are made.
func WithPatience(patience time.Duration) Option {
	return func(s *settings) {
		if patience < 0 {
			s.refuse("patience", "the patience is negative: 0 has no call wait for services that are away")
		}
		s.patience = patience
	}
}

// WithFirstContact sets how long [Connect] waits for a response. The default is ten seconds.
func WithFirstContact(limit time.Duration) Option {
	return func(s *settings) {
		if limit <= 0 {
			s.refuse("limit", "the time for the first contact is none: give one, such as 10 * time.Second")
		}
		s.contact = limit
	}
}

// WithLogger sets the logger for retried calls and for warnings of the services, for example about damaged entries that
// a listing left out. The default is [slog.Default].
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) {
		if logger == nil {
			s.refuse("logger", "the logger is nil: slog.New(slog.DiscardHandler) logs nothing")
		}
		s.logger = logger
	}
}

// WithDialOptions adds options of gRPC, such as interceptors or a dialer.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) {
		if err := allGiven("options", options); err != nil && s.wrong == nil {
			s.wrong = err
		}
		s.dial = append(s.dial, options...)
	}
}
