package functions

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Value is a type of arguments and results of scalar functions: int64 for int64 columns, string for utf8, and so on.
type Value interface {
	bool | int32 | int64 | float32 | float64 | string | []byte
}

// AddScalar adds a function with one parameter that is called for each row. NULL stays NULL, without a call. If a call
// fails, the error applies to the whole batch, and Leman finds the row.
func AddScalar[I, O Value](
	s *Server, name, input string, call func(context.Context, I) (O, error), options ...FunctionOption,
) {
	output := typeOf[O]()
	inputs := []arrow.Field{{Name: input, Type: typeOf[I](), Nullable: true}}
	s.Add(name, inputs, output, func(ctx context.Context, batch arrow.RecordBatch) (arrow.Array, error) {
		given := batch.Column(0)
		value := given.(interface{ Value(i int) I }).Value
		builder := array.NewBuilder(memory.DefaultAllocator, output)
		defer builder.Release()
		builder.Reserve(given.Len())
		add := builder.(interface{ Append(O) }).Append
		for i := range given.Len() {
			if given.IsNull(i) {
				builder.AppendNull()
				continue
			}
			computed, err := call(ctx, value(i))
			if err != nil {
				return nil, err
			}
			add(computed)
		}
		return builder.NewArray(), nil
	}, options...)
}

func typeOf[T Value]() arrow.DataType {
	switch none := any(*new(T)).(type) {
	case bool:
		return arrow.FixedWidthTypes.Boolean
	case int32:
		return arrow.PrimitiveTypes.Int32
	case int64:
		return arrow.PrimitiveTypes.Int64
	case float32:
		return arrow.PrimitiveTypes.Float32
	case float64:
		return arrow.PrimitiveTypes.Float64
	case string:
		return arrow.BinaryTypes.String
	case []byte:
		return arrow.BinaryTypes.Binary
	default:
		panic(fmt.Sprintf("functions: no Arrow type is known for %T", none))
	}
}
