package functions

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestStopAnswersTheBatchAndSendsTheClientAway(t *testing.T) {
	began, goOn := make(chan bool), make(chan bool)
	server := New()
	AddScalar(server, "waits", "n", func(_ context.Context, n int64) (int64, error) {
		began <- true
		<-goOn
		return n, nil
	}, Version("1"))
	address, stop := served(t, server)
	client := connected(t, address, insecure.NewCredentials())
	idle := ask(t, client, "waits", "1", arrow.NewSchema(int64s.Fields(), nil))
	busy := ask(t, client, "waits", "1", int64s)
	busy.send(7)
	busy.send(8)
	idle.send()
	told, err := idle.receive()
	check(t, err == nil && told == "[]", "%s %v", told, err)
	<-began

	stopped := make(chan error)
	go func() { stopped <- stop() }()
	_, err = idle.receive()
	check(t, status.Code(err) == codes.Unavailable, "%v", err)
	goOn <- true

	told, err = busy.receive()
	check(t, err == nil && told == "[7]", "%s %v", told, err)
	_, err = busy.receive()
	check(t, status.Code(err) == codes.Unavailable, "%v", err)
	check(t, <-stopped == nil, "it did not stop well")
}

func TestAStopWaitsNoLongerThanItsGrace(t *testing.T) {
	began := make(chan bool)
	server := New(WithGrace(time.Millisecond))
	AddScalar(server, "waits", "n", func(ctx context.Context, _ int64) (int64, error) {
		began <- true
		<-ctx.Done()
		return 0, ctx.Err()
	}, Version("1"))
	address, stop := served(t, server)
	calls := ask(t, connected(t, address, insecure.NewCredentials()), "waits", "1", int64s)
	calls.send(1)
	<-began

	check(t, stop() == nil, "it did not stop well")
}

func TestATokenCheckIsAskedForEveryCall(t *testing.T) {
	var shown []string
	server := New(WithTokenCheck(func(_ context.Context, token string) bool {
		shown = append(shown, token)
		return token == "right"
	}))
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())

	for header, code := range map[string]codes.Code{
		"": codes.Unauthenticated, "Bearer wrong": codes.Unauthenticated, "Basic right": codes.Unauthenticated,
		"Bearer right": codes.OK, "bearer right": codes.OK,
	} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		actions, err := client.ListActions(ctx, &flight.Empty{})
		check(t, err == nil, "%v", err)
		_, err = actions.Recv()
		check(t, status.Code(err) == code, "%q: %v", header, err)
		if code == codes.OK {
			_, err = actions.Recv()
			check(t, errors.Is(err, io.EOF), "%v", err)
		}
	}
	slices.Sort(shown)
	check(t, slices.Equal(shown, []string{"", "", "right", "right", "wrong"}), "%v", shown)
}

func TestTLSAndCertificatesOfCallers(t *testing.T) {
	cert, key := certificate(t)
	server := New(WithTLS(TLSFiles{Cert: cert, Key: key, ClientCA: cert}))
	server.Add("f", int64s.Fields(), arrow.PrimitiveTypes.Int64, nothing, Version("1"))
	address, _ := served(t, server)
	pool := x509.NewCertPool()
	content, err := os.ReadFile(cert)
	check(t, err == nil && pool.AppendCertsFromPEM(content), "%v", err)
	pair, err := tls.LoadX509KeyPair(cert, key)
	check(t, err == nil, "%v", err)

	told := func(config *tls.Config) error {
		results, err := connected(t, address, credentials.NewTLS(config)).
			DoAction(t.Context(), &flight.Action{Type: describe})
		if err != nil {
			return err
		}
		for err == nil {
			_, err = results.Recv()
		}
		return err
	}
	check(t, errors.Is(told(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}), io.EOF), "it is refused")
	check(t, status.Code(told(&tls.Config{RootCAs: pool})) == codes.Unavailable, "it is served without a certificate")

	newer, newerKey := certificate(t)
	check(t, os.Rename(newer, cert) == nil, "it cannot be replaced")
	check(t, errors.Is(told(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}), io.EOF), "half renewed")
	check(t, os.Rename(newerKey, key) == nil, "it cannot be replaced")
	content, err = os.ReadFile(cert)
	check(t, err == nil && pool.AppendCertsFromPEM(content), "%v", err)
	renewed, err := tls.LoadX509KeyPair(cert, key)
	check(t, err == nil, "%v", err)
	check(t, errors.Is(told(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{renewed}}), io.EOF), "not renewed")
	old := told(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}})
	check(t, status.Code(old) == codes.Unavailable, "a certificate of before is believed: %v", old)
}

func TestServeTellsWhatIsWrong(t *testing.T) {
	ctx := t.Context()
	cert, _ := certificate(t)
	for _, options := range [][]Option{
		{WithToken("")},
		{WithTokenCheck(nil)},
		{WithTLS(TLSFiles{Cert: cert, Key: cert})},
		{WithTLS(TLSFiles{Cert: cert, Key: cert, ClientCA: "/none"})},
	} {
		check(t, New(options...).Serve(ctx, "127.0.0.1:0") != nil, "it serves")
	}
	check(t, New().Serve(ctx, "127.0.0.1:no") != nil, "it serves")
}
