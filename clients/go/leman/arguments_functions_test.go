package leman

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	lemanv1 "leman.dev/go/leman/v1"
)

// harmless are functions whose arguments are values, or whose messages and callbacks may be left out.
var harmless = map[string]bool{
	"HasReason": true, "JobError": true, "OnProgress": true, "OnUpdate": true, "RefreshPolicy": true, "Terminal": true,
	"Altered": true, "AlteredKeepingValues": true, "WithTLS": true, "WithServiceAddresses": true, "WithPatience": true, "WithFirstContact": true,
}

// TestNoFunctionEndsTheProgramOverNil has a line for each function beside the methods that can be given nil.
func TestNoFunctionEndsTheProgramOverNil(t *testing.T) {
	services := serve(t, nil)
	client, ctx := services.connected(), t.Context()
	db := client.Database("lake")
	table := db.Table("docs")
	rows := Batches(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
	connect := func(option Option) error { return second(Connect(ctx, services.address, option)) }
	entrypoint := func(inputs []arrow.Field, output arrow.DataType) error {
		return second(EntrypointFunction("f", "1", "a:b", lemanv1.UdfDefinition_KIND_SCALAR, inputs, output))
	}
	lines := map[string][]naming{
		"Connect":            {{"options", connect(nil)}},
		"ConnectLocal":       {{"options", second(ConnectLocal(ctx, t.TempDir(), nil))}},
		"WithTokenSource":    {{"source", connect(WithTokenSource(nil))}},
		"WithTLSConfig":      {{"config", connect(WithTLSConfig(nil))}},
		"WithLogger":         {{"logger", connect(WithLogger(nil))}},
		"WithDialOptions":    {{"options", connect(WithDialOptions(nil))}},
		"Batches":            {{"schema", second(table.Append(ctx, Batches(nil)))}},
		"Reopened":           {{"rows", second(table.Append(ctx, Reopened(nil)))}},
		"Reader":             {{"rows", second(table.Append(ctx, Reader(nil)))}},
		"Appending":          {{"options", second(db.CreateTableFrom(ctx, "t", rows, Appending(nil)))}},
		"Collect":            {{"items", second(Collect[int](nil))}},
		"SQLFunction":        {{"output", second(SQLFunction("f", "1", "n", nil, nil))}},
		"EntrypointFunction": {{"output", entrypoint(nil, nil)}, {"inputs", entrypoint([]arrow.Field{{Name: "n"}}, arrow.Null)}},
		"EncodeSchema":       {{"schema", second(EncodeSchema(nil))}},
		"WithRequestID":      {{"ctx", second(table.Delete(WithRequestID(context.Context(nil), "r"), "true"))}},
	}
	for name, refusals := range lines {
		t.Run(name, func(t *testing.T) { allRefused(t, refusals) })
	}
	for _, name := range givenWhatMayBeNil(t) {
		check(t, len(lines[name]) > 0 || harmless[name], "%s can be given nil: give it a line", name)
	}
	unary, stream := "/leman.v1.InfoService/GetInfo", "/leman.v1.JobService/WatchJob"
	info, answer := &lemanv1.GetInfoRequest{}, &lemanv1.GetInfoResponse{}
	var change *lemanv1.DeleteRowsRequest
	t.Run("what generated stubs call", func(t *testing.T) {
		allRefused(t, []naming{
			{"options", client.Invoke(ctx, unary, info, answer, nil)},
			{"request", client.Invoke(ctx, unary, nil, answer)},
			{"request", client.Invoke(ctx, "/leman.v1.TableService/DeleteRows", change, &lemanv1.DeleteRowsResponse{})},
			{"reply", client.Invoke(ctx, unary, info, nil)},
			{"description", second(client.NewStream(ctx, nil, stream))},
			{"options", second(client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, stream, nil))},
		})
	})
	nothingAsked(t, services)
}

