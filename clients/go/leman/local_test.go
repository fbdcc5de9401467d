package leman

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lemanv1 "leman.dev/go/leman/v1"
)

// ranFor starts services of a local database, and has them say where they are.
func ranFor(t *testing.T, folder, token string) (planner, executor *fake) {
	t.Helper()
	planner = serve(t, map[string]handler{"InfoService/GetInfo": unary(
		func(context.Context, *lemanv1.GetInfoRequest) (*lemanv1.GetInfoResponse, error) {
			return &lemanv1.GetInfoResponse{Database: "/data/lake"}, nil
		})})
	executor = serve(t, nil)
	executor.handlers["JobService/GetJob"] = unary(
		func(ctx context.Context, request *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
			if shown := executor.shown("JobService/GetJob"); shown[len(shown)-1] != "Bearer "+token {
				return nil, refusal(codes.Unauthenticated, "TOKEN_INVALID", 0)
			}
			return gotJob(ctx, request)
		})
	content, err := json.Marshal(serviceFile{
		Token: token, Planner: planner.address, Executor: executor.address, CommitCoordinator: planner.address,
		Database: "/data/lake",
	})
	check(t, err == nil, "%v", err)
	file := filepath.Join(folder, "_leman", "service.json")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700) == nil && os.WriteFile(file, content, 0o600) == nil, "cannot be written")
	return planner, executor
}

func TestALocalDatabaseSaysWhereItsServicesAre(t *testing.T) {
	folder := t.TempDir()
	planner, executor := ranFor(t, folder, "first")

	db, err := ConnectLocal(t.Context(), folder)
	check(t, err == nil, "%v", err)
	defer func() { _ = db.Client().Close() }()
	_, err = db.Job("j1").Get(t.Context())

	check(t, err == nil && db.Name() == "/data/lake", "%v", err)
	check(t, slices.Equal(executor.shown("JobService/GetJob"), []string{"Bearer first"}), "another token")

	planner.server.Stop()
	executor.server.Stop()
	check(t, os.Remove(filepath.Join(folder, "_leman", "service.json")) == nil, "cannot be removed")
	began := make(chan error, 1)
	go func() {
		_, err := db.Job("j1").Get(t.Context())
		began <- err
	}()
	_, anew := ranFor(t, folder, "second")

	check(t, <-began == nil, "they are not found again")
	shown := anew.shown("JobService/GetJob")
	check(t, slices.Equal(shown, []string{"Bearer first", "Bearer second"}), "%q", shown)
}

func TestServicesOfManyDatabasesAreToldByTheirAddresses(t *testing.T) {
	folder := t.TempDir()
	planner, executor := ranFor(t, folder, "token")
	answer := &lemanv1.GetInfoResponse{
		PlannerAddress: planner.address, ExecutorAddress: executor.address, CommitCoordinatorAddress: planner.address,
	}
	planner.handlers["InfoService/GetInfo"] = unary(
		func(context.Context, *lemanv1.GetInfoRequest) (*lemanv1.GetInfoResponse, error) { return answer, nil })

	db, err := ConnectLocal(t.Context(), folder)
	check(t, err == nil && db.Name() == "/data/lake", "%v", err)
	_ = db.Client().Close()

	answer = &lemanv1.GetInfoResponse{PlannerAddress: planner.address, ExecutorAddress: "127.0.0.1:1"}
	_, err = ConnectLocal(t.Context(), folder)
	check(t, status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "others answer"), "%v", err)
}

func TestNoServicesRunForALocalDatabase(t *testing.T) {
	folder := t.TempDir()
	_, err := ConnectLocal(t.Context(), folder)
	check(t, status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "leman up "+folder), "%v", err)

	planner, _ := ranFor(t, folder, "token")
	planner.handlers["InfoService/GetInfo"] = unary(
		func(context.Context, *lemanv1.GetInfoRequest) (*lemanv1.GetInfoResponse, error) {
			return &lemanv1.GetInfoResponse{Database: "/data/another"}, nil
		})
	_, err = ConnectLocal(t.Context(), folder)
	check(t, status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "others answer"), "%v", err)

	planner.server.Stop()
	_, err = ConnectLocal(t.Context(), folder, WithFirstContact(100*time.Millisecond))
	check(t, status.Code(err) == codes.Unavailable, "%v", err)

	file := filepath.Join(folder, "_leman", "service.json")
	check(t, os.WriteFile(file, []byte("{"), 0o600) == nil, "cannot be written")
	_, err = ConnectLocal(t.Context(), folder)
	check(t, status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "service.json"), "%v", err)

	_, err = ConnectLocal(t.Context(), folder, WithToken("mine"))
	check(t, status.Code(err) == codes.InvalidArgument, "%v", err)
}
