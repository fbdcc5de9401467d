package leman

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
)

// permitted is what may be nil: an option that forces what it is not.
var permitted = map[string]bool{"ForceOption": true}

// usual returns a valid argument of a type.
func usual(t *testing.T, wanted reflect.Type) reflect.Value {
	t.Helper()
	for _, one := range []any{
		Batches(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)),
		arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil),
		ComputedColumn("c"),
	} {
		if reflect.TypeOf(one).AssignableTo(wanted) && wanted.Kind() != reflect.Interface {
			return reflect.ValueOf(one)
		}
	}
	switch {
	case wanted == reflect.TypeFor[context.Context]():
		return reflect.ValueOf(t.Context())
	case wanted == reflect.TypeFor[io.ReadSeeker]():
		return reflect.ValueOf(bytes.NewReader(nil))
	case wanted.Kind() == reflect.Pointer:
		return reflect.New(wanted.Elem())
	default:
		return reflect.Zero(wanted)
	}
}

// outcome calls a method, reads the first item if it returns a listing, and returns the error. A panic counts as an error.
func outcome(method reflect.Value, arguments []reflect.Value) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("it panics: %v", cause)
		}
	}()
	for _, result := range method.Call(arguments) {
		if result.Kind() == reflect.Func {
			stop := reflect.MakeFunc(result.Type().In(0), func(item []reflect.Value) []reflect.Value {
				err, _ = item[1].Interface().(error)
				return []reflect.Value{reflect.ValueOf(false)}
			})
			result.Call([]reflect.Value{stop})
		} else if failed, is := result.Interface().(error); is {
			err = failed
		}
	}
	return err
}

// TestNoMethodEndsTheProgramOverNil looks at all methods, those that come later, too.
func TestNoMethodEndsTheProgramOverNil(t *testing.T) {
	client := serve(t, nil).connected()
	db := client.Database("lake")
	looked := 0
	for _, owner := range []any{client, db, db.Table("docs"), db.View("v"), db.Job("j1")} {
		value := reflect.ValueOf(owner)
		for m := range value.NumMethod() {
			name := value.Type().Elem().Name() + "." + value.Type().Method(m).Name
			method := value.Method(m)
			kind := method.Type()
			for at := range kind.NumIn() {
				given := kind.In(at)
				if kind.IsVariadic() && at == kind.NumIn()-1 {
					given = given.Elem()
				}
				switch given.Kind() {
				case reflect.Interface, reflect.Pointer, reflect.Func:
				default:
					continue
				}
				if permitted[given.Name()] {
					continue
				}
				looked++
				t.Run(fmt.Sprintf("%s, argument %d, %v", name, at+1, given), func(t *testing.T) {
					var arguments []reflect.Value
					for i := range kind.NumIn() {
						if i == at {
							arguments = append(arguments, reflect.Zero(given))
						} else if !kind.IsVariadic() || i < kind.NumIn()-1 {
							arguments = append(arguments, usual(t, kind.In(i)))
						}
					}
					err := outcome(method, arguments)
					var failed *Error
					if given.Kind() == reflect.Pointer { // a message may be left out, where the services say so
						check(t, err == nil || errors.As(err, &failed), "%v", err)
					} else {
						check(t, errors.As(err, &failed) && failed.Code == codes.InvalidArgument, "%v", err)
						check(t, len(failed.Fields) == 1, "%v names %v", failed, failed.Fields)
					}
				})
			}
		}
	}
	check(t, looked > 60, "it looked at %d arguments", looked)
}
