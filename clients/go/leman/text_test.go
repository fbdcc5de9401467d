package leman

import (
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	lemanv1 "leman.dev/go/leman/v1"
)

// noUTF8 is what a text must not be.
const noUTF8 = "\xff"

func TestTextThatIsNoUTF8IsRefusedByTheNameOfItsField(t *testing.T) {
	services := serve(t, nil)
	client, ctx := services.connected(), t.Context()
	db := client.Database("lake")
	table, job := db.Table("docs"), db.Job("j1")
	rows := Batches(numbers, batch(0, 3))
	named := arrow.Field{Name: noUTF8, Type: arrow.PrimitiveTypes.Int64}
	in := arrow.Field{Name: "s", Type: arrow.StructOf(named)}
	labels := Labels(map[string]string{"a": noUTF8})
	column := SQLColumn("c", noUTF8)
	allRefused(t, []naming{
		{"where", second(table.Read(ctx, Where("s='"+noUTF8+"'")))},
		{"where", second(table.Delete(ctx, noUTF8))},
		{"tag", second(table.Read(ctx, AtTag(noUTF8)))},
		{"columns[1]", second(table.Read(ctx, Columns("a", noUTF8)))},
		{"table.database", second(client.Database(noUTF8).Table("docs").Describe(ctx))},
		{"header.table.table", second(db.Table(noUTF8).Append(ctx, rows))},
		{"header.request_id", second(table.Append(WithRequestID(ctx, noUTF8), rows))},
		{"request_id", second(table.Delete(WithRequestID(ctx, noUTF8), "true"))},
		{"header.on[0]", second(table.Merge(ctx, []string{noUTF8}, rows, InsertNotMatched()))},
		{`labels["a"]`, second(table.Backfill(ctx, "c", labels))},
		{"a key of labels", second(job.SetLabels(ctx, map[string]string{noUTF8: "a"}))},
		{`env["KEY"]`, second(table.Backfill(ctx, "c", Env(map[string]string{"KEY": noUTF8})))},
		{"columns[0].sql_expression", second(table.AddColumns(ctx, column))},
		{"job_id", second(Collect(db.Job(noUTF8).Watch(ctx)))},
		{"database", second(Collect(client.Database(noUTF8).Tables(ctx)))},
		{"resume_token", second(Collect(db.Verify(ctx, noUTF8)))},
		{"schema", second(db.CreateTable(ctx, "t", arrow.NewSchema([]arrow.Field{named}, nil)))},
		{"fields", second(table.AddPlainColumns(ctx, in))},
		{"traceparent", second(client.Info(metadata.AppendToOutgoingContext(ctx, "traceparent", noUTF8)))},
		{"x-request-id", second(Collect(job.Watch(metadata.AppendToOutgoingContext(ctx, requestIDHeader, "a\n"))))},
	})
	services.lock.Lock()
	defer services.lock.Unlock()
	for name := range services.calls { // a stream may have begun, and was sent no message
		check(t, name == "InfoService/GetInfo" || services.handlers[name] == nil, "%s was served", name)
	}
}

func TestAnotherInternalErrorIsNoFaultOfTheMessage(t *testing.T) {
	wrong := &lemanv1.DeleteRowsRequest{Where: noUTF8}
	check(t, unsendable(&Error{Code: codes.Internal}, wrong) != nil, "it is not found")
	check(t, unsendable(&Error{Code: codes.Internal}, &lemanv1.DeleteRowsRequest{Where: "é"}) == nil, "it is text")
	check(t, unsendable(&Error{Code: codes.Internal, Reason: "INTERNAL_BUG"}, wrong) == nil, "the services say why")
	check(t, unsendable(&Error{Code: codes.Unavailable}, wrong) == nil, "it is another one")
	var none *lemanv1.DeleteRowsRequest
	check(t, unsendable(&Error{Code: codes.Internal}, none) == nil, "there is none")
	check(t, errors.Is(unsendable(&Error{Code: codes.Internal, cause: errSpent}, wrong), errSpent), "its cause")
}
