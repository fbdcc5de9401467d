// Command ingest appends the Python files of a folder to a table, as Arrow: those that the table does not have yet.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"leman.dev/go/leman"
	lemanv1 "leman.dev/go/leman/v1"
)

var text = arrow.BinaryTypes.String
var schema = arrow.NewSchema([]arrow.Field{{Name: "path", Type: text}, {Name: "text", Type: text}}, nil)

func main() {
	ctx, endpoint, database, folder := context.Background(), os.Args[1], os.Args[2], os.Args[3]
	client := must(leman.Connect(ctx, endpoint, leman.WithToken(os.Getenv("LEMAN_TOKEN"))))
	defer client.Close()
	files := client.Database(database).Table("files")
	_, err := client.Database(database).CreateTable(ctx, "files", schema)
	if !leman.HasReason(err, lemanv1.ErrorReason_TABLE_EXISTS) {
		must(files, err)
	}
	known := map[string]bool{}
	for batch, err := range must(files.Read(ctx, leman.Columns("path"))).All() {
		paths := must(batch, err).Column(0)
		for i := range paths.Len() {
			known[paths.ValueStr(i)] = true
		}
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	top, below := must(filepath.Glob(folder+"/*.py")), must(filepath.Glob(folder+"/*/*.py"))
	for _, path := range slices.Concat(top, below) {
		if !known[path] {
			rows.Field(0).(*array.StringBuilder).Append(path)
			rows.Field(1).(*array.StringBuilder).Append(strings.ToValidUTF8(string(must(os.ReadFile(path))), "?"))
		}
	}
	batch := rows.NewRecordBatch()
	if batch.NumRows() > 0 {
		must(files.Append(ctx, leman.Batches(schema, batch)))
	}
	fmt.Printf("appended %d files, %d were there\n", batch.NumRows(), len(known))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
