package functions

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// TLSFiles names PEM files. The server rereads them for each connection, so you can renew them in place. While they do
// not match, because only some of them have been replaced, it uses the previous contents.
type TLSFiles struct {
	// Cert and Key are the certificate of the server and its key.
	Cert, Key string
	// ClientCA has the certificates that verify callers, which must then have a certificate. If empty, callers need
	// none.
	ClientCA string
}

// WithTLS serves with TLS, and with mutual TLS if ClientCA is set.
func WithTLS(files TLSFiles) Option {
	return func(s *settings) { s.tls = &files }
}

// config returns a configuration that rereads the files at each handshake.
func (f *TLSFiles) config() (*tls.Config, error) {
	first, err := f.read()
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Config]
	last.Store(first)
	config := first.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if found, err := f.read(); err == nil {
			last.Store(found)
		}
		return last.Load(), nil
	}
	return config, nil
}

func (f *TLSFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of the server cannot be read: %w", err)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
	}
	if f.ClientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("the certificates to check callers with cannot be read: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New(f.ClientCA + " has no certificate in PEM")
	}
	return config, nil
}
