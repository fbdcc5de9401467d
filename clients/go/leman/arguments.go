package leman

import (
	"context"
	"reflect"

	lemanv1 "leman.dev/go/leman/v1"
)

// isNil returns true if a function or an interface value is nil, or holds a nil.
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

// allGiven returns an error if one of the arguments is nil.
func allGiven[T any](name string, values []T) error {
	for i, value := range values {
		if isNil(value) {
			return invalid(name, "%s: number %d is nil: leave it out", name, i+1)
		}
	}
	return nil
}

// amount is a number that must not be negative, with the name of its field.
type amount struct {
	name string
	n    int64
}

// noneNegative returns an error if one of the numbers is negative.
func noneNegative(numbers ...amount) error {
	for _, number := range numbers {
		if number.n < 0 {
			return invalid(number.name, "%s is %d: give a number that is not negative, or leave it out", number.name, number.n)
		}
	}
	return nil
}

// versionIsOne returns an error if a version is given that is less than 1. The services would read 0 as the latest
// version.
func versionIsOne(name string, given bool, version int64) error {
	if given && version < 1 {
		return invalid(name, "%s is %d: versions begin at 1; leave it out for the latest", name, version)
	}
	return nil
}

// functionNamed returns an error if a function has no name. The services would ignore it and use the column's own
// function.
func functionNamed(function *lemanv1.UdfRef) error {
	if function != nil && function.GetName() == "" {
		return invalid("function", "the function has no name: give one, or leave Using out to compute with the column's own")
	}
	return nil
}

// contextGiven returns an error if the context is nil.
func contextGiven(ctx context.Context) error {
	if ctx == nil {
		return invalid("ctx", "ctx is nil: give context.Background() where there is no other one")
	}
	return nil
}

// checked returns an error if the context or one of the options is nil.
func checked[T any](ctx context.Context, options []T) error {
	if err := contextGiven(ctx); err != nil {
		return err
	}
	return allGiven("options", options)
}
