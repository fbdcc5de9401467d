package functions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Compute computes a value for each row of a batch. The context ends when the client disconnects. The batch is valid
// until Compute returns. The server releases the returned array after it has sent it, so retain a column of the batch
// before you return it. An error applies to the whole batch: see [Error]. Compute is called concurrently for several
// clients, and one batch after the other for each client.
type Compute func(ctx context.Context, batch arrow.RecordBatch) (arrow.Array, error)

// FunctionOption is an option of [Server.Add] and [AddScalar].
type FunctionOption func(*function)

// Version sets the version of a function, instead of that of the running binary: letters, digits, "_", "." and "-".
// Leman treats values of another version as stale, so change the version whenever the values change. If it is empty,
// the binary's version is used.
func Version(version string) FunctionOption {
	return func(f *function) { f.version = version }
}

// Description describes what a function computes.
func Description(text string) FunctionOption {
	return func(f *function) { f.description = text }
}

type function struct {
	name, version, description string
	inputs                     []arrow.Field
	output                     arrow.DataType
	compute                    Compute
}

var versionForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// Add adds a function with its parameters, in the order of a batch's columns, and the type of its values. You can call
// it while the server runs. It panics if the name is empty or already used, or if the function has no parameters.
func (s *Server) Add(
	name string, inputs []arrow.Field, output arrow.DataType, compute Compute, options ...FunctionOption,
) {
	added := &function{name: name, inputs: slices.Clone(inputs), output: output, compute: compute}
	for _, option := range options {
		option(added)
	}
	if added.version == "" {
		added.version = binaryVersion()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	switch {
	case name == "" || len(inputs) == 0 || output == nil || compute == nil:
		panic(fmt.Sprintf("functions: %q needs a name, inputs, an output type and what computes it", name))
	case !versionForm.MatchString(added.version):
		panic(fmt.Sprintf("functions: version %q of %q is not 1 to 128 of A-Z, a-z, 0-9, _, . and -", added.version, name))
	case s.byName[name] != nil:
		panic(fmt.Sprintf("functions: there is a function %q already", name))
	}
	s.byName[name] = added
	s.names = append(s.names, name)
}

// all returns the functions in the order in which they were added.
func (s *Server) all() []*function {
	s.lock.RLock()
	defer s.lock.RUnlock()
	found := make([]*function, len(s.names))
	for i, name := range s.names {
		found[i] = s.byName[name]
	}
	return found
}

// binaryVersion is a digest of the running binary.
var binaryVersion = sync.OnceValue(func() string {
	digest, err := digestOfBinary()
	if err != nil {
		panic(fmt.Sprintf("functions: the running binary cannot be read, give functions a Version: %s", err))
	}
	return digest[:12]
})

func digestOfBinary() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}

func (f *function) inputSchema() *arrow.Schema { return arrow.NewSchema(f.inputs, nil) }

// outputSchema is the schema of results, which names the function and its version.
func (f *function) outputSchema() *arrow.Schema {
	told := arrow.NewMetadata([]string{"leman.function", "leman.version"}, []string{f.name, f.version})
	return arrow.NewSchema([]arrow.Field{{Name: "value", Type: f.output, Nullable: true}}, &told)
}

// answer computes the values of a batch.
func (f *function) answer(ctx context.Context, batch arrow.RecordBatch) (values arrow.Array, err error) {
	if batch.NumRows() == 0 {
		return array.NewBuilder(memory.DefaultAllocator, f.output).NewArray(), nil
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = panicked(cause)
		}
	}()
	values, err = f.compute(ctx, batch)
	if err != nil {
		return nil, err
	}
	if values == nil {
		return nil, &Error{Type: "WrongResult", Message: f.name + " returned neither values nor an error"}
	}
	if int64(values.Len()) != batch.NumRows() || !arrow.TypeEqual(values.DataType(), f.output) {
		defer values.Release()
		return nil, &Error{Type: "WrongResult", Message: fmt.Sprintf("%s returned %d values of %s for %d rows, and is one of %s",
			f.name, values.Len(), values.DataType(), batch.NumRows(), f.output)}
	}
	if wrong := array.ValidateFull(values); wrong != nil { // values that are not UTF-8 would damage the table
		defer values.Release()
		return nil, &Error{Type: "WrongResult", Message: fmt.Sprintf("%s returned values that are none: %s", f.name, wrong)}
	}
	return values, nil
}
