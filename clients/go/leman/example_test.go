package leman_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"leman.dev/go/leman"
	lemanv1 "leman.dev/go/leman/v1"
)

var schema = arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true}}, nil)

// texts is a record batch of one column.
func texts(values ...string) arrow.RecordBatch {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	builder.Field(0).(*array.StringBuilder).AppendValues(values, nil)
	return builder.NewRecordBatch()
}

// connect connects to the services that the environment names.
func connect(ctx context.Context) (*leman.Client, *leman.Database) {
	client, err := leman.Connect(ctx, os.Getenv("LEMAN_ENDPOINT"), leman.WithToken(os.Getenv("LEMAN_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	return client, client.Database(os.Getenv("LEMAN_DATABASE"))
}

// A table is made, a column is added to it, computed, and read.
func Example() {
	ctx := context.Background()
	client, err := leman.Connect(ctx, os.Getenv("LEMAN_ENDPOINT"), leman.WithToken(os.Getenv("LEMAN_TOKEN")))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	db := client.Database(os.Getenv("LEMAN_DATABASE"))

	docs, err := db.CreateTableFrom(ctx, "docs", leman.Batches(schema, texts("to be or not to be", "that is the question")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := docs.AddColumns(ctx, leman.SQLColumn("size", "length(text)")); err != nil {
		log.Fatal(err)
	}
	job, err := docs.Backfill(ctx, "size")
	if err != nil {
		log.Fatal(err)
	}
	done, err := job.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.GetState(), done.GetProgress().GetRowsCommitted())

	rows, err := docs.Read(ctx, leman.Where("size > 18"))
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range rows.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Column(0), batch.Column(1))
	}
	// Output:
	// STATE_DONE 2
	// ["that is the question"] [20]
}

func ExampleTable_Append() {
	ctx := context.Background()
	client, db := connect(ctx)
	defer func() { _ = client.Close() }()
	table, err := db.CreateTable(ctx, "appended", schema)
	if err != nil {
		log.Fatal(err)
	}

	// Rows that are too many for memory: each time from their beginning, should they have to be sent again.
	added, err := table.Append(ctx, leman.Reopened(func() (array.RecordReader, error) {
		return array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
			for n := range 100 {
				if !yield(texts(fmt.Sprint(n), "and"), nil) {
					return
				}
			}
		}), nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(added.Rows)
	// Output: 200
}

func ExampleJob_Watch() {
	ctx := context.Background()
	client, db := connect(ctx)
	defer func() { _ = client.Close() }()
	table, err := db.CreateTableFrom(ctx, "watched", leman.Batches(schema, texts("a", "b", "c")))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := table.AddColumns(ctx, leman.SQLColumn("loud", "upper(text)")); err != nil {
		log.Fatal(err)
	}
	job, err := table.Backfill(ctx, "loud", leman.Labels(map[string]string{"team": "search"}))
	if err != nil {
		log.Fatal(err)
	}

	var last *leman.JobUpdate
	for update, err := range job.Watch(ctx) { // over restarts of the services
		if err != nil {
			log.Fatal(err)
		}
		for _, event := range update.Events {
			_ = event.GetMessage()
		}
		last = update
	}
	fmt.Println(last.Job.GetState(), last.Job.GetLabels())
	// Output: STATE_DONE map[team:search]
}

func ExampleError() {
	ctx := context.Background()
	client, db := connect(ctx)
	defer func() { _ = client.Close() }()

	_, err := db.OpenTable(ctx, "nowhere")

	var failed *leman.Error
	if errors.As(err, &failed) {
		fmt.Println(failed.Code, failed.Reason)
	}
	fmt.Println(leman.HasReason(err, lemanv1.ErrorReason_TABLE_NOT_FOUND))
	// Output:
	// NotFound TABLE_NOT_FOUND
	// true
}

func ExampleDatabase_CreateView() {
	ctx := context.Background()
	client, db := connect(ctx)
	defer func() { _ = client.Close() }()
	if _, err := db.CreateTableFrom(ctx, "source", leman.Batches(schema, texts("short", "rather long"))); err != nil {
		log.Fatal(err)
	}

	view, err := db.CreateView(ctx, "long_texts", &lemanv1.ViewQuery{
		Source:  &lemanv1.TableRef{Table: "source"},
		Where:   "length(text) > 6",
		Columns: []*lemanv1.ViewColumn{{Name: "loud", Expression: "upper(text)"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	job, err := view.Refresh(ctx)
	if err != nil {
		log.Fatal(err)
	}
	done, err := job.Wait(ctx, leman.OnProgress(func(progress *lemanv1.Progress) { _ = progress.GetRowsCommitted() }))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.GetRefreshResult().GetRowsAdded(), "row")
	// Output: 1 row
}

// The generated stubs work on a client, for calls of which it has no method.
func ExampleClient_Invoke() {
	ctx := context.Background()
	client, db := connect(ctx)
	defer func() { _ = client.Close() }()

	jobs := lemanv1.NewJobServiceClient(client)
	answer, err := jobs.ListJobs(ctx, &lemanv1.ListJobsRequest{
		Database:         db.Name(),
		Filter:           &lemanv1.JobFilter{Tables: []string{"nothing"}},
		IncludeTotalSize: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.GetTotalSize())
	// Output: 0
}

// Tokens from a file that something else renews, over TLS.
func ExampleWithTokenSource() {
	client, err := leman.Connect(context.Background(), "leman.internal:7443",
		leman.WithTLS(leman.TLSFiles{CA: "ca.pem"}),
		leman.WithTokenSource(leman.TokenFile("/var/run/secrets/leman/token")))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
}
