package functions

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// kept is messages that were to be sent.
type kept []*flight.FlightData

func (k *kept) Send(data *flight.FlightData) error {
	*k = append(*k, &flight.FlightData{
		DataHeader: append([]byte(nil), data.GetDataHeader()...), DataBody: append([]byte(nil), data.GetDataBody()...),
	})
	return nil
}

// written is the schema and a batch of zeros, as they are sent.
func written(t *testing.T, rows int, options ...ipc.Option) kept {
	t.Helper()
	builder := array.NewInt64Builder(memory.DefaultAllocator)
	defer builder.Release()
	builder.AppendValues(make([]int64, rows), nil)
	values := builder.NewArray()
	defer values.Release()
	batch := array.NewRecordBatch(int64s, []arrow.Array{values}, int64(rows))
	defer batch.Release()
	var messages kept
	writer := flight.NewRecordWriter(&messages, append(options, ipc.WithSchema(int64s))...)
	check(t, writer.Write(batch) == nil, "it was not written")
	check(t, writer.Close() == nil, "it was not closed")
	return messages
}

func TestACompressedBatchTellsWhatItBecomes(t *testing.T) {
	for _, compressed := range []ipc.Option{ipc.WithZstd(), ipc.WithLZ4()} {
		messages := written(t, 100_000, compressed)
		size := decompressed(messages[1].GetDataHeader(), messages[1].GetDataBody())
		check(t, size >= 800_000 && size < 900_000, "it becomes %d bytes", size)
		check(t, decompressed(messages[0].GetDataHeader(), nil) == 0, "a schema is no batch")
	}
	plain := written(t, 100_000)
	check(t, decompressed(plain[1].GetDataHeader(), plain[1].GetDataBody()) == 0, "nothing is compressed")
}

func TestWhatIsNoMessageTellsNothing(t *testing.T) {
	message := written(t, 10, ipc.WithZstd())[1]
	for range 20_000 {
		header := append([]byte(nil), message.GetDataHeader()...)
		for range 4 {
			header[rand.IntN(len(header))] = byte(rand.Uint32())
		}
		_ = decompressed(header[:rand.IntN(len(header)+1)], message.GetDataBody()) // and does not panic
	}
}

func TestABatchThatBecomesTooLargeIsRefusedAndTheServerServesOn(t *testing.T) {
	server := New()
	double := func(_ context.Context, n int64) (int64, error) { return 2 * n, nil }
	AddScalar(server, "double", "n", double, Version("1"))
	address, _ := served(t, server)
	client := connected(t, address, insecure.NewCredentials())
	calls, err := client.DoExchange(t.Context())
	check(t, err == nil, "%v", err)
	messages := written(t, 100, ipc.WithZstd())
	command, err := json.Marshal(request{Protocol: protocol, Function: "double", Version: "1"})
	check(t, err == nil, "%v", err)
	messages[0].FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: command}
	binary.LittleEndian.PutUint64(messages[1].GetDataBody(), 1<<40)
	for _, message := range messages {
		check(t, calls.Send(message) == nil, "it was not sent")
	}
	for err == nil {
		_, err = calls.Recv()
	}
	check(t, status.Code(err) == codes.InvalidArgument, "%v", err)

	after := ask(t, client, "double", "1", int64s)
	after.send(int64(4))
	answer, err := after.receive()
	check(t, err == nil && answer == "[8]", "%q %v", answer, err)
}
