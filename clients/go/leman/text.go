package leman

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unsendable returns the error for a message with a string that is not UTF-8, naming its field, or nil if that is not
// the cause. gRPC only reports INTERNAL: it cannot marshal the message.
func unsendable(failed *Error, message any) *Error {
	sent, is := message.(proto.Message)
	if failed.Code != codes.Internal || failed.Reason != "" || !is || isNil(sent) {
		return nil
	}
	field := noText("", sent.ProtoReflect())
	if field == "" {
		return nil
	}
	told := invalid(field, "%s is no UTF-8: give text, such as by strings.ToValidUTF8", field)
	told.Method, told.RequestID, told.cause = failed.Method, failed.RequestID, failed.cause
	return told
}

// noText returns the path of the first field with a string that is not UTF-8, such as "table.database", or "". It never
// returns a value, which may be a secret.
func noText(path string, message protoreflect.Message) (found string) {
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		name := path + string(field.Name())
		switch {
		case field.IsMap():
			value.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				if found = wrongText("a key of "+name, field.MapKey(), key.Value()); found == "" {
					found = wrongText(fmt.Sprintf("%s[%q]", name, key.String()), field.MapValue(), value)
				}
				return found == ""
			})
		case field.IsList():
			for i := 0; i < value.List().Len() && found == ""; i++ {
				found = wrongText(fmt.Sprintf("%s[%d]", name, i), field, value.List().Get(i))
			}
		default:
			found = wrongText(name, field, value)
		}
		return found == ""
	})
	return found
}

// wrongText does the same for one value.
func wrongText(name string, field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch field.Kind() {
	case protoreflect.StringKind:
		if !utf8.ValidString(value.String()) {
			return name
		}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return noText(name+".", value.Message())
	}
	return ""
}

// headersGiven returns an error if metadata has characters that gRPC cannot send.
func headersGiven(given metadata.MD) error {
	for name, values := range given {
		unsendable := func(value string) bool {
			return strings.ContainsFunc(value, func(letter rune) bool { return letter < ' ' || letter > '~' })
		}
		if strings.HasSuffix(name, "-bin") || !slices.ContainsFunc(values, unsendable) {
			continue
		}
		return invalid(name, "the metadata %s of the context has a line end or a letter beyond ASCII, which gRPC sends in"+
			" metadata alone whose name ends on -bin", name)
	}
	return nil
}
