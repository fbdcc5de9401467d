package functions

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/credentials/insecure"
)

// damaged is values of a type that are none of it, or whose builder refuses them by a panic.
type damaged struct {
	output arrow.DataType
	made   func(array.Builder) arrow.Array
	kind   string
	told   string
}

var (
	structs      = arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	dictionaries = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
)

// dangling is an index of a dictionary without values.
func dangling() arrow.Array {
	indices, texts := array.NewInt32Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	indices.Append(7)
	return array.NewDictionaryArray(dictionaries, indices.NewArray(), texts.NewArray())
}

func TestValuesThatAreNoneOfTheirTypeAreAnErrorOfTheirBatch(t *testing.T) {
	for name, one := range map[string]damaged{
		"no UTF-8": {arrow.BinaryTypes.String, func(b array.Builder) arrow.Array {
			b.(*array.StringBuilder).Append("\xff")
			return b.NewArray()
		}, "WrongResult", "utf8"},
		"no UTF-8 in a list": {arrow.ListOf(arrow.BinaryTypes.String), func(b array.Builder) arrow.Array {
			b.(*array.ListBuilder).Append(true)
			b.(*array.ListBuilder).ValueBuilder().(*array.StringBuilder).Append("\xff")
			return b.NewArray()
		}, "WrongResult", "utf8"},
		"a struct without its field": {structs, func(b array.Builder) arrow.Array {
			b.(*array.StructBuilder).Append(true)
			return b.NewArray()
		}, "WrongResult", "struct child"},
		"an index of nothing": {dictionaries, func(array.Builder) arrow.Array { return dangling() }, "WrongResult", "out of bounds"},
		"bytes of another length": {&arrow.FixedSizeBinaryType{ByteWidth: 4}, func(b array.Builder) arrow.Array {
			b.(*array.FixedSizeBinaryBuilder).Append([]byte("abc"))
			return b.NewArray()
		}, "Panic", "ByteWidth"},
		"a vector of another length": {arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int8), func(b array.Builder) arrow.Array {
			b.(*array.FixedSizeListBuilder).Append(true)
			b.(*array.FixedSizeListBuilder).ValueBuilder().(*array.Int8Builder).AppendValues([]int8{1, 2}, nil)
			return b.NewArray()
		}, "Panic", "fixed-size list"},
	} {
		t.Run(name, func(t *testing.T) {
			server := New()
			server.Add("f", int64s.Fields(), one.output, func(context.Context, arrow.RecordBatch) (arrow.Array, error) {
				return one.made(array.NewBuilder(memory.DefaultAllocator, one.output)), nil
			}, Version("1"))
			address, _ := served(t, server)
			calls := ask(t, connected(t, address, insecure.NewCredentials()), "f", "1", int64s)
			calls.send(1)
			_, err := calls.calls.Recv() // the schema
			check(t, err == nil, "%v", err)

			told := calls.failed()

			check(t, told.Type == one.kind && strings.Contains(told.Message, one.told), "%s: %s", told.Type, told.Message)
		})
	}
}

func TestARowOfAScalarFunctionThatIsNoUTF8IsAnError(t *testing.T) {
	server := New()
	AddScalar(server, "f", "n", func(context.Context, int64) (string, error) { return "\xff", nil }, Version("1"))
	address, _ := served(t, server)
	calls := ask(t, connected(t, address, insecure.NewCredentials()), "f", "1", int64s)
	calls.send(1)
	_, err := calls.calls.Recv()
	check(t, err == nil, "%v", err)

	told := calls.failed()

	check(t, told.Type == "WrongResult" && strings.Contains(told.Message, "utf8"), "%s: %s", told.Type, told.Message)
}
