package leman

import (
	_ "embed"
	"net"
	"slices"
	"strconv"
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

// dial opens a connection to one address, or to the first of several (separated by commas) that answers. It sends
// nothing yet.
func dial(addresses string, s *settings) (*grpc.ClientConn, error) {
	hosts, err := hostsOf(addresses)
	if err != nil {
		return nil, err
	}
	if err := s.checkWay(hosts); err != nil {
		return nil, err
	}
	secured, err := transportCredentials(s)
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

const largestPort = 65535

// hostsOf returns the addresses in a list separated by commas, without duplicates.
func hostsOf(addresses string) ([]string, error) {
	if strings.TrimSpace(addresses) == "" {
		return nil, invalid("endpoint", "there is no endpoint: give host:port of a service, such as leman.internal:7443")
	}
	var hosts []string
	for address := range strings.SplitSeq(addresses, ",") {
		address = strings.TrimPrefix(strings.TrimSpace(address), "dns:///") // gRPC's own prefix
		if scheme, place, is := strings.Cut(address, "://"); is {
			return nil, invalid("endpoint", "%q is a URL: leave %s:// out and give %s (for TLS WithTLS)",
				address, scheme, strings.TrimRight(place, "/"))
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || strings.Trim(port, "0123456789") != "" || port == "" || strings.ContainsAny(host, " /@") {
			return nil, invalid("endpoint", "%q is not host:port, such as leman.internal:7443", address)
		}
		if number, err := strconv.Atoi(port); err != nil || number < 1 || number > largestPort {
			return nil, invalid("endpoint", "%q has no possible port: one is from 1 to %d", address, largestPort)
		}
		if !slices.Contains(hosts, address) {
			hosts = append(hosts, address)
		}
	}
	return hosts, nil
}

func dialOptions(secured credentials.TransportCredentials) []grpc.DialOption {
	quick := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(), // from DNS: the client has its own policy
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 5 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}
}

// failover resolves to several addresses; gRPC connects to the first one that answers.
func failover(hosts []string) resolver.Builder {
	builder := manual.NewBuilderWithScheme("leman")
	state := resolver.State{}
	for _, address := range hosts {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: address})
	}
	builder.InitialState(state)
	return builder
}

func transportCredentials(s *settings) (credentials.TransportCredentials, error) {
	if s.tls != nil {
		return newRenewedCredentials(s.tls)
	}
	return insecure.NewCredentials(), nil
}

// checkWay returns an error if a token would be sent to another machine unencrypted, or if options contradict each
// other.
func (s *settings) checkWay(hosts []string) error {
	if s.tls != nil && s.plaintext {
		return invalid("options", "WithTLS and WithPlaintext contradict each other: leave one of them out")
	}
	exposed := s.exposed(hosts)
	if s.tokens == nil || exposed == "" {
		return nil
	}
	return inTheClear(exposed)
}

// exposed returns the first address where a token would be readable on the way although the caller did not permit it,
// or "".
func (s *settings) exposed(hosts []string) string {
	if s.tls != nil || s.plaintext || s.lake != nil {
		return ""
	}
	for _, address := range hosts {
		if !isLoopback(address) {
			return address
		}
	}
	return ""
}

func inTheClear(address string) *Error {
	failed := invalid("endpoint", "%s is another machine, and without TLS anyone on the way reads the token: connect"+
		" WithTLS, or WithPlaintext where the network is protected", address)
	failed.Reason = ReasonPlaintextToken
	return failed
}

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}
