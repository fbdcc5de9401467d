package leman

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// typesGiven returns an error if a field has no type, because a schema cannot have such a field.
func typesGiven(name string, fields []arrow.Field) error {
	for i, field := range fields {
		if isNil(field.Type) {
			return invalid(name, "%s: the type of number %d, %q, is nil: give it", name, i+1, field.Name)
		}
	}
	return nil
}

// namesAreText returns an error if the name of a field, or of a field within it, is not UTF-8. Arrow would send it
// unchecked.
func namesAreText(name string, fields []arrow.Field) error {
	for _, field := range fields {
		if !utf8.ValidString(field.Name) {
			return invalid(name, "%s: the name %q is no UTF-8: give text, such as by strings.ToValidUTF8", name, field.Name)
		}
		if nested, is := field.Type.(arrow.NestedType); is {
			if err := namesAreText(name, nested.Fields()); err != nil {
				return err
			}
		}
	}
	return nil
}

// EncodeSchema encodes a schema as an Arrow IPC message, for requests to the services.
func EncodeSchema(schema *arrow.Schema) ([]byte, error) {
	if schema == nil {
		return nil, invalid("schema", "schema is nil: give that of the table")
	}
	if err := namesAreText("schema", schema.Fields()); err != nil {
		return nil, err
	}
	payload := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer payload.Release()
	var message bytes.Buffer
	if _, err := payload.WritePayload(&message); err != nil {
		return nil, fmt.Errorf("leman: the schema cannot be encoded: %w", err)
	}
	return message.Bytes(), nil
}

// DecodeSchema decodes a schema from an Arrow IPC message, as responses of the services have it.
func DecodeSchema(message []byte) (*arrow.Schema, error) {
	most := int64(len(message)) // an invalid message may declare any size
	messages := ipc.NewMessageReader(bytes.NewReader(message), ipc.WithMetadataSizeLimit(most), ipc.WithBodySizeLimit(most))
	reader, err := ipc.NewReaderFromMessageReader(messages)
	if err != nil {
		return nil, fmt.Errorf("leman: the schema cannot be decoded: %w", err)
	}
	defer reader.Release()
	return reader.Schema(), nil
}