func TestNumbersAndPathsThatCannotBeAreRefusedByTheirNames(t *testing.T) {
	services := serve(t, nil)
	client, ctx := services.connected(), t.Context()
	db := client.Database("lake")
	table, view := db.Table("docs"), db.View("v")
	allRefused(t, []naming{
		{"path", second(Connect(ctx, services.address, WithTokenSource(TokenFile(""))))},
		{"fields", second(table.AddPlainColumns(ctx, arrow.Field{Name: "x"}))},
		{"concurrency", second(table.Backfill(ctx, "c", Concurrency(-1)))},
		{"concurrency", second(table.ExplainBackfill(ctx, "c", Concurrency(-1)))},
		{"concurrency", second(view.Refresh(ctx, Concurrency(-1)))},
		{"concurrency", second(view.ExplainRefresh(ctx, Concurrency(-1)))},
		{"limit", second(table.Read(ctx, Limit(-1)))},
		{"offset", second(table.Read(ctx, Offset(-1)))},
		{"batch_size", second(table.Read(ctx, BatchRows(-1)))},
		{"rows", second(table.Preview(ctx, ComputedColumn("c"), PreviewRows(-1, "")))},
		{"version", second(table.Read(ctx, AtVersion(0)))},
		{"read_version", second(table.Backfill(ctx, "c", AtVersion(0)))},
		{"read_version", second(table.ExplainBackfill(ctx, "c", AtVersion(0)))},
		{"read_version", second(table.Preview(ctx, ComputedColumn("c"), atVersion(0)))},
		{"read_version", second(table.Preview(ctx, ComputedColumn("c"), atVersion(-1)))},
		{"src_version", second(view.Refresh(ctx, SourceVersion(0)))},
		{"src_version", second(view.ExplainRefresh(ctx, SourceVersion(0)))},
		{"columns", second(table.AddColumns(ctx, SQLColumn("c", "1"), nil))},
		{"columns", second(table.AlterColumns(ctx, nil))},
		{"columns", second(table.AlterColumns(ctx, Altered(nil)))},
		{"columns", second(table.AlterColumns(ctx, AlteredKeepingValues(nil)))},
		{"columns", second(table.AlterPlainColumns(ctx, []*lemanv1.PlainColumnAlteration{nil}))},
		{"columns", second(view.AlterColumns(ctx, nil))},
		{"query", second(db.CreateView(ctx, "v", nil))},
		{"definition", second(db.RegisterFunction(ctx, nil))},
		{"database", second(client.RegisterDatabase(ctx, nil))},
		{"database", second(client.UpdateDatabase(ctx, nil, "labels"))},
		{"column", second(table.Preview(ctx, nil))},
		{"page_size", second(Collect(db.Tables(ctx, PageSize(-1))))},
		{"page_size", second(Collect(db.Jobs(ctx, nil, PageSize(-1))))},
		{"page_size", second(Collect(db.Job("j1").Errors(ctx, PageSize(-1))))},
	})
	nothingAsked(t, services)
}

func atVersion(version int64) PreviewFunc {
	return func(request *lemanv1.PreviewFunctionRequest) {
		request.Version = &lemanv1.PreviewFunctionRequest_ReadVersion{ReadVersion: version}
	}
}

// naming is an error that names an argument.
type naming struct {
	names string
	err   error
}

func allRefused(t *testing.T, refusals []naming) {
	t.Helper()
	for _, one := range refusals {
		var failed *Error
		check(t, errors.As(one.err, &failed) && failed.Code == codes.InvalidArgument, "%s: %v", one.names, one.err)
		check(t, len(failed.Fields) == 1 && failed.Fields[0].Field == one.names, "%v names %v", failed, failed.Fields)
	}
}

// nothingAsked fails where more was sent than the first contact.
func nothingAsked(t *testing.T, services *fake) {
	t.Helper()
	services.lock.Lock()
	defer services.lock.Unlock()
	check(t, len(services.calls) == 1 && len(services.calls["InfoService/GetInfo"]) == 1, "%v", services.calls)
}

// givenWhatMayBeNil lists the exported functions of which a parameter is a pointer, a function or of a type with a name.
func givenWhatMayBeNil(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	check(t, err == nil && len(files) > 0, "%v", err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		check(t, err == nil, "%v", err)
		for _, declaration := range parsed.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if !is || function.Recv != nil || !function.Name.IsExported() {
				continue
			}
			for _, parameter := range function.Type.Params.List {
				kind := types.ExprString(parameter.Type)
				if strings.ContainsFunc(kind, unicode.IsUpper) || strings.Contains(kind, "func(") {
					names = append(names, function.Name.Name)
					break
				}
			}
		}
	}
	check(t, len(names) > 15, "it found %v", names)
	return names
}
