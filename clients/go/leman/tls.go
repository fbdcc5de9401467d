package leman

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
)

// renewedCredentials rereads its files at each handshake. While the files do not match, because only some of them have
// been replaced, it uses the previous contents.
type renewedCredentials struct {
	credentials.TransportCredentials
	read func() (*tls.Config, error)
	last *atomic.Pointer[tls.Config]
}

func newRenewedCredentials(read func() (*tls.Config, error)) (credentials.TransportCredentials, error) {
	first, err := read()
	if err != nil {
		return nil, err
	}
	made := renewedCredentials{credentials.NewTLS(first), read, new(atomic.Pointer[tls.Config])}
	made.last.Store(first)
	return made, nil
}

// ClientHandshake implements [credentials.TransportCredentials].
func (r renewedCredentials) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	if found, err := r.read(); err == nil {
		r.last.Store(found)
	}
	return credentials.NewTLS(r.last.Load()).ClientHandshake(ctx, authority, conn)
}

// Clone implements [credentials.TransportCredentials].
func (r renewedCredentials) Clone() credentials.TransportCredentials {
	return renewedCredentials{r.TransportCredentials.Clone(), r.read, r.last}
}

func (f TLSFiles) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, invalid("CA", "the certificates to check the services' with cannot be read: %s", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("CA", "%s has no certificate in PEM", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, invalid("Cert", "Cert and Key go together")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, invalid("Cert", "%s", fmt.Errorf("the certificate to show cannot be read: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
