package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type exchange = flight.FlightService_DoExchangeServer

// exchange computes each batch of a stream, in order, until the client has sent all, disconnects, or the server stops.
func (s *service) exchange(called *function, first *flight.FlightData, stream exchange) error {
	reader, err := flight.NewRecordReader(&withFirst{first: first, stream: stream})
	if err != nil {
		return unreadable(err)
	}
	defer reader.Release()
	if err := called.accepts(reader.Schema()); err != nil {
		return err
	}
	answers, err := open(called.outputSchema(), stream)
	if err != nil {
		return err
	}
	defer func() { _ = answers.writer.Close() }()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	read := &reading{batches: make(chan arrow.RecordBatch)}
	reader.Retain()
	go read.ahead(ctx, reader)
	for {
		batch, err := s.next(ctx, read)
		if batch == nil {
			return err
		}
		if err := answers.answer(ctx, called, batch); err != nil {
			return err
		}
	}
}

// next waits for a batch. It returns nil without an error after the last one.
func (s *service) next(ctx context.Context, read *reading) (arrow.RecordBatch, error) {
	stops := status.Error(codes.Unavailable, "this function server stops: call another instance, or this one again")
	select {
	case <-s.stopping:
		return nil, stops
	default:
	}
	select {
	case <-s.stopping:
		return nil, stops
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case batch, more := <-read.batches:
		if !more {
			return nil, read.failed
		}
		return batch, nil
	}
}

// reading reads the batches of a client. It reads the next batch while one is computed.
type reading struct {
	batches chan arrow.RecordBatch // closed after the last batch
	failed  error                  // set before batches is closed
}

func (r *reading) ahead(ctx context.Context, reader *flight.Reader) {
	defer close(r.batches)
	defer reader.Release()
	for {
		batch, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			r.failed = unreadable(err)
			return
		}
		batch.Retain()
		select {
		case r.batches <- batch:
		case <-ctx.Done():
			batch.Release()
			return
		}
	}
}

// unreadable returns an error of gRPC unchanged, and blames the client for any other error.
func unreadable(err error) error {
	if from, is := status.FromError(err); is {
		return from.Err()
	}
	return status.Errorf(codes.InvalidArgument, "what was sent is no stream of Arrow record batches: %s", err)
}

// withFirst is a stream whose first message was already received.
type withFirst struct {
	first  *flight.FlightData
	stream exchange
}

// Recv returns the next message, or an error if a compressed batch would become too large.
func (w *withFirst) Recv() (*flight.FlightData, error) {
	taken := w.first
	w.first = nil
	if taken == nil {
		var err error
		if taken, err = w.stream.Recv(); err != nil {
			return nil, err
		}
	}
	if size := decompressed(taken.GetDataHeader(), taken.GetDataBody()); size > mostDecompressed {
		return nil, status.Errorf(codes.InvalidArgument,
			"a batch says that it has %d bytes decompressed, at most %d are taken: send fewer rows at once",
			size, mostDecompressed)
	}
	return taken, nil
}

// answers writes the server's side of a stream.
type answers struct {
	schema *arrow.Schema
	stream exchange
	writer *ipc.Writer
	opened bool // the schema was sent: the writer would send it again with its first batch
	body   bytes.Buffer
}

// open sends the schema of the results.
func open(schema *arrow.Schema, stream exchange) (*answers, error) {
	a := &answers{schema: schema, stream: stream}
	a.writer = ipc.NewWriterWithPayloadWriter(a, ipc.WithSchema(schema))
	opening := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	defer opening.Release()
	return a, a.send(opening)
}

// Start implements [ipc.PayloadWriter].
func (a *answers) Start() error { return nil }

// Close implements [ipc.PayloadWriter].
func (a *answers) Close() error { return nil }

// WritePayload sends a message of the writer.
func (a *answers) WritePayload(payload ipc.Payload) error {
	if !a.opened {
		a.opened = true
		return nil
	}
	return a.send(payload)
}

func (a *answers) send(payload ipc.Payload) error {
	header := payload.Meta()
	defer header.Release()
	a.body.Reset()
	if err := payload.SerializeBody(&a.body); err != nil {
		return err
	}
	return a.stream.Send(&flight.FlightData{DataHeader: header.Bytes(), DataBody: a.body.Bytes()})
}

// answer computes a batch and sends its values, or its error.
func (a *answers) answer(ctx context.Context, called *function, batch arrow.RecordBatch) error {
	defer batch.Release()
	values, err := called.answer(ctx, batch)
	if ctx.Err() != nil {
		if values != nil {
			values.Release()
		}
		return status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		told, err := json.Marshal(map[string]failure{"error": explain(err)})
		if err != nil {
			return err
		}
		return a.stream.Send(&flight.FlightData{AppMetadata: told})
	}
	defer values.Release()
	answer := array.NewRecordBatch(a.schema, []arrow.Array{values}, batch.NumRows())
	defer answer.Release()
	return a.writer.Write(answer)
}
