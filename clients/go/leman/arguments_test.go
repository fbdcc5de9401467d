package leman

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc/codes"
)

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

func TestWhatCannotBeIsRefusedByItsNameBeforeAnythingIsSent(t *testing.T) {
	services := serve(t, nil)
	client, ctx, none := services.connected(), t.Context(), context.Context(nil)
	asked := services.count("InfoService/GetInfo")
	db := client.Database("lake")
	table, view, job := db.Table("docs"), db.View("v"), db.Job("j1")
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	rows := Batches(schema)
	few := MaxRowsPerFragment(-1)
	noReader := Reopened(func() (array.RecordReader, error) { return nil, nil })

	for what, one := range map[string]struct {
		names string
		err   error
	}{
		"Connect, option":             {"options", second(Connect(ctx, services.address, nil))},
		"Connect, context":            {"ctx", second(Connect(none, services.address))},
		"ConnectLocal, option":        {"options", second(ConnectLocal(ctx, t.TempDir(), nil))},
		"ConnectLocal, context":       {"ctx", second(ConnectLocal(none, t.TempDir()))},
		"WithToken, empty":            {"token", second(Connect(ctx, services.address, WithToken("")))},
		"WithTokenSource, nil":        {"source", second(Connect(ctx, services.address, WithTokenSource(nil)))},
		"WithTokenSource, no func":    {"source", second(Connect(ctx, services.address, WithTokenSource(TokenFunc(nil))))},
		"WithPatience, negative":      {"patience", second(Connect(ctx, services.address, WithPatience(-5)))},
		"ConnectLocal, patience":      {"patience", second(ConnectLocal(ctx, t.TempDir(), WithPatience(-5)))},
		"WithFirstContact, none":      {"limit", second(Connect(ctx, services.address, WithFirstContact(0)))},
		"WithLogger, nil":             {"logger", second(Connect(ctx, services.address, WithLogger(nil)))},
		"WithTLSConfig, nil":          {"config", second(Connect(ctx, services.address, WithTLSConfig(nil)))},
		"Info, context":               {"ctx", second(client.Info(none))},
		"Read, option":                {"options", second(table.Read(ctx, nil))},
		"Read, func of none":          {"options", second(table.Read(ctx, Limit(1), readFunc(nil)))},
		"Read, context":               {"ctx", second(table.Read(none))},
		"Append, option":              {"options", second(table.Append(ctx, rows, nil))},
		"Append, rows in a fragment":  {"max_rows_per_fragment", second(table.Append(ctx, rows, few))},
		"CreateTableFrom, fragments":  {"max_rows_per_fragment", second(db.CreateTableFrom(ctx, "t", rows, Appending(few)))},
		"CreateView, fragments":       {"max_rows_per_fragment", second(db.CreateView(ctx, "v", nil, MaxRowsPerViewFragment(-1)))},
		"Read, version":               {"version", second(table.Read(ctx, AtVersion(-1)))},
		"Backfill, version":           {"read_version", second(table.Backfill(ctx, "c", AtVersion(-1)))},
		"Backfill, no function":       {"function", second(table.Backfill(ctx, "c", Using("", "")))},
		"Retry, no function":          {"function", second(job.Retry(ctx, Using("", "1")))},
		"Refresh, version":            {"src_version", second(view.Refresh(ctx, SourceVersion(-1)))},
		"Watch, after":                {"after", second(Collect(job.Watch(ctx, After(-1))))},
		"Wait, after":                 {"after", second(job.Wait(ctx, After(-1)))},
		"Append, context":             {"ctx", second(table.Append(none, rows))},
		"Append, batch":               {"batches", second(table.Append(ctx, Batches(schema, nil)))},
		"Append, schema":              {"schema", second(table.Append(ctx, Batches(nil)))},
		"Append, Source{}":            {"rows", second(table.Append(ctx, Source{}))},
		"Append, Reopened(nil)":       {"rows", second(table.Append(ctx, Reopened(nil)))},
		"Append, Reader(nil)":         {"rows", second(table.Append(ctx, Reader(nil)))},
		"Append, opened to nil":       {"rows", second(table.Append(ctx, noReader))},
		"Merge, Source{}":             {"rows", second(table.Merge(ctx, []string{"n"}, Source{}))},
		"Merge, rule":                 {"rules", second(table.Merge(ctx, []string{"n"}, rows, nil))},
		"Merge, context":              {"ctx", second(table.Merge(none, []string{"n"}, rows))},
		"CreateTable, schema":         {"schema", second(db.CreateTable(ctx, "t", nil))},
		"CreateTable, option":         {"options", second(db.CreateTable(ctx, "t", schema, nil))},
		"CreateTableFrom, Source{}":   {"rows", second(db.CreateTableFrom(ctx, "t", Source{}))},
		"CreateTableFrom, context":    {"ctx", second(db.CreateTableFrom(none, "t", rows))},
		"CreateView, option":          {"options", second(db.CreateView(ctx, "v", nil, nil))},
		"CollectGarbage, change":      {"changes", second(table.CollectGarbage(ctx, nil))},
		"Preview, option":             {"options", second(table.Preview(ctx, ComputedColumn("c"), nil))},
		"Backfill, option":            {"options", second(table.Backfill(ctx, "c", nil))},
		"ExplainBackfill, option":     {"options", second(table.ExplainBackfill(ctx, "c", BackfillFunc(nil)))},
		"Refresh, option":             {"options", second(view.Refresh(ctx, nil))},
		"ExplainRefresh, context":     {"ctx", second(view.ExplainRefresh(none))},
		"Retry, option":               {"options", second(job.Retry(ctx, nil))},
		"Wait, option":                {"options", second(job.Wait(ctx, nil))},
		"Wait, context":               {"ctx", second(job.Wait(none))},
		"Watch, option":               {"options", second(Collect(job.Watch(ctx, nil)))},
		"Watch, context":              {"ctx", second(Collect(job.Watch(none)))},
		"WaitFor, context":            {"ctx", second(job.WaitFor(none, 0))},
		"Errors, option":              {"options", second(Collect(job.Errors(ctx, nil)))},
		"Tables, context":             {"ctx", second(Collect(db.Tables(none)))},
		"Verify, context":             {"ctx", second(Collect(db.Verify(none, "")))},
		"DropTable, context, nothing": {"ctx", db.DropTable(none, "t")},
	} {
		t.Run(what, func(t *testing.T) {
			var failed *Error
			check(t, errors.As(one.err, &failed) && failed.Code == codes.InvalidArgument, "%v", one.err)
			named := slices.ContainsFunc(failed.Fields, func(field FieldViolation) bool { return field.Field == one.names })
			check(t, named, "%v names %v", failed, failed.Fields)
		})
	}
	services.lock.Lock()
	defer services.lock.Unlock()
	check(t, len(services.calls) == 1 && len(services.calls["InfoService/GetInfo"]) == asked, "%v", services.calls)
}

func TestForceIsNothingThatIsNil(t *testing.T) {
	check(t, forced([]ForceOption{Force()}) && !forced(nil) && !forced([]ForceOption{nil}), "it is taken for another one")
}
