package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestDescribeTellsOfEachFunctionInItsVersion(t *testing.T) {
	server := New()
	server.Add("two", int64s.Fields(), arrow.BinaryTypes.String, nothing, Description("dos"), Version("v-1.0_b"))
	AddScalar(server, "one", "x", func(_ context.Context, x []byte) (float32, error) { return float32(len(x)), nil })
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())

	results, err := client.DoAction(t.Context(), &flight.Action{Type: "leman.function.v1.describe"})
	check(t, err == nil, "%v", err)
	first, second := next(t, results), next(t, results)
	_, err = results.Recv()

	check(t, errors.Is(err, io.EOF), "%v", err)
	check(t, first.Function == "two" && first.Version == "v-1.0_b" && first.Description == "dos", "%v", first)
	check(t, schemaOf(t, first.Inputs).Equal(int64s), "%v", schemaOf(t, first.Inputs))
	check(t, second.Function == "one" && second.Version == binaryVersion() && len(second.Version) == 12, "%v", second)
	output := schemaOf(t, second.Output)
	check(t, output.NumFields() == 1 && output.Field(0).Name == "value", "%v", output)
	check(t, arrow.TypeEqual(output.Field(0).Type, arrow.PrimitiveTypes.Float32), "%v", output)

	results, err = client.DoAction(t.Context(), &flight.Action{Type: "other"})
	check(t, err == nil, "%v", err)
	_, err = results.Recv()
	check(t, status.Code(err) == codes.Unimplemented, "%v", err)
}

func TestScalarFunctionsOfEachType(t *testing.T) {
	server := New()
	isOdd := func(_ context.Context, n int64) (bool, error) { return n%2 == 1, nil }
	AddScalar(server, "odd", "n", isOdd, Version("1"))
	half := func(_ context.Context, n int64) (float64, error) { return float64(n) / 2, nil }
	AddScalar(server, "half", "n", half, Version("1"))
	text := func(_ context.Context, n int64) ([]byte, error) { return []byte(strconv.FormatInt(n, 10)), nil }
	AddScalar(server, "bytes", "n", text, Version("1"))
	small := func(_ context.Context, n int64) (int32, error) { return int32(n), nil }
	AddScalar(server, "small", "n", small, Version("1"))
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())

	for name, expected := range map[string]string{
		"odd": "[true (null) false]", "half": "[0.5 (null) 1]", "bytes": `["1" (null) "2"]`, "small": "[1 (null) 2]",
	} {
		calls := ask(t, client, name, "1", int64s)
		calls.send(1, nil, 2)
		told, err := calls.receive()
		check(t, err == nil && told == expected, "%s: %s %v", name, told, err)
	}
}

func TestAFailedBatchIsAnsweredAndTheStreamGoesOn(t *testing.T) {
	causes := map[int64]func() error{
		1: func() error { return &Error{Type: "Odd", Message: "é", Traceback: "there"} },
		2: func() error { _, err := strconv.Atoi("x"); return fmt.Errorf("no: %w", err) },
		3: func() error { return errors.New("plain") },
		4: func() error { panic("a bug") },
	}
	server := New()
	AddScalar(server, "fails", "n", func(_ context.Context, n int64) (int64, error) {
		if cause := causes[n]; cause != nil {
			return 0, cause()
		}
		return n, nil
	}, Version("1"))
	address, _ := served(t, server)
	calls := ask(t, connected(t, address, insecure.NewCredentials()), "fails", "1", int64s)
	for n := range 5 {
		calls.send(n)
	}

	told, err := calls.receive()
	check(t, err == nil && told == "[0]", "%s %v", told, err)
	check(t, calls.failed() == failure{Type: "Odd", Message: "é", Traceback: "there"}, "another error")
	number := calls.failed()
	check(t, number.Type == "NumError" && strings.HasPrefix(number.Message, "no: "), "%v", number)
	check(t, calls.failed() == failure{Type: "Error", Message: "plain"}, "another error")
	bug := calls.failed()
	check(t, bug.Type == "Panic" && bug.Message == "a bug" && strings.Contains(bug.Traceback, ".go:"), "%v", bug)
	calls.send(9)
	told, err = calls.receive()
	check(t, err == nil && told == "[9]", "%s %v", told, err)
	check(t, calls.calls.CloseSend() == nil, "cannot be closed")
	_, err = calls.receive()
	check(t, errors.Is(err, io.EOF), "%v", err)
}

