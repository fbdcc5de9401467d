package functions

import (
	"errors"
	"fmt"
	"go/token"
	"reflect"
	"runtime/debug"
)

// Error is an error of a batch with a type, which rules of an error policy can match. The type of any other error is
// the name of the first exported Go type in its chain (NumError, PathError), or else "Error". The type of a panic is
// "Panic".
type Error struct {
	// Type is the name for error policies, such as "ValueError".
	Type string
	// Message says what was wrong.
	Message string
	// Traceback says where the error occurred; it may be empty.
	Traceback string
}

// Error returns the type and the message.
func (e *Error) Error() string { return e.Type + ": " + e.Message }

// failure is an error as it is encoded in responses.
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
