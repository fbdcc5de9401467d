package leman

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	lemanv1 "leman.dev/go/leman/v1"
)

func TestOptionsThatDoNotGoTogetherAreRefused(t *testing.T) {
	folder := t.TempDir()
	for name, connect := range map[string]func() (*Client, error){
		"TLS and not": func() (*Client, error) {
			return Connect(t.Context(), "localhost:1", WithTLS(TLSFiles{}), WithPlaintext())
		},
		"no such CA": func() (*Client, error) {
			return Connect(t.Context(), "localhost:1", WithTLS(TLSFiles{CA: filepath.Join(folder, "ca.pem")}))
		},
		"half a certificate": func() (*Client, error) {
			return Connect(t.Context(), "localhost:1", WithTLS(TLSFiles{Cert: "me.pem"}))
		},
	} {
		_, err := connect()
		check(t, status.Code(err) == codes.InvalidArgument, "%s: %v", name, err)
	}
}

func TestWhatIsNoAddressIsToldWithWhatToDo(t *testing.T) {
	for told, endpoints := range map[string][]string{
		"there is no endpoint: give host:port":            {"", " "},
		"is not host:port, such as leman.internal:7443":   {"localhost", "a:", ":1", "::1:7443", "a b:1", "a:http", "a:1,", ","},
		"has no possible port: one is from 1 to 65535":    {"localhost:0", "localhost:99999", "localhost:1,b:99999999999999999999"},
		"leave http:// out and give localhost:1 (for TLS": {"http://localhost:1", "http://localhost:1/"},
	} {
		for _, endpoint := range endpoints {
			_, err := Connect(t.Context(), endpoint)
			check(t, status.Code(err) == codes.InvalidArgument && strings.Contains(err.Error(), told), "%q: %v", endpoint, err)
		}
	}
	hosts, err := hostsOf("a:1, [::1]:7443,a:1 ,a:1,dns:///a:1, dns:///[::1]:7443")
	check(t, err == nil && slices.Equal(hosts, []string{"a:1", "[::1]:7443"}), "%q: %v", hosts, err)
}

func TestAnAddressThatHangsIsNotWaitedFor(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	begun := time.Now()

	client, err := Connect(t.Context(), silent.Addr().String()+","+serve(t, nil).address)

	check(t, err == nil, "%v", err)
	check(t, time.Since(begun) < 4*time.Second, "it was waited for: %s", time.Since(begun))
	_ = client.Close()
}

func TestNobodyAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()

	_, err = Connect(t.Context(), listener.Addr().String(), WithFirstContact(200*time.Millisecond))

	check(t, status.Code(err) == codes.Unavailable, "%v", err)
}

func TestAnotherAddressTakesOver(t *testing.T) {
	first, second := serve(t, nil), serve(t, nil)
	client, err := Connect(t.Context(), first.address+", "+second.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	check(t, first.count("InfoService/GetInfo") == 1, "the first one was not called")

	first.server.Stop()
	_, err = client.Info(t.Context())

	check(t, err == nil && second.count("InfoService/GetInfo") == 1, "%v", err)
}

func TestServicesThatAreCalledThemselves(t *testing.T) {
	front := serve(t, nil)
	executor := serve(t, map[string]handler{"JobService/GetJob": unary(gotJob)})
	client := front.connected(WithServiceAddresses(ServiceAddresses{Executor: executor.address}))

	_, err := client.Database("lake").Job("j1").Get(t.Context())

	check(t, err == nil && executor.count("JobService/GetJob") == 1, "%v", err)
}

func TestServicesThatAnswerWhereTheEndpointNamesThemAreCalledThemselves(t *testing.T) {
	says := func(told *lemanv1.GetInfoResponse) map[string]handler {
		return map[string]handler{
			"JobService/GetJob": unary(gotJob),
			"InfoService/GetInfo": unary(func(context.Context, *lemanv1.GetInfoRequest) (*lemanv1.GetInfoResponse, error) {
				return told, nil
			}),
		}
	}
	executor := serve(t, says(&lemanv1.GetInfoResponse{Service: "executor"}))
	another := serve(t, says(&lemanv1.GetInfoResponse{Service: "another"}))
	front := serve(t, says(&lemanv1.GetInfoResponse{
		Service: "planner", PlannerAddress: "leman.example:1", ExecutorAddress: executor.address,
		CommitCoordinatorAddress: another.address,
	}))
	front.handlers["CommitService/ListCommits"] = unary(
		func(context.Context, *lemanv1.ListCommitsRequest) (*lemanv1.ListCommitsResponse, error) {
			return &lemanv1.ListCommitsResponse{}, nil
		})
	client := front.connected(WithDirectServices(), WithToken("secret"))
	db := client.Database("lake")

	_, err := db.Job("j1").Get(t.Context())
	check(t, err == nil && executor.shown("JobService/GetJob")[0] == "Bearer secret", "%v", err)
	_, err = Collect(db.Table("docs").Commits(t.Context()))
	check(t, err == nil && front.count("CommitService/ListCommits") == 1, "%v", err)

	executor.server.Stop()
	_, err = db.Job("j1").Get(t.Context())
	check(t, err == nil && front.count("JobService/GetJob") == 1, "%v", err)

	executor.start() // where it was
	for executor.count("JobService/GetJob") < 2 && err == nil {
		_, err = db.Job("j1").Get(t.Context())
	}
	check(t, err == nil, "%v", err)
}

func TestATokenThatIsRefusedIsRenewedOnce(t *testing.T) {
	holds := "Bearer second"
	var services *fake
	services = serve(t, map[string]handler{"JobService/GetJob": unary(
		func(ctx context.Context, request *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
			if shown := services.shown("JobService/GetJob"); shown[len(shown)-1] != holds {
				return nil, refusal(codes.Unauthenticated, "TOKEN_EXPIRED", 0)
			}
			return gotJob(ctx, request)
		})})
	given := []string{"first", "second", "third"}
	client := services.connected(WithTokenSource(TokenFunc(func(context.Context) (Token, error) {
		token := given[0]
		given = given[1:]
		return Token{Value: token}, nil
	})))
	found := client.Database("lake").Job("j1")

	_, err := found.Get(t.Context())
	check(t, err == nil, "%v", err)
	_, err = found.Get(t.Context())
	check(t, err == nil, "%v", err)
	shown := services.shown("JobService/GetJob")
	check(t, slices.Equal(shown, []string{"Bearer first", "Bearer second", "Bearer second"}), "%q", shown)

	holds = "none"
	_, err = found.Get(t.Context())
	check(t, HasReason(err, lemanv1.ErrorReason_TOKEN_EXPIRED), "%v", err)
	check(t, services.count("JobService/GetJob") == 5, "%q", services.shown("JobService/GetJob"))
}

func TestATokenThatStaysTheSameIsNotSentAgain(t *testing.T) {
	services := serve(t, map[string]handler{"JobService/GetJob": unary(
		func(context.Context, *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
			return nil, refusal(codes.Unauthenticated, "TOKEN_INVALID", 0)
		})})

	_, err := services.connected(WithToken("secret")).Database("lake").Job("j1").Get(t.Context())

	check(t, HasReason(err, lemanv1.ErrorReason_TOKEN_INVALID), "%v", err)
	check(t, services.count("JobService/GetJob") == 1, "sent again")
}

func TestATokenIsRenewedBeforeItExpires(t *testing.T) {
	services := serve(t, nil)
	asked := 0
	client := services.connected(WithTokenSource(TokenFunc(func(context.Context) (Token, error) {
		asked++
		return Token{"short", time.Now().Add(expiryMargin / 2)}, nil
	})))
	_, err := client.Info(t.Context())

	check(t, err == nil && asked == 2, "asked %d times: %v", asked, err)
}

func TestATokenFileThatChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	var services *fake
	services = serve(t, map[string]handler{"JobService/GetJob": unary(
		func(ctx context.Context, request *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
			if shown := services.shown("JobService/GetJob"); shown[len(shown)-1] != "Bearer second" {
				return nil, refusal(codes.Unauthenticated, "TOKEN_EXPIRED", 0)
			}
			return gotJob(ctx, request)
		})})
	client := services.connected(WithTokenSource(TokenFile(path)))
	write("second")

	_, err := client.Database("lake").Job("j1").Get(t.Context())

	check(t, err == nil, "%v", err)
}

