package leman

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	lemanv1 "leman.dev/go/leman/v1"
)

func TestTheRetryPolicyIsThePublishedOne(t *testing.T) {
	published, err := os.ReadFile("../../../protos/leman/v1/service_config.json")
	if err != nil {
		t.Fatal(err)
	}
	check(t, bytes.Equal(published, []byte(serviceConfig)), "service_config.json differs: run scripts/protogen")
}

func TestACallThatChangesNothingIsSentAgainByThePolicy(t *testing.T) {
	services := serve(t, map[string]handler{
		"JobService/GetJob": failing(3, status.Error(codes.Unavailable, "away"), unary(gotJob)),
	})
	db := services.connected(WithPatience(0)).Database("lake")

	found, err := db.Job("j1").Get(t.Context())

	check(t, err == nil && found.GetState() == lemanv1.Job_STATE_DONE, "%v %v", found, err)
	check(t, services.count("JobService/GetJob") == 4, "%d calls", services.count("JobService/GetJob"))
}

func TestPatienceGoesOnWhereThePolicyEnds(t *testing.T) {
	services := serve(t, map[string]handler{
		"JobService/GetJob": failing(6, status.Error(codes.Unavailable, "away"), unary(gotJob)),
	})

	_, err := services.connected().Database("lake").Job("j1").Get(t.Context())

	check(t, err == nil, "%v", err)
	check(t, services.count("JobService/GetJob") == 7, "%d calls", services.count("JobService/GetJob"))
}

func TestARemoteFunctionIsToldAsItIsStored(t *testing.T) {
	services := serve(t, map[string]handler{
		"CatalogService/RegisterUdf": unary(
			func(_ context.Context, request *lemanv1.RegisterUdfRequest) (*lemanv1.RegisterUdfResponse, error) {
				stored := request.GetDefinition()
				stored.Version = request.GetDatabase() + "-3f9c21ab04de"
				return &lemanv1.RegisterUdfResponse{Created: true, Definition: stored}, nil
			}),
	})

	stored, err := services.connected().Database("lake").RegisterRemote(t.Context(), "embed",
		[]string{"grpc://a:1", "grpc+tls://b:2"}, func(asked *lemanv1.UdfDefinition) {
			asked.InputColumns = []string{"body"}
			asked.GetRemoteFunction().Function = "embed_text"
		})

	check(t, err == nil && proto.Equal(stored, &lemanv1.UdfDefinition{
		Name: "embed", Version: "lake-3f9c21ab04de", Kind: lemanv1.UdfDefinition_KIND_REMOTE, InputColumns: []string{"body"},
		Code: &lemanv1.UdfDefinition_RemoteFunction{RemoteFunction: &lemanv1.RemoteFunction{
			Addresses: []string{"grpc://a:1", "grpc+tls://b:2"}, Function: "embed_text",
		}},
	}), "%v %v", stored, err)
}

func TestAMutationIsSentAgainUnderItsRequestID(t *testing.T) {
	var ids []string
	services := serve(t, map[string]handler{
		"JobService/CreateJob": unary(func(_ context.Context, request *lemanv1.CreateJobRequest) (*lemanv1.CreateJobResponse, error) {
			ids = append(ids, request.GetRequestId())
			if len(ids) < 3 { // done, and its reply lost
				return nil, status.Error(codes.Unavailable, "away")
			}
			return &lemanv1.CreateJobResponse{Job: job(lemanv1.Job_STATE_RUNNING)}, nil
		}),
	})
	table := services.connected().Database("lake").Table("docs")

	begun, err := table.Backfill(t.Context(), "words")

	check(t, err == nil && begun.ID() == "j1", "%v %v", begun, err)
	check(t, len(ids) == 3 && len(ids[0]) >= 16 && ids[0] == ids[1] && ids[1] == ids[2], "%q", ids)

	if _, err := table.Backfill(t.Context(), "words"); err != nil {
		t.Fatal(err)
	}
	check(t, ids[3] != ids[0], "two operations share the id %s", ids[3])
	if _, err := table.Backfill(WithRequestID(t.Context(), "mine"), "words"); err != nil {
		t.Fatal(err)
	}
	check(t, ids[4] == "mine", "the id was %s", ids[4])
	_, err = table.Backfill(WithRequestID(t.Context(), ""), "words")
	check(t, status.Code(err) == codes.InvalidArgument && len(ids) == 5, "%v", err)
}

