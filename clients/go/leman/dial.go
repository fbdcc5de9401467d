package leman

import (
	_ "embed"
	"net"
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
		return newRenewedCredentials(s.tls)
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
