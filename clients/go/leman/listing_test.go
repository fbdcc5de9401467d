package leman

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	lemanv1 "leman.dev/go/leman/v1"
)

// paged answers with three pages of two items, whatever the listing. The first has a warning where it can.
func paged[Q, P proto.Message](items protoreflect.Name, request Q, page P) handler {
	return func(stream grpc.ServerStream) error {
		asked := proto.Clone(request)
		if err := stream.RecvMsg(asked); err != nil {
			return err
		}
		token := asked.ProtoReflect().Get(asked.ProtoReflect().Descriptor().Fields().ByName("page_token")).String()
		n, _ := strconv.Atoi(token)
		answer := proto.Clone(page).ProtoReflect()
		fields := answer.Descriptor().Fields()
		list := answer.Mutable(fields.ByName(items)).List()
		for range 2 {
			switch fields.ByName(items).Kind() {
			case protoreflect.StringKind:
				list.Append(protoreflect.ValueOfString("name"))
			case protoreflect.Int64Kind:
				list.Append(protoreflect.ValueOfInt64(7))
			default:
				list.Append(list.NewElement())
			}
		}
		if warnings := fields.ByName("warnings"); warnings != nil && n == 0 {
			answer.Mutable(warnings).List().Append(protoreflect.ValueOfString("something is damaged"))
		}
		if n < 2 {
			answer.Set(fields.ByName("next_page_token"), protoreflect.ValueOfString(strconv.Itoa(n+1)))
		}
		return stream.SendMsg(answer.Interface())
	}
}

