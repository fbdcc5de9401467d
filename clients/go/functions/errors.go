package functions

import (
	"errors"
	"fmt"
	"go/token"
	"reflect"
	"runtime/debug"
)

// Error is what went wrong with a batch, with a type that the rules of an error policy name. Of any other error the type
// is the name of its Go type, of the first in its chain that is exported (NumError, PathError), or else "Error"; a panic
// is one of the type "Panic".
type Error struct {
	// Type is what an error policy calls it, such as "ValueError".
	Type string
	// Message says what was wrong.
	Message string
	// Traceback is where it happened; it may be empty.
	Traceback string
}

// Error gives type and message.
func (e *Error) Error() string { return e.Type + ": " + e.Message }

// failure is an error as answers have it.
type failure struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback"`
}

func explain(err error) failure {
	var own *Error
	if errors.As(err, &own) {
		return failure{Type: own.Type, Message: own.Message, Traceback: own.Traceback}
	}
	return failure{Type: typeName(err), Message: err.Error()}
}

func typeName(err error) string {
	for ; err != nil; err = errors.Unwrap(err) {
		kind := reflect.TypeOf(err)
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if token.IsExported(kind.Name()) {
			return kind.Name()
		}
	}
	return "Error"
}

func panicked(cause any) *Error {
	return &Error{Type: "Panic", Message: fmt.Sprint(cause), Traceback: string(debug.Stack())}
}
