package leman

import (
	"context"
	"reflect"

	lemanv1 "leman.dev/go/leman/v1"
)

// isNil shows whether there is nothing to call in what is given for a function or an interface.
func isNil(value any) bool {
	found := reflect.ValueOf(value)
	switch found.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Chan, reflect.Func, reflect.Interface, reflect.Map, reflect.Pointer, reflect.Slice:
		return found.IsNil()
	default:
		return false
	}
}

// allGiven refuses arguments of which one is nil.
func allGiven[T any](name string, values []T) error {
	for i, value := range values {
		if isNil(value) {
			return invalid(name, "%s: number %d is nil: leave it out", name, i+1)
		}
	}
	return nil
}

// amount is a number of what there cannot be fewer than none of, by the name of its field.
type amount struct {
	name string
	n    int64
}

// noneNegative refuses numbers of which one is negative.
func noneNegative(numbers ...amount) error {
	for _, number := range numbers {
		if number.n < 0 {
			return invalid(number.name, "%s is %d: give a number that is not negative, or leave it out", number.name, number.n)
		}
	}
	return nil
}

// versionIsOne refuses a version that is given and is none, which the services would take for the latest. Versions begin
// at 1.
func versionIsOne(name string, given bool, version int64) error {
	if given && version < 1 {
		return invalid(name, "%s is %d: versions begin at 1; leave it out for the latest", name, version)
	}
	return nil
}

// functionNamed refuses a function without a name, which the services take for none: the column's own would compute.
func functionNamed(function *lemanv1.UdfRef) error {
	if function != nil && function.GetName() == "" {
		return invalid("function", "the function has no name: give one, or leave Using out to compute with the column's own")
	}
	return nil
}

// contextGiven refuses a context that is nil.
func contextGiven(ctx context.Context) error {
	if ctx == nil {
		return invalid("ctx", "ctx is nil: give context.Background() where there is no other one")
	}
	return nil
}

// checked refuses what a call cannot be made with: no context, or an option that is nil.
func checked[T any](ctx context.Context, options []T) error {
	if err := contextGiven(ctx); err != nil {
		return err
	}
	return allGiven("options", options)
}