func TestEveryListingGoesOverAllPages(t *testing.T) {
	services := serve(t, map[string]handler{
		"CatalogService/ListTables": paged("tables", &lemanv1.ListTablesRequest{}, &lemanv1.ListTablesResponse{}),
		"CatalogService/ListUdfs":   paged("definitions", &lemanv1.ListUdfsRequest{}, &lemanv1.ListUdfsResponse{}),
		"CatalogService/ListMaterializedViews": paged("views",
			&lemanv1.ListMaterializedViewsRequest{}, &lemanv1.ListMaterializedViewsResponse{}),
		"CommitService/ListCommits":     paged("commits", &lemanv1.ListCommitsRequest{}, &lemanv1.ListCommitsResponse{}),
		"DatabaseService/ListDatabases": paged("databases", &lemanv1.ListDatabasesRequest{}, &lemanv1.ListDatabasesResponse{}),
		"JobService/ListJobs":           paged("jobs", &lemanv1.ListJobsRequest{}, &lemanv1.ListJobsResponse{}),
		"JobService/ListJobErrors":      paged("errors", &lemanv1.ListJobErrorsRequest{}, &lemanv1.ListJobErrorsResponse{}),
		"JobService/GroupJobErrors":     paged("groups", &lemanv1.GroupJobErrorsRequest{}, &lemanv1.GroupJobErrorsResponse{}),
		"PlannerService/GetRowStates":   paged("row_addresses", &lemanv1.GetRowStatesRequest{}, &lemanv1.GetRowStatesResponse{}),
	})
	var log bytes.Buffer
	client := services.connected(WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	db := client.Database("lake")
	table, ctx := db.Table("docs"), t.Context()
	listings := map[string]func() (int, error){
		"CatalogService/ListTables":            counted(db.Tables(ctx)),
		"CatalogService/ListUdfs":              counted(db.Functions(ctx)),
		"CatalogService/ListMaterializedViews": counted(db.Views(ctx)),
		"CommitService/ListCommits":            counted(table.Commits(ctx)),
		"DatabaseService/ListDatabases":        counted(client.Databases(ctx, PageSize(2))),
		"JobService/ListJobs":                  counted(db.Jobs(ctx, nil, OldestFirst())),
		"JobService/ListJobErrors":             counted(db.Job("j1").Errors(ctx, PlacesOnly(), OfColumn("words"))),
		"JobService/GroupJobErrors":            counted(db.Job("j1").ErrorGroups(ctx, GroupsOfColumn("words"), Examples(0))),
		"PlannerService/GetRowStates":          counted(table.RowsInState(ctx, "words", lemanv1.RowState_ROW_STATE_FAILED)),
	}
	for name, count := range listings {
		found, err := count()
		check(t, err == nil && found == 6, "%s: %d items: %v", name, found, err)
		check(t, services.count(name) == 3, "%s: %d calls", name, services.count(name))
	}
	check(t, strings.Count(log.String(), "something is damaged") == 3, "%s", log.String())

	for range db.Tables(ctx) {
		break
	}
	check(t, services.count("CatalogService/ListTables") == 4, "a page was asked for that nobody wanted")
}

func counted[T any](items func(func(T, error) bool)) func() (int, error) {
	return func() (int, error) {
		all, err := Collect(items)
		return len(all), err
	}
}

func TestAListingEndsWithItsError(t *testing.T) {
	services := serve(t, map[string]handler{"CatalogService/ListTables": func(grpc.ServerStream) error {
		return refusal(codes.InvalidArgument, "BAD_DATABASE", 0)
	}})

	_, err := Collect(services.connected().Database("").Tables(t.Context()))

	check(t, HasReason(err, lemanv1.ErrorReason_BAD_DATABASE), "%v", err)
}

func TestAVerificationGoesOnBehindItsLastToken(t *testing.T) {
	var asked []string
	services := serve(t, map[string]handler{"CommitService/VerifyDatabase": func(stream grpc.ServerStream) error {
		request := &lemanv1.VerifyDatabaseRequest{}
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		asked = append(asked, request.GetResumeToken())
		n, _ := strconv.Atoi(request.GetResumeToken())
		if n == 3 {
			return stream.SendMsg(&lemanv1.VerifyDatabaseResponse{})
		}
		_ = stream.SendMsg(&lemanv1.VerifyDatabaseResponse{ResumeToken: strconv.Itoa(n + 1)})
		return status.Error(codes.Unavailable, "draining")
	}})
	all := services.connected().Database("lake").Verify(t.Context(), "1")

	for range 2 {
		asked = nil
		messages, err := Collect(all)
		check(t, err == nil && len(messages) == 3, "%v %v", messages, err)
		check(t, strings.Join(asked, ",") == "1,2,3", "%q", asked)
	}
}

func TestOptionsOfJobs(t *testing.T) {
	var backfill, refresh *lemanv1.CreateJobRequest
	var retry *lemanv1.RetryJobRequest
	services := serve(t, map[string]handler{
		"JobService/CreateJob": unary(func(_ context.Context, request *lemanv1.CreateJobRequest) (*lemanv1.CreateJobResponse, error) {
			if request.GetBackfill() != nil {
				backfill = request
			} else {
				refresh = request
			}
			return &lemanv1.CreateJobResponse{Job: job(lemanv1.Job_STATE_PENDING)}, nil
		}),
		"JobService/RetryJob": unary(func(_ context.Context, request *lemanv1.RetryJobRequest) (*lemanv1.RetryJobResponse, error) {
			retry = request
			return &lemanv1.RetryJobResponse{Job: job(lemanv1.Job_STATE_PENDING)}, nil
		}),
	})
	db, ctx := services.connected().Database("lake"), t.Context()
	labels, env := Labels(map[string]string{"team": "search"}), Env(map[string]string{"API_KEY": "k"})

	begun, err := db.Table("docs").Backfill(ctx, "words", Where("n > 1"), AtVersion(3), Concurrency(2), Using("f", "2"),
		labels, env, Priority(5), BackfillFunc(func(spec *lemanv1.BackfillSpec) { spec.FailedOnly = true }))
	check(t, err == nil, "%v", err)
	spec := backfill.GetBackfill()
	check(t, spec.GetWhere() == "n > 1" && spec.GetReadVersion() == 3 && spec.GetConcurrency() == 2, "%v", spec)
	check(t, spec.GetUdf().GetVersion() == "2" && spec.GetFailedOnly() && spec.GetColumn() == "words", "%v", spec)
	check(t, backfill.GetLabels()["team"] == "search" && backfill.GetPriority() == 5, "%v", backfill)
	check(t, len(backfill.GetEnv()) == 1 && backfill.GetEnv()["API_KEY"] == "k", "%v", backfill)

	full := RefreshPolicy(lemanv1.RefreshSpec_POLICY_FULL)
	_, err = db.View("adults").Refresh(ctx, SourceVersion(4), full, Concurrency(3), labels, env, Priority(-1))
	check(t, err == nil, "%v", err)
	wanted := refresh.GetRefresh()
	check(t, wanted.GetSrcVersion() == 4 && wanted.GetPolicy() == 3 && wanted.GetConcurrency() == 3, "%v", wanted)
	check(t, refresh.GetEnv()["API_KEY"] == "k" && refresh.GetPriority() == -1 && wanted.GetView().GetTable() == "adults", "%v", refresh)

	_, err = begun.Retry(ctx, Using("f", "3"), KeepOthers(), labels, env, Priority(1))
	check(t, err == nil, "%v", err)
	check(t, retry.GetEnv()["API_KEY"] == "k" && retry.GetUdf().GetVersion() == "3" && retry.GetKeepOthers() && retry.GetPriority() == 1, "%v", retry)
	check(t, retry.GetJobId() == "j1" && retry.GetDatabase() == "lake" && retry.GetLabels()["team"] == "search", "%v", retry)
}
