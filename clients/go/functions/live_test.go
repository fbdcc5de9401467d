package functions

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"leman.dev/go/leman"
	lemanv1 "leman.dev/go/leman/v1"
)

// A column of real services is computed here, and a row that fails is found.
func TestLiveColumn(t *testing.T) {
	if os.Getenv("LEMAN_ENDPOINT") == "" {
		t.Skip("LEMAN_ENDPOINT names no services")
	}
	ctx := t.Context()
	server := New()
	AddScalar(server, "length", "text", func(_ context.Context, text string) (int64, error) {
		if text == "" {
			return 0, &Error{Type: "EmptyText", Message: "there is no text"}
		}
		return int64(len(text)), nil
	})
	address, _ := served(t, server)
	client, err := leman.Connect(ctx, os.Getenv("LEMAN_ENDPOINT"), leman.WithToken(os.Getenv("LEMAN_TOKEN")))
	check(t, err == nil, "%v", err)
	t.Cleanup(func() { _ = client.Close() })
	db := client.Database(os.Getenv("LEMAN_DATABASE") + " of functions")
	words := texts("to be", "", "or not")
	table, err := db.CreateTableFrom(ctx, "words", leman.Batches(words.Schema(), words))
	check(t, err == nil, "%v", err)

	stored, err := db.RegisterRemote(ctx, "length", []string{"grpc://" + address}, func(asked *lemanv1.UdfDefinition) {
		skips := &lemanv1.ErrorRule{ExceptionTypes: []string{"EmptyText"}, Action: lemanv1.ErrorRule_ACTION_SKIP}
		asked.ErrorPolicy = &lemanv1.ErrorPolicy{Rules: []*lemanv1.ErrorRule{skips}, StoreErrors: true}
	})
	check(t, err == nil && stored.GetVersion() == binaryVersion(), "%v %v", stored, err)
	_, err = table.AddColumns(ctx, leman.FunctionColumn("length", "length", stored.GetVersion()))
	check(t, err == nil, "%v", err)
	begun, err := table.Backfill(ctx, "length")
	check(t, err == nil, "%v", err)
	done, err := begun.Wait(ctx)
	check(t, err == nil && done.GetState() == lemanv1.Job_STATE_DONE_WITH_ERRORS, "%v %v", done, err)
	failures, err := leman.Collect(begun.Errors(ctx))
	check(t, err == nil && len(failures) == 1 && failures[0].GetErrorType() == "EmptyText", "%v %v", failures, err)

	rows, err := table.Read(ctx, leman.Columns("length"))
	check(t, err == nil, "%v", err)
	lengths := ""
	for batch, err := range rows.All() {
		check(t, err == nil, "%v", err)
		lengths += batch.Column(0).String()
	}
	check(t, lengths == "[5 (null) 6]", "%s", lengths)
	_, err = db.RegisterRemote(ctx, "absent", []string{"grpc://" + address})
	var failed *leman.Error
	check(t, errors.As(err, &failed) && failed.Reason == "FUNCTION_NOT_FOUND", "%v", err)
}

func texts(values ...string) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)
	builder := array.NewStringBuilder(memory.DefaultAllocator)
	defer builder.Release()
	builder.AppendValues(values, nil)
	return array.NewRecordBatch(schema, []arrow.Array{builder.NewArray()}, int64(len(values)))
}