func TestASourceWithoutATokenIsTheError(t *testing.T) {
	gone := errors.New("the vault is sealed")
	source := TokenFunc(func(context.Context) (Token, error) { return Token{}, gone })

	_, err := Connect(t.Context(), serve(t, nil).address, WithTokenSource(source))

	check(t, status.Code(err) == codes.Unauthenticated && errors.Is(err, gone), "%v", err)
}

// authority signs certificates.
type authority struct {
	t      *testing.T
	folder string
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, folder: t.TempDir()}
	a.cert, a.key = a.sign("ca", nil)
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }

// sign writes NAME.pem and NAME.key.
func (a *authority) sign(name string, ip net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: a.cert == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{ip},
	}
	if ip == nil {
		template.IPAddresses = nil
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return signed, key
}

// signAll signs a certificate for the services, of which it returns credentials that ask for one of callers, and "me".
func (a *authority) signAll() credentials.TransportCredentials {
	a.sign("me", nil)
	a.sign("server", net.IPv4(127, 0, 0, 1))
	pair, err := tls.LoadX509KeyPair(a.path("server.pem"), a.path("server.key"))
	if err != nil {
		a.t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(a.cert)
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
	})
}

func TestTLSAndCertificatesOfCallersThatAreRenewed(t *testing.T) {
	a := newAuthority(t)
	seen := make(chan *big.Int, 1)
	services := serve(t, map[string]handler{"JobService/GetJob": unary(
		func(ctx context.Context, request *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
			caller, _ := peer.FromContext(ctx)
			seen <- caller.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber
			return gotJob(ctx, request)
		})}, func(f *fake) { f.secured = a.signAll() })
	files := TLSFiles{CA: a.path("ca.pem"), Cert: a.path("me.pem"), Key: a.path("me.key")}
	found := services.connected(WithTLS(files), WithToken("secret")).Database("lake").Job("j1")

	_, err := found.Get(t.Context())
	check(t, err == nil, "%v", err)
	before := <-seen

	a.cert, a.key = nil, nil
	a.cert, a.key = a.sign("ca", nil)
	services.server.Stop()
	services.secured = a.signAll()
	services.start()
	_, err = found.Get(t.Context())
	check(t, err == nil, "%v", err)
	check(t, before.Cmp(<-seen) != 0, "the old certificate was shown")

	for name, unknown := range map[string]TLSFiles{"no certificate": {CA: files.CA}, "no trust": {Cert: files.Cert, Key: files.Key}} {
		_, err = Connect(t.Context(), services.address, WithTLS(unknown), WithFirstContact(300*time.Millisecond))
		check(t, status.Code(err) == codes.Unavailable, "%s: %v", name, err)
	}
}
