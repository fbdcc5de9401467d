package leman

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/types/known/durationpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// live returns a database of real services.
func live(t *testing.T) *Database {
	t.Helper()
	endpoint := os.Getenv("LEMAN_ENDPOINT")
	if endpoint == "" {
		t.Skip("LEMAN_ENDPOINT names no services")
	}
	client, err := Connect(t.Context(), endpoint, WithToken(os.Getenv("LEMAN_TOKEN")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client.Database(os.Getenv("LEMAN_DATABASE"))
}

func filled(t *testing.T, db *Database, name string, rows int64) *Table {
	t.Helper()
	table, err := db.CreateTableFrom(t.Context(), name, Batches(numbers, batch(0, rows)))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func read(t *testing.T, table *Table, options ...ReadOption) []int64 {
	t.Helper()
	rows, err := table.Read(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return values(t, rows)
}

// A value that is larger than any message comes in pieces. The test that runs this one has made the table.
func TestLiveLargeValue(t *testing.T) {
	if os.Getenv("LEMAN_LARGE") == "" {
		t.Skip("LEMAN_LARGE names no table")
	}
	rows, err := live(t).Table(os.Getenv("LEMAN_LARGE")).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Release()
	var sizes []int
	for rows.Next() {
		values := rows.RecordBatch().Column(0).(*array.LargeBinary)
		for i := range values.Len() {
			sizes = append(sizes, len(values.Value(i)))
			check(t, bytes.Count(values.Value(i), []byte("x")) == len(values.Value(i)), "other bytes")
		}
	}
	check(t, rows.Err() == nil && slices.Equal(sizes, []int{300_000_000, 1}), "%v %v", sizes, rows.Err())
}

func TestLiveRows(t *testing.T) {
	db, ctx := live(t), t.Context()
	table := filled(t, db, "números", 100_000)
	described, err := table.Describe(ctx)
	check(t, err == nil && described.GetRowCount() == 100_000, "%v %v", described, err)
	before := described.GetVersion()

	check(t, slices.Equal(read(t, table), upTo(100_000)), "other rows")
	check(t, slices.Equal(read(t, table, Where("n >= 10"), Offset(5), Limit(3), BatchRows(2)), []int64{15, 16, 17}), "other rows")

	deleted, err := table.Delete(ctx, "n >= 3")
	check(t, err == nil && deleted.Rows == 99_997 && deleted.Version > before, "%v %v", deleted, err)
	check(t, len(read(t, table)) == 3 && len(read(t, table, AtVersion(before), Columns("n"))) == 100_000, "other rows")

	rows, err := table.Read(ctx, WithRowIDs(), WithRowAddresses())
	check(t, err == nil && len(rows.Schema().Fields()) == 3, "%v %v", rows, err)
	rows.Release()

	version, err := table.AddPlainColumns(ctx, arrow.Field{Name: "x", Type: arrow.BinaryTypes.String, Nullable: true})
	check(t, err == nil && version > deleted.Version, "%d %v", version, err)
	_, err = table.AlterPlainColumns(ctx, []*lemanv1.PlainColumnAlteration{Renamed("x", "y")})
	check(t, err == nil, "%v", err)
	schema, err := table.Schema(ctx)
	check(t, err == nil && schema.Field(1).Name == "y", "%v %v", schema, err)
	_, err = table.DropColumns(ctx, []string{"y"})
	check(t, err == nil, "%v", err)

	renamed, err := db.RenameTable(ctx, "números", "renamed")
	check(t, err == nil && len(read(t, renamed)) == 3, "%v", err)
	check(t, db.DropTable(ctx, "renamed") == nil, "the table cannot be dropped")
	_, err = db.OpenTable(ctx, "renamed")
	check(t, HasReason(err, lemanv1.ErrorReason_TABLE_NOT_FOUND), "%v", err)
}

func TestLiveJobs(t *testing.T) {
	db, ctx := live(t), t.Context()
	table := filled(t, db, "jobs", 10)
	column := SQLColumn("inverse", "100 / (n - 4)")
	column.ErrorPolicy = &lemanv1.ErrorPolicy{
		Rules: []*lemanv1.ErrorRule{{Action: lemanv1.ErrorRule_ACTION_SKIP}}, StoreErrors: true,
	}
	_, err := table.AddColumns(ctx, column)
	check(t, err == nil, "%v", err)
	plan, err := table.ExplainBackfill(ctx, "inverse", Where("n >= 0"))
	check(t, err == nil && plan.GetRowsToCompute() == 10, "%v %v", plan, err)

	_, err = table.AlterColumns(ctx, AlteredKeepingValues(column))
	check(t, err == nil, "%v", err)

	begun, err := table.Backfill(ctx, "inverse", Labels(map[string]string{"k": "é"}), Priority(3))
	check(t, err == nil, "%v", err)
	told := 0
	done, err := begun.Wait(ctx, OnProgress(func(*lemanv1.Progress) { told++ }))
	check(t, err == nil && done.GetState() == lemanv1.Job_STATE_DONE_WITH_ERRORS && told > 0, "%v %v", done, err)
	waited, err := begun.WaitFor(ctx, time.Minute)
	check(t, err == nil && waited.GetState() == done.GetState(), "%v %v", waited, err)

	failures, err := Collect(begun.Errors(ctx, OfColumn("inverse")))
	check(t, err == nil && len(failures) == 1 && failures[0].GetErrorType() == "SqlError", "%v %v", failures, err)
	states, err := table.RowStates(ctx, "inverse")
	check(t, err == nil && states.GetRowsFailed() == 1 && states.GetRowsComputed() == 9, "%v %v", states, err)
	rows, err := Collect(table.RowsInState(ctx, "inverse", lemanv1.RowState_ROW_STATE_FAILED))
	check(t, err == nil && len(rows) == 1 && rows[0].Address == failures[0].GetRowAddress(), "%v %v", rows, err)

	again, err := begun.Retry(ctx)
	check(t, err == nil, "%v", err)
	_, err = again.Wait(ctx)
	check(t, err == nil, "%v", err)
	_, err = again.SetPriority(ctx, 1)
	check(t, HasReason(err, lemanv1.ErrorReason_JOB_ENDED), "%v", err)
	found, err := Collect(db.Jobs(ctx, &lemanv1.JobFilter{Tables: []string{"jobs"}}, PageSize(1)))
	check(t, err == nil && len(found) == 2 && found[0].GetJobId() == again.ID(), "%v %v", found, err)
	check(t, again.Delete(ctx) == nil, "the job cannot be deleted")
	_, err = again.Get(ctx)
	check(t, HasReason(err, lemanv1.ErrorReason_JOB_NOT_FOUND), "%v", err)

	commits, err := Collect(table.Commits(ctx))
	check(t, err == nil && len(commits) > 0, "%v %v", commits, err)
	commit, err := table.Commit(ctx, commits[0].GetRequestIds()[0])
	check(t, err == nil && commit.GetVersion() == commits[0].GetVersion(), "%v %v", commit, err)
}

func TestLiveFunctionsAndViews(t *testing.T) {
	db, ctx := live(t), t.Context()
	filled(t, db, "base", 4)
	definition, err := SQLFunction("twice", "1", "n * 2", []string{"n"}, arrow.PrimitiveTypes.Int64)
	check(t, err == nil, "%v", err)
	created, err := db.RegisterFunction(ctx, definition)
	check(t, err == nil && created, "%v %v", created, err)
	entry, err := EntrypointFunction("root", "1", "math:sqrt", lemanv1.UdfDefinition_KIND_SCALAR,
		[]arrow.Field{{Name: "n", Type: arrow.Null}}, arrow.PrimitiveTypes.Float64)
	check(t, err == nil, "%v", err)
	_, err = db.RegisterFunction(ctx, entry)
	check(t, err == nil, "%v", err)
	functions, err := Collect(db.Functions(ctx))
	check(t, err == nil && len(functions) >= 2 && functions[0].GetName() == "root", "%v %v", functions, err)
	found, err := db.Function(ctx, "root", "")
	check(t, err == nil && found.GetDefinition().GetEntrypoint() == "math:sqrt", "%v %v", found, err)
	stored, err := db.UploadBundle(ctx, bytes.NewReader(make([]byte, 3<<20)))
	check(t, err == nil && stored, "%v %v", stored, err)

	view, err := db.CreateView(ctx, "seen", &lemanv1.ViewQuery{Source: &lemanv1.TableRef{Table: "base"}, Where: "n > 1"},
		MaxRowsPerViewFragment(1))
	check(t, err == nil, "%v", err)
	refresh, err := view.ExplainRefresh(ctx)
	check(t, err == nil && refresh.GetRows() == 2, "%v %v", refresh, err)
	begun, err := view.Refresh(ctx, Concurrency(1))
	check(t, err == nil, "%v", err)
	_, err = begun.Wait(ctx)
	check(t, err == nil, "%v", err)
	rows, err := view.Read(ctx)
	check(t, err == nil && slices.Equal(values(t, rows), []int64{2, 3}), "%v", err)
	opened, err := db.OpenView(ctx, "seen")
	check(t, err == nil && opened.Name() == "seen", "%v", err)
	_, err = db.OpenView(ctx, "base")
	check(t, HasReason(err, lemanv1.ErrorReason_NOT_A_VIEW), "%v", err)
	views, err := Collect(db.Views(ctx))
	check(t, err == nil && len(views) == 1 && views[0].GetRowsSet() == 2, "%v %v", views, err)
	check(t, HasReason(db.DropTable(ctx, "base"), lemanv1.ErrorReason_TABLE_IN_USE), "the table is not in use")
	check(t, db.DropTable(ctx, "base", Force()) == nil && db.DropView(ctx, "seen") == nil, "they stay")
}

func TestLiveCare(t *testing.T) {
	db, ctx := live(t), t.Context()
	table := filled(t, db, "care", 10)

	indices, err := table.OptimizeIndices(ctx)
	check(t, err == nil && len(indices) == 0, "%v %v", indices, err)
	collected, err := table.CollectGarbage(ctx, func(request *lemanv1.CollectGarbageRequest) {
		request.DryRun, request.OlderThan = true, durationpb.New(time.Hour)
	})
	check(t, err == nil && collected.GetFilesRemoved() == 0, "%v %v", collected, err)
	looked, err := Collect(db.Verify(ctx, ""))
	check(t, err == nil && len(looked) > 0 && looked[len(looked)-1].GetResumeToken() == "", "%v %v", looked, err)
	names, err := Collect(db.Tables(ctx, PageSize(1)))
	check(t, err == nil && slices.Contains(names, "care"), "%v %v", names, err)
	info, err := db.client.Info(ctx)
	check(t, err == nil && info.GetExecutorAddress() != "", "%v %v", info, err)

	client := db.client
	_, err = Collect(client.Databases(ctx))
	check(t, HasReason(err, lemanv1.ErrorReason_REGISTRY_NOT_SET), "%v", err)
	_, err = Connect(ctx, os.Getenv("LEMAN_ENDPOINT"), WithToken("not-the-token"))
	check(t, HasReason(err, lemanv1.ErrorReason_TOKEN_INVALID), "%v", err)
}

func TestLiveServicesThatAreCalledThemselves(t *testing.T) {
	name := live(t).Name()
	client, err := Connect(t.Context(), os.Getenv("LEMAN_ENDPOINT"), WithToken(os.Getenv("LEMAN_TOKEN")), WithDirectServices())
	check(t, err == nil, "%v", err)
	defer func() { _ = client.Close() }()
	check(t, len(client.direct) == 5, "%d of the services behind the executor are called themselves", len(client.direct))
	table := filled(t, client.Database(name), "direct", 3)
	check(t, slices.Equal(read(t, table), upTo(3)), "other rows")
}

// LEMAN_LAKE is the folder that the services were started for.
func TestLiveLocal(t *testing.T) {
	live(t)
	db, err := ConnectLocal(t.Context(), os.Getenv("LEMAN_LAKE"))
	check(t, err == nil, "%v", err)
	defer func() { _ = db.Client().Close() }()
	filled(t, db, "local", 3)
	check(t, slices.Equal(read(t, db.Table("local")), upTo(3)), "other rows")
	check(t, db.DropTable(t.Context(), "local") == nil, "the table cannot be dropped")
}

// A batch of odd types comes back as it went.
func TestLiveTypes(t *testing.T) {
	db, ctx := live(t), t.Context()
	odd := arrow.NewSchema([]arrow.Field{
		{Name: "día 日本", Type: arrow.BinaryTypes.LargeString, Nullable: true},
		{Name: "at", Type: &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "Europe/Zurich"}, Nullable: true},
		{Name: "vector", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), Nullable: true},
		{Name: "tree", Type: arrow.StructOf(arrow.Field{Name: "l", Type: arrow.ListOf(arrow.BinaryTypes.Binary), Nullable: true}),
			Nullable: true},
		{Name: "d", Type: &arrow.Decimal128Type{Precision: 20, Scale: 3}, Nullable: true},
	}, nil)
	sent, _, err := array.RecordFromJSON(memory.DefaultAllocator, odd, bytes.NewReader([]byte(
		`[{"día 日本": "ß", "at": "2024-02-29T12:00:00Z", "vector": [1.5, null], "tree": {"l": ["AAE="]}, "d": "-1.250"}, {}]`)))
	if err != nil {
		t.Fatal(err)
	}
	table, err := db.CreateTableFrom(ctx, "odd", Batches(odd, sent))
	check(t, err == nil, "%v", err)
	rows, err := table.Read(ctx)
	check(t, err == nil, "%v", err)
	for back, err := range rows.All() {
		check(t, err == nil && array.RecordEqual(back, sent), "%v: %v is not %v", err, back, sent)
	}
}