func TestASecondLossOfTheConnectionEndsACall(t *testing.T) {
	var services *fake
	died := func(stream grpc.ServerStream) error {
		services.die()
		return stream.Context().Err()
	}
	services = serve(t, map[string]handler{
		"JobService/GetJob":     died,
		"JobService/CreateJob":  died,
		"JobService/WatchJob":   died,
		"TableService/ReadRows": died,
	})
	db := services.connected().Database("lake")

	for name, call := range map[string]func() error{
		"JobService/GetJob":    func() error { _, err := db.Job("j1").Get(t.Context()); return err },
		"JobService/CreateJob": func() error { _, err := db.Table("docs").Backfill(t.Context(), "words"); return err },
		"JobService/WatchJob": func() error {
			for _, err := range db.Job("j1").Watch(t.Context()) {
				return err
			}
			return nil
		},
		"TableService/ReadRows": func() error { _, err := db.Table("docs").Read(t.Context()); return err },
	} {
		err := call()
		check(t, status.Code(err) == codes.Unavailable, "%s: %v", name, err)
		check(t, services.count(name) == mostLosses, "%s: %d calls", name, services.count(name))
	}
}

func TestACallOutlastsARestart(t *testing.T) {
	services := serve(t, map[string]handler{"JobService/GetJob": unary(gotJob)})
	client := services.connected()
	services.server.Stop()
	down := make(chan error)
	go func() {
		_, err := client.Database("lake").Job("j1").Get(t.Context())
		down <- err
	}()
	services.start()

	check(t, <-down == nil, "the call failed")
}

func TestWhatIsWrongIsNotSentAgain(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.Aborted, codes.FailedPrecondition} {
		services := serve(t, map[string]handler{"TableService/DeleteRows": func(grpc.ServerStream) error { return refusal(code, "X", 0) }})

		_, err := services.connected().Database("lake").Table("docs").Delete(t.Context(), "true")

		check(t, status.Code(err) == code, "%v", err)
		check(t, services.count("TableService/DeleteRows") == 1, "%s: sent again", code)
	}
}

func TestTheDelayThatServicesAskForIsKept(t *testing.T) {
	const delay = 150 * time.Millisecond
	deleted := unary(func(context.Context, *lemanv1.DeleteRowsRequest) (*lemanv1.DeleteRowsResponse, error) {
		return &lemanv1.DeleteRowsResponse{RowsDeleted: 3}, nil
	})
	busy := refusal(codes.ResourceExhausted, "COMMIT_QUEUE_FULL", delay)
	services := serve(t, map[string]handler{"TableService/DeleteRows": failing(1, busy, deleted)})
	table := services.connected().Database("lake").Table("docs")

	begun := time.Now()
	found, err := table.Delete(t.Context(), "true")

	check(t, err == nil && found.Rows == 3, "%v %v", found, err)
	check(t, time.Since(begun) >= delay, "sent again after %s", time.Since(begun))
}

func TestAnErrorHasAllThatTheServicesSay(t *testing.T) {
	services := serve(t, map[string]handler{
		"CatalogService/DescribeTable": func(grpc.ServerStream) error {
			return refusal(codes.NotFound, "TABLE_NOT_FOUND", 2*time.Second)
		},
	})

	_, err := services.connected().Database("lake").OpenTable(t.Context(), "docs")

	var failed *Error
	check(t, errors.As(err, &failed), "%T", err)
	check(t, failed.Code == codes.NotFound && failed.Reason == "TABLE_NOT_FOUND", "%v", failed)
	check(t, failed.ErrorReason() == lemanv1.ErrorReason_TABLE_NOT_FOUND, "%v", failed.ErrorReason())
	check(t, HasReason(err, lemanv1.ErrorReason_TABLE_NOT_FOUND), "%v", err)
	check(t, failed.Metadata["table"] == "docs" && failed.RetryDelay == 2*time.Second, "%v", failed)
	check(t, len(failed.Fields) == 1 && failed.Fields[0] == FieldViolation{"table", "no"}, "%v", failed.Fields)
	check(t, failed.Method == "/leman.v1.CatalogService/DescribeTable" && failed.RequestID != "", "%v", failed)
	check(t, len(status.Convert(err).Details()) == 3, "%v", status.Convert(err))
	check(t, strings.Contains(err.Error(), "NotFound (TABLE_NOT_FOUND): what was wrong"), "%s", err)
}

func TestACallThatAProxyCutIsOfServicesThatAreAway(t *testing.T) {
	told, err := status.New(codes.Internal, cutByProxy).WithDetails(&errdetails.ErrorInfo{Reason: "INTERNAL_BUG"})
	check(t, err == nil, "%v", err)
	for _, one := range []struct {
		err  error
		code codes.Code
	}{
		{status.Error(codes.Internal, cutByProxy), codes.Unavailable},
		{status.Error(codes.Unknown, cutByProxy), codes.Unavailable},
		{status.Error(codes.Internal, "grpc: failed to unmarshal the received message"), codes.Internal},
		{told.Err(), codes.Internal},
	} {
		found := asError("", "", one.err)
		check(t, found.Code == one.code, "%v is %v", one.err, found.Code)
	}
}

