package leman

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// callsNothing are methods that name something, or end nothing.
var callsNothing = []string{"Name", "Database", "Client", "ID", "Table", "View", "Job", "Close"}

// TestNoMethodOfAZeroValueEndsTheProgram looks at all methods, those that come later, too.
func TestNoMethodOfAZeroValueEndsTheProgram(t *testing.T) {
	looked := 0
	for _, owner := range []any{&Client{}, &Database{}, &Table{}, &View{}, &Job{}, (&Client{}).Database("lake").Table("t")} {
		value := reflect.ValueOf(owner)
		for m := range value.NumMethod() {
			name, method := value.Type().Method(m).Name, value.Method(m)
			looked++
			t.Run(value.Type().Elem().Name()+"."+name, func(t *testing.T) {
				var arguments []reflect.Value
				kind := method.Type()
				for i := range kind.NumIn() {
					if !kind.IsVariadic() || i < kind.NumIn()-1 {
						arguments = append(arguments, usual(t, kind.In(i)))
					}
				}

				err := outcome(method, arguments)

				if slices.Contains(callsNothing, name) {
					check(t, err == nil, "%v", err)
					return
				}
				var failed *Error
				check(t, errors.As(err, &failed) && failed.Code == codes.InvalidArgument, "%v", err)
				check(t, strings.Contains(failed.Message, "Connect"), "%v", err)
			})
		}
	}
	check(t, looked > 80, "it looked at %d methods", looked)
	var none Rows
	check(t, !none.Next() && none.Err() != nil && none.RecordBatch() == nil, "%v", none.Err())
	none.Release()
}
