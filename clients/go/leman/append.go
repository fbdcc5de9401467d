package leman

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/util"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	lemanv1 "leman.dev/go/leman/v1"
)

const (
	appendPiece = 1 << 20
	appendBatch = 16 << 20
)

// Source provides the rows of a call. Make one with [Batches], [Reader] or [Reopened].
type Source struct {
	open func() (array.RecordReader, error)
}

// Batches returns a source of rows in memory. If the services become unavailable during the call, it sends the rows
// again.
func Batches(schema *arrow.Schema, batches ...arrow.RecordBatch) Source {
	return Source{func() (array.RecordReader, error) {
		if schema == nil {
			return nil, invalid("schema", "the schema of the rows is nil: give that of the batches")
		}
		if err := allGiven("batches", batches); err != nil {
			return nil, err
		}
		return array.NewRecordReader(schema, batches)
	}}
}

// Reopened returns a source that calls open for each attempt to send the rows. open must return the same rows each
// time. If the services become unavailable during the call, it opens and sends them again.
func Reopened(open func() (array.RecordReader, error)) Source { return Source{open} }

var errSpent = errors.New("what the reader gave is gone")

// Reader returns a source that sends the rows of a reader, and releases the reader at the end. A reader can be read
// only once. So if the services become unavailable during the call, the rows are not sent again, and the call fails.
func Reader(reader array.RecordReader) Source {
	spent := false
	return Source{func() (array.RecordReader, error) {
		if spent {
			return nil, errSpent
		}
		spent = true
		return reader, nil
	}}
}

// start opens the rows for one attempt.
func (s Source) start() (array.RecordReader, error) {
	if s.open == nil {
		return nil, invalid("rows", "rows has no source: it is made by Batches, Reader or Reopened")
	}
	reader, err := s.open()
	if err == nil && isNil(reader) {
		return nil, invalid("rows", "the reader of rows is nil")
	}
	return reader, err
}

// startingWith returns a source whose first attempt uses a reader that is already open.
func (s Source) startingWith(first array.RecordReader) Source {
	return Source{func() (array.RecordReader, error) {
		if first == nil {
			return s.open()
		}
		opened := first
		first = nil
		return opened, nil
	}}
}

// AppendOption is an option of [Table.Append].
type AppendOption func(*lemanv1.AppendRowsHeader)

// MaxRowsPerFragment limits the number of rows in a new fragment. The default is 1,048,576.
func MaxRowsPerFragment(rows int64) AppendOption {
	return func(header *lemanv1.AppendRowsHeader) { header.MaxRowsPerFragment = rows }
}

// Appended is the result of [Table.Append].
type Appended struct {
	// Version is the version of the table that has the new rows.
	Version int64
	// Rows is the number of rows added.
	Rows int64
}

// Append adds rows to the table in one new version: all of them or, after an error, none. Columns that are missing from
// the rows become NULL. Append holds one record batch at a time in memory, and at most 16 MiB of it in encoded form.
func (t *Table) Append(ctx context.Context, rows Source, options ...AppendOption) (Appended, error) {
	if err := checked(ctx, options); err != nil {
		return Appended{}, err
	}
	header := &lemanv1.AppendRowsHeader{Table: t.ref(), RequestId: requestID(ctx)}
	for _, option := range options {
		option(header)
	}
	if err := noneNegative(amount{"max_rows_per_fragment", header.GetMaxRowsPerFragment()}); err != nil {
		return Appended{}, err
	}
	var answer *lemanv1.AppendRowsResponse
	err := t.client().upload(ctx, func(ctx context.Context) error {
		reader, err := rows.start()
		if err != nil {
			return err
		}
		defer reader.Release()
		answer, err = t.send(ctx, header, reader)
		return err
	})
	return Appended{answer.GetVersion(), answer.GetRowsAdded()}, err
}

// upload makes a call that streams rows, and retries it while the services are unavailable. An error that does not come
// from the services ends it without a retry. So does a second attempt with a source that can be read only once.
func (c *Client) upload(ctx context.Context, once func(ctx context.Context) error) error {
	if err := cmp.Or(contextGiven(ctx), c.made()); err != nil {
		return err
	}
	waiting := newPatience(c.patience)
	var failed *Error
	for {
		err := once(ctx)
		if errors.Is(err, errSpent) && failed != nil {
			return failed
		}
		if err == nil || !errors.As(err, &failed) {
			return err
		}
		stalled := failed.Code == codes.Aborted && failed.Reason == lemanv1.ErrorReason_UPLOAD_STALLED.String()
		if !c.again(ctx, failed, waiting) && (!stalled || !waiting.wait(ctx, 0)) {
			return c.ending(ctx, failed)
		}
	}
}

// send makes one attempt.
func (t *Table) send(
	ctx context.Context, header *lemanv1.AppendRowsHeader, reader array.RecordReader,
) (*lemanv1.AppendRowsResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an incomplete upload changes nothing
	stream, err := t.client().tables().AppendRows(ctx)
	if err != nil {
		return nil, err
	}
	first := &lemanv1.AppendRowsRequest{Part: &lemanv1.AppendRowsRequest_Header{Header: header}}
	return sendRows(appendStream{stream}, first, reader)
}

// rowStream is a call that sends a header and then rows, and receives one response.
type rowStream[Q, A any] interface {
	Send(message *Q) error
	CloseAndRecv() (*A, error)
	piece(data []byte) *Q
}

type appendStream struct {
	grpc.ClientStreamingClient[lemanv1.AppendRowsRequest, lemanv1.AppendRowsResponse]
}

func (appendStream) piece(data []byte) *lemanv1.AppendRowsRequest {
	return &lemanv1.AppendRowsRequest{Part: &lemanv1.AppendRowsRequest_ArrowIpc{ArrowIpc: data}}
}

func sendRows[Q, A any](stream rowStream[Q, A], first *Q, reader array.RecordReader) (*A, error) {
	err := stream.Send(first)
	if err == nil {
		err = write(&pieces{send: func(data []byte) error { return stream.Send(stream.piece(data)) }}, reader)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream.CloseAndRecv() // after EOF: it returns the error of the call
}

// write sends rows as an Arrow IPC stream. It returns io.EOF if the services accept no more messages.
func write(sink *pieces, reader array.RecordReader) error {
	writer := ipc.NewWriter(sink, ipc.WithSchema(reader.Schema()))
	for reader.Next() {
		batch := reader.RecordBatch()
		most := max(1, appendBatch*batch.NumRows()/max(1, util.TotalRecordSize(batch)))
		for at := int64(0); at < batch.NumRows(); at += most {
			piece := batch.NewSlice(at, min(at+most, batch.NumRows()))
			err := writer.Write(piece)
			piece.Release()
			if err != nil {
				return errors.Join(sink.err, err)
			}
		}
	}
	if err := reader.Err(); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return errors.Join(sink.err, err)
	}
	return sink.flush()
}

// pieces is a writer that sends what is written to it in messages of one megabyte.
type pieces struct {
	send func(data []byte) error
	held []byte
	err  error
}

// Write buffers the bytes and sends a message when there are enough for one.
func (p *pieces) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), appendPiece-len(p.held))
		p.held, rest = append(p.held, rest[:n]...), rest[n:]
		if len(p.held) == appendPiece {
			if err := p.flush(); err != nil {
				return len(data) - len(rest), err
			}
		}
	}
	return len(data), nil
}

func (p *pieces) flush() error {
	if len(p.held) == 0 {
		return nil
	}
	p.err = p.send(p.held)
	p.held = nil // the message owns the buffer now
	return p.err
}
