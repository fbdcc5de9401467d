package leman

import (
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

const maxMessage = 64 << 20

// serviceConfig is the published retry policy: a copy of protos/leman/v1/service_config.json.
//
//go:embed service_config.json
var serviceConfig string

// dial opens a connection to one address, or to the first of several (separated by commas) that answers. Nothing is
// sent yet.
func dial(addresses string, s *settings) (*grpc.ClientConn, error) {
	hosts := strings.Split(addresses, ",")
	for i, address := range hosts {
		hosts[i] = strings.TrimSpace(address)
		if host, port, err := net.SplitHostPort(hosts[i]); err != nil || host == "" || port == "" {
			return nil, invalid("endpoint", "%q is not host:port, such as leman.internal:7443", address)
		}
	}
	secured, err := transportCredentials(hosts, s)
	if err != nil {
		return nil, err
	}
	target, options := "dns:///"+hosts[0], dialOptions(secured)
	if len(hosts) > 1 {
		target = "leman:///" + hosts[0]
		options = append(options, grpc.WithResolvers(failover(hosts)))
	}
	conn, err := grpc.NewClient(target, append(options, s.dial...)...)
	if err != nil {
		return nil, invalid("endpoint", "%s cannot be called: %s", addresses, err)
	}
	return conn, nil
}

func dialOptions(secured credentials.TransportCredentials) []grpc.DialOption {
	quick := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(), // of the name service: the policy is ours
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}
}

// failover resolves to several addresses, of which gRPC calls the first that answers.
func failover(hosts []string) resolver.Builder {
	builder := manual.NewBuilderWithScheme("leman")
	state := resolver.State{}
	for _, address := range hosts {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: address})
	}
	builder.InitialState(state)
	return builder
}

func transportCredentials(hosts []string, s *settings) (credentials.TransportCredentials, error) {
	if s.tls != nil {
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(config), nil
	}
	for _, address := range hosts {
		if !s.plaintext && !isLoopback(address) {
			return nil, invalid("endpoint", "%s is another machine: connect WithTLS, or WithPlaintext where others may"+
				" read along", address)
		}
	}
	return insecure.NewCredentials(), nil
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
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
		if _, err := f.pair(); err != nil {
			return nil, invalid("Cert", "%s", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() }
	}
	return config, nil
}

func (f TLSFiles) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate to show cannot be read: %w", err)
	}
	return &pair, nil
}