func TestServicesThatStayAwayEndACallAfterPatience(t *testing.T) {
	services := serve(t, nil)
	client := services.connected(WithPatience(1500 * time.Millisecond))
	services.server.Stop()

	_, read := client.Database("lake").Job("j1").Get(t.Context())
	_, changed := client.Database("lake").Table("docs").Delete(t.Context(), "true")

	for _, err := range []error{read, changed} {
		check(t, status.Code(err) == codes.Unavailable, "%v", err)
	}
}

func TestContextsEndCalls(t *testing.T) {
	services := serve(t, map[string]handler{"JobService/GetJob": func(stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return stream.Context().Err()
	}})
	found := services.connected().Database("lake").Job("j1")

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := found.Get(short)
	check(t, errors.Is(err, context.DeadlineExceeded) && status.Code(err) == codes.DeadlineExceeded, "%v", err)

	cancelled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = found.Get(cancelled)
	check(t, errors.Is(err, context.Canceled) && status.Code(err) == codes.Canceled, "%v", err)
}

func TestACallHasADeadlineOfItsOwn(t *testing.T) {
	var left time.Duration
	services := serve(t, map[string]handler{"JobService/GetJob": unary(
		func(ctx context.Context, request *lemanv1.GetJobRequest) (*lemanv1.GetJobResponse, error) {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return gotJob(ctx, request)
		})})

	if _, err := services.connected().Database("lake").Job("j1").Get(t.Context()); err != nil {
		t.Fatal(err)
	}

	check(t, left > 4*time.Minute && left <= 5*time.Minute, "%s were left", left)
}

// Every mutation of leman.v1 gets a request id, also through the stubs.
func TestEveryMutationHasARequestID(t *testing.T) {
	var request atomic.Value
	services := serve(t, nil)
	client := services.connected()
	mutations := 0
	protoregistry.GlobalFiles.RangeFilesByPackage("leman.v1", func(file protoreflect.FileDescriptor) bool {
		for service := range all(file.Services().Len(), file.Services().Get) {
			for method := range all(service.Methods().Len(), service.Methods().Get) {
				name := "/" + string(service.FullName()) + "/" + string(method.Name())
				field := method.Input().Fields().ByName(requestIDField)
				if facts := factsOf(name); facts.requestID == nil {
					check(t, facts.repeatable || method.IsStreamingClient(), "%s may not be sent again", name)
					continue
				}
				mutations++
				services.handlers[strings.TrimPrefix(name, "/leman.v1.")] = func(stream grpc.ServerStream) error {
					received := dynamicpb.NewMessage(method.Input())
					if err := stream.RecvMsg(received); err != nil {
						return err
					}
					request.Store(received.Get(field).String())
					return stream.SendMsg(dynamicpb.NewMessage(method.Output()))
				}
				sent := dynamicpb.NewMessage(method.Input())
				if err := client.Invoke(t.Context(), name, sent, dynamicpb.NewMessage(method.Output())); err != nil {
					t.Fatalf("%s: %s", name, err)
				}
				check(t, len(request.Load().(string)) >= 16, "%s had the id %q", name, request.Load())
				check(t, proto.Size(sent) == 0, "%s: the caller's message was changed", name)
			}
		}
		return true
	})
	check(t, mutations >= 15, "only %d mutations", mutations)
}

func all[T any](n int, get func(int) T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for i := range n {
			if !yield(get(i)) {
				return
			}
		}
	}
}

func TestStubsHaveTheTokenAndTheErrors(t *testing.T) {
	services := serve(t, map[string]handler{"JobService/CancelJob": func(grpc.ServerStream) error {
		return refusal(codes.NotFound, "JOB_NOT_FOUND", 0)
	}})
	client := services.connected(WithToken("secret"))

	_, err := lemanv1.NewJobServiceClient(client).CancelJob(t.Context(), &lemanv1.CancelJobRequest{})

	check(t, HasReason(err, lemanv1.ErrorReason_JOB_NOT_FOUND), "%v", err)
	check(t, services.shown("JobService/CancelJob")[0] == "Bearer secret", "%q", services.shown("JobService/CancelJob"))
}

func TestAClosedClientSaysSo(t *testing.T) {
	client := serve(t, nil).connected()
	if err := errors.Join(client.Close(), client.Close()); err != nil {
		t.Fatal(err)
	}

	_, err := client.Info(t.Context())

	var failed *Error
	check(t, errors.As(err, &failed) && failed.Reason == ReasonClosed, "%v", err)
}