func TestResultsOfAnotherShapeAreErrors(t *testing.T) {
	server := New()
	returns := func(values arrow.Array) Compute {
		return func(context.Context, arrow.RecordBatch) (arrow.Array, error) { return values, nil }
	}
	server.Add("none", int64s.Fields(), arrow.PrimitiveTypes.Int64, returns(nil), Version("1"))
	server.Add("text", int64s.Fields(), arrow.PrimitiveTypes.Int64, returns(strings2("a", "b")), Version("1"))
	server.Add("few", int64s.Fields(), arrow.BinaryTypes.String, returns(strings2("a", "b")), Version("1"))
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())

	for name, message := range map[string]string{
		"none": "none returned neither values nor an error",
		"text": "text returned 2 values of utf8 for 3 rows, and is one of int64",
		"few":  "few returned 2 values of utf8 for 3 rows, and is one of utf8",
	} {
		calls := ask(t, client, name, "1", int64s)
		calls.send(1, 2, 3)
		_, err := calls.calls.Recv() // the schema
		check(t, err == nil, "%v", err)
		check(t, calls.failed() == failure{Type: "WrongResult", Message: message}, "another error")
	}
}

func strings2(values ...string) arrow.Array {
	builder := array.NewStringBuilder(memory.DefaultAllocator)
	defer builder.Release()
	builder.AppendValues(values, nil)
	return builder.NewArray()
}

// Dictionaries are messages of their own: the schema is sent once all the same.
func TestValuesMayBeDictionaries(t *testing.T) {
	kind := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	server := New()
	server.Add("parity", int64s.Fields(), kind, func(_ context.Context, batch arrow.RecordBatch) (arrow.Array, error) {
		builder := array.NewDictionaryBuilder(memory.DefaultAllocator, kind).(*array.BinaryDictionaryBuilder)
		defer builder.Release()
		for _, n := range batch.Column(0).(*array.Int64).Int64Values() {
			if err := builder.AppendString([]string{"even", "odd"}[n%2]); err != nil {
				return nil, err
			}
		}
		return builder.NewArray(), nil
	}, Version("1"))
	address, _ := served(t, server)
	calls := ask(t, connected(t, address, insecure.NewCredentials()), "parity", "1", int64s)

	for _, sent := range [][]any{{1, 2, 3}, {4}, {}, {5, 5}} {
		calls.send(sent...)
		told, err := calls.receive()
		check(t, err == nil, "%v", err)
		for i, n := range sent {
			odd := n.(int)%2 == 1
			values := calls.answers.RecordBatch().Column(0).(*array.Dictionary)
			text := values.Dictionary().(*array.String).Value(values.GetValueIndex(i))
			check(t, (text == "odd") == odd, "%s of %v", told, sent)
		}
	}
}

func TestWhoGoesAwayCancelsTheFunction(t *testing.T) {
	began, ended := make(chan bool), make(chan error)
	server := New()
	AddScalar(server, "waits", "n", func(ctx context.Context, _ int64) (int64, error) {
		began <- true
		<-ctx.Done()
		ended <- ctx.Err()
		return 0, ctx.Err()
	}, Version("1"))
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())
	calls := ask(t, client, "waits", "1", int64s)
	calls.send(1)
	<-began

	check(t, client.Close() == nil, "cannot be closed")

	check(t, errors.Is(<-ended, context.Canceled), "another end")
}

func TestWhatIsNoStreamOfBatchesIsRefused(t *testing.T) {
	server := New()
	server.Add("f", int64s.Fields(), arrow.PrimitiveTypes.Int64, nothing, Version("1"))
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())
	command := []byte(`{"protocol": "leman.function.v1", "function": "f", "version": "1"}`)
	named := &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: command}

	for _, messages := range [][]*flight.FlightData{
		{},
		{{FlightDescriptor: named}},
		{{FlightDescriptor: named, DataHeader: []byte("no flatbuffer")}},
		{{FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"f"}}}},
		{{FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(`{"function": "f"}`)}}},
	} {
		calls, err := client.DoExchange(t.Context())
		check(t, err == nil, "%v", err)
		for _, message := range messages {
			check(t, calls.Send(message) == nil, "cannot be sent")
		}
		check(t, calls.CloseSend() == nil, "cannot be closed")
		_, err = calls.Recv()
		check(t, status.Code(err) == codes.InvalidArgument, "%v: %v", messages, err)
	}
}

func TestFaultsOfTheProgramPanic(t *testing.T) {
	server := New()
	server.Add("f", int64s.Fields(), arrow.PrimitiveTypes.Int64, nothing)
	for _, add := range []func(){
		func() { server.Add("f", int64s.Fields(), arrow.PrimitiveTypes.Int64, nothing) },
		func() { server.Add("", int64s.Fields(), arrow.PrimitiveTypes.Int64, nothing) },
		func() { server.Add("g", nil, arrow.PrimitiveTypes.Int64, nothing) },
		func() { server.Add("g", int64s.Fields(), nil, nothing) },
		func() { server.Add("g", int64s.Fields(), arrow.PrimitiveTypes.Int64, nil) },
		func() { server.Add("g", int64s.Fields(), arrow.PrimitiveTypes.Int64, nothing, Version("é")) },
	} {
		func() {
			defer func() { check(t, recover() != nil, "it is added") }()
			add()
		}()
	}
	check(t, len(server.all()) == 1, "%v", server.names)
}
