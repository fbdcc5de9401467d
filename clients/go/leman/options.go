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

// Option changes how [Connect] connects.
type Option func(*settings)

type settings struct {
	tokens    TokenSource
	tls       func() (*tls.Config, error) // nil: none was asked for
	plaintext bool
	services  ServiceAddresses
	direct    bool
	lake      *lake // of a local database; nil: of an endpoint
	patience  time.Duration
	contact   time.Duration
	logger    *slog.Logger
	dial      []grpc.DialOption
	wrong     error // of the first option that cannot be
}

func (s *settings) refuse(field, why string) {
	if s.wrong == nil {
		s.wrong = invalid(field, "%s", why)
	}
}

// WithToken shows the same token with every call.
func WithToken(token string) Option { return WithTokenSource(StaticToken(token)) }

// WithTokenSource shows tokens that are renewed: see [TokenSource], [TokenFile] and [TokenFunc].
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

// TLSFiles names PEM files. They are reread for each connection, so that all may be renewed in place; while they cannot
// be used, as one is replaced and another is not yet, those of before hold.
type TLSFiles struct {
	// CA has the certificates to check those of the services with; empty: the system's.
	CA string
	// Cert and Key are a certificate that says who calls, where the services take one; empty: none is shown.
	Cert, Key string
	// ServerName is the name that the services' certificate must have; empty: the host that is called.
	ServerName string
}

// WithTLS connects over TLS, and with Cert and Key over mTLS.
func WithTLS(files TLSFiles) Option {
	return func(s *settings) { s.tls = files.config }
}

// WithTLSConfig connects over TLS as the configuration says.
func WithTLSConfig(config *tls.Config) Option {
	return func(s *settings) {
		if config == nil {
			s.refuse("config", "WithTLSConfig was given nil: use WithTLS(TLSFiles{}) for the certificates of the system")
		}
		s.tls = func() (*tls.Config, error) { return config.Clone(), nil }
	}
}

// WithPlaintext shows the token to other machines than this one without TLS, for networks that are protected otherwise:
// anyone who is on the way can read the token, and the rows. Without it, and without [WithTLS], such a token is refused before
// anything is sent ([ReasonPlaintextToken]).
func WithPlaintext() Option {
	return func(s *settings) { s.plaintext = true }
}

// ServiceAddresses is where each of the services is called itself, as host:port; empty: by way of the endpoint.
type ServiceAddresses struct {
	Planner, Executor, CommitCoordinator string
}

// WithServiceAddresses calls services themselves, which saves each call a hop. [Client.Info] tells what they are called.
func WithServiceAddresses(addresses ServiceAddresses) Option {
	return func(s *settings) { s.services = addresses }
}

// WithDirectServices asks the endpoint, when it connects, where the services are, and calls those themselves that answer
// there, by the same token and TLS; it waits two seconds for them at most. By way of the endpoint go calls of the others,
// and those of one that goes away as long as it is away.
func WithDirectServices() Option {
	return func(s *settings) { s.direct = true }
}

// WithPatience sets how long calls, watches and reads wait for services that are away before they fail; 0: they are
// not sent again beyond what the published retry policy says. A minute, unless it is set.
func WithPatience(patience time.Duration) Option {
	return func(s *settings) {
		if patience < 0 {
			s.refuse("patience", "the patience is negative: 0 has no call wait for services that are away")
		}
		s.patience = patience
	}
}

// WithFirstContact sets how long [Connect] waits for an answer. Ten seconds, unless it is set.
func WithFirstContact(limit time.Duration) Option {
	return func(s *settings) {
		if limit <= 0 {
			s.refuse("limit", "the time for the first contact is none: give one, such as 10 * time.Second")
		}
		s.contact = limit
	}
}

// WithLogger has warnings of the services (damaged entries that a listing left out, for example) and calls that are
// sent again logged there; [slog.Default], unless it is set.
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
