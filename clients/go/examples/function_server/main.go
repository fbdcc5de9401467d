// Command function_server serves a few functions, as docs/remote_functions.md describes: the suite, and the benchmark of
// remote functions, call them. It prints one line, {"port": n}, and ends with SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"leman.dev/go/functions"
)

func main() {
	port := flag.Int("port", 7815, "where to listen; 0: at any free port")
	token := flag.String("token", "", "what callers have to show; empty: nothing")
	cert := flag.String("cert", "", "a certificate (PEM), to serve over TLS")
	key := flag.String("key", "", "the certificate's key (PEM)")
	version := flag.String("version", "", "the version of the functions; empty: the binary's")
	flag.Parse()

	var options []functions.Option
	if *token != "" {
		options = append(options, functions.WithToken(*token))
	}
	if *cert != "" {
		options = append(options, functions.WithTLS(functions.TLSFiles{Cert: *cert, Key: *key}))
	}
	server := functions.New(options...)
	add(server, functions.Version(*version))

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"port\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := server.ServeOn(ctx, listener); err != nil {
		log.Fatal(err)
	}
}

func add(server *functions.Server, version functions.FunctionOption) {
	whole := []arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
	server.Add("double", whole, arrow.PrimitiveTypes.Int64, double, version, functions.Description("Twice the number"))
	functions.AddScalar(server, "upper", "text", upper, version)
	pairs := arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32)
	server.Add("vector", whole, pairs, vector, version, functions.Description("The number and its opposite"))
	server.Add("described", whole, descriptions, described, version,
		functions.Description("The number, and its text where it is even"))
	functions.AddScalar(server, "fail_on", "x", failOn, version)
	functions.AddScalar(server, "slow", "milliseconds", slow, version)
	functions.AddScalar(server, "die", "x", die, version)
}

// double is given a batch at a time.
func double(_ context.Context, batch arrow.RecordBatch) (arrow.Array, error) {
	given := batch.Column(0).(*array.Int64)
	values := array.NewInt64Builder(memory.DefaultAllocator)
	defer values.Release()
	values.Reserve(given.Len())
	for i := range given.Len() {
		if given.IsNull(i) {
			values.AppendNull()
		} else {
			values.UnsafeAppend(2 * given.Value(i))
		}
	}
	return values.NewArray(), nil
}

// vector gives two numbers for each, and NULL for NULL.
func vector(_ context.Context, batch arrow.RecordBatch) (arrow.Array, error) {
	given := batch.Column(0).(*array.Int64)
	vectors := array.NewFixedSizeListBuilder(memory.DefaultAllocator, 2, arrow.PrimitiveTypes.Float32)
	defer vectors.Release()
	items := vectors.ValueBuilder().(*array.Float32Builder)
	for i := range given.Len() {
		if given.IsNull(i) {
			vectors.AppendNull()
			continue
		}
		vectors.Append(true)
		items.Append(float32(given.Value(i)))
		items.Append(-float32(given.Value(i)))
	}
	return vectors.NewArray(), nil
}

var descriptions = arrow.StructOf(
	arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	arrow.Field{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
)

// described gives a struct for each number, and NULL for NULL.
func described(_ context.Context, batch arrow.RecordBatch) (arrow.Array, error) {
	given := batch.Column(0).(*array.Int64)
	values := array.NewStructBuilder(memory.DefaultAllocator, descriptions)
	defer values.Release()
	numbers := values.FieldBuilder(0).(*array.Int64Builder)
	texts := values.FieldBuilder(1).(*array.StringBuilder)
	for i := range given.Len() {
		if given.IsNull(i) {
			values.AppendNull()
			continue
		}
		values.Append(true)
		numbers.Append(given.Value(i))
		if given.Value(i)%2 == 0 {
			texts.Append(strconv.FormatInt(given.Value(i), 10))
		} else {
			texts.AppendNull()
		}
	}
	return values.NewArray(), nil
}

func upper(_ context.Context, text string) (string, error) { return strings.ToUpper(text), nil }

func failOn(_ context.Context, x int64) (int64, error) {
	if x < 0 {
		return 0, &functions.Error{Type: "ValueError", Message: fmt.Sprintf("%d is negative", x)}
	}
	return x, nil
}

func slow(ctx context.Context, milliseconds int64) (int64, error) {
	select {
	case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		return milliseconds, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func die(_ context.Context, x int64) (int64, error) {
	if x == 666 {
		os.Exit(1)
	}
	return x, nil
}
