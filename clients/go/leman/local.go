package leman

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	lemanv1 "leman.dev/go/leman/v1"
)

const lakeScheme = "leman-local"

// ConnectLocal opens the database in a folder of this machine through its running local services, which `leman up` or a
// Python program started. The client reads their addresses and token from the folder, and follows them when they
// restart. It starts no services: if none run, the error is UNAVAILABLE. Close [Database.Client] at the end.
//
// Options for addresses, tokens and certificates are refused.
func ConnectLocal(ctx context.Context, folder string, options ...Option) (*Database, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	s := &settings{patience: defaultPatience, contact: firstContact, logger: slog.Default()}
	for _, option := range options {
		option(s)
	}
	if s.wrong != nil {
		return nil, s.wrong
	}
	if s.tokens != nil || s.tls != nil || s.plaintext || s.services != (ServiceAddresses{}) || s.direct {
		return nil, invalid("options", "services of a local database say themselves where they are and what their token is")
	}
	found := &lake{folder: folder, file: filepath.Join(folder, "_leman", "service.json")}
	told, err := found.read()
	if err != nil {
		return nil, found.away(err.Error())
	}
	s.lake, s.tokens = found, found
	s.services = ServiceAddresses{Planner: "planner", Executor: "executor", CommitCoordinator: "commit_coordinator"}
	client, err := connect(ctx, "planner", s)
	if err != nil {
		return nil, err
	}
	if info, err := client.Info(ctx); err != nil || !told.isOf(info) {
		_ = client.Close()
		return nil, found.away("others answer at the address of its services now")
	}
	return client.Database(told.Database), nil
}

// lake identifies the services of a local database.
type lake struct{ folder, file string }

// serviceFile is the content of the file that the services write.
type serviceFile struct {
	Token             string `json:"token"`
	Planner           string `json:"planner"`
	Executor          string `json:"executor"`
	CommitCoordinator string `json:"commit_coordinator"`
	Database          string `json:"database"`
}

func (f serviceFile) address(service string) string {
	return map[string]string{"planner": f.Planner, "executor": f.Executor, "commit_coordinator": f.CommitCoordinator}[service]
}

// isOf returns true if the answer comes from the services that wrote this file. If they serve several databases, the
// file has no identity, and their addresses are compared instead.
func (f serviceFile) isOf(info *lemanv1.GetInfoResponse) bool {
	if info.GetDatabase() != "" {
		return info.GetDatabase() == f.Database
	}
	return info.GetPlannerAddress() == f.Planner && info.GetExecutorAddress() == f.Executor &&
		info.GetCommitCoordinatorAddress() == f.CommitCoordinator
}

func (l *lake) read() (told serviceFile, err error) {
	content, err := os.ReadFile(l.file)
	if err != nil {
		return told, err
	}
	if err := json.Unmarshal(content, &told); err != nil {
		return told, fmt.Errorf("%s: %w", l.file, err)
	}
	return told, nil
}

func (l *lake) away(why string) error {
	return &Error{
		Code:    codes.Unavailable,
		Message: fmt.Sprintf("no services run for %s: start them with leman up %s (%s)", l.folder, l.folder, why),
	}
}

// Token returns the token that the services currently require.
func (l *lake) Token(context.Context) (Token, error) {
	told, err := l.read()
	return Token{Value: told.Token}, err
}

// dial opens a connection to one of the services and follows its address.
func (l *lake) dial(service string, s *settings) (*grpc.ClientConn, error) {
	options := append(dialOptions(insecure.NewCredentials()), grpc.WithResolvers(l))
	return grpc.NewClient(lakeScheme+":///"+service, append(options, s.dial...)...)
}

// Scheme implements [resolver.Builder].
func (l *lake) Scheme() string { return lakeScheme }

// Build implements [resolver.Builder].
func (l *lake) Build(target resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	found := &lakeResolver{lake: l, service: target.Endpoint(), conn: conn}
	found.ResolveNow(resolver.ResolveNowOptions{})
	return found, nil
}

// lakeResolver gives gRPC the current address of a service.
type lakeResolver struct {
	lake    *lake
	service string
	conn    resolver.ClientConn
	lock    sync.Mutex
	known   string
}

// ResolveNow reads the address again; gRPC calls it when a connection fails. While the services are down, it reports
// nothing, and gRPC keeps trying the previous address.
func (r *lakeResolver) ResolveNow(resolver.ResolveNowOptions) {
	r.lock.Lock()
	defer r.lock.Unlock()
	told, err := r.lake.read()
	address := told.address(r.service)
	if err != nil || address == "" || address == r.known {
		return
	}
	r.known = address
	_ = r.conn.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: address}}})
}

// Close implements [resolver.Resolver].
func (r *lakeResolver) Close() {}
