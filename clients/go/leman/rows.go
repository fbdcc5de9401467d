package leman

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	lemanv1 "leman.dev/go/leman/v1"
)

// Rows are the rows of one version of a table or view, record batch by record batch: an [array.RecordReader]. It holds a
// batch at a time, however large the table is and however slowly it is read; interrupted, it continues where it was.
//
// It is read by one goroutine, once: [Rows.All] of rows that were read to their end or released, and Next of released ones,
// are errors; call Read again. Release it in the end; a reader of [Rows.All] need not.
type Rows struct {
	ctx     context.Context
	cancel  context.CancelFunc
	client  *Client
	request *lemanv1.ReadRowsRequest
	waiting *patience

	references atomic.Int64
	version    int64
	table      string // which of those that had the name: its incarnation
	schema     *arrow.Schema
	incoming   *incoming
	reader     *ipc.Reader
	ended      bool // all were read
	err        error
}

var _ array.RecordReader = (*Rows)(nil)

// Read begins to read rows, and waits for their schema. The context holds until the rows are released.
func (r relation) Read(ctx context.Context, options ...ReadOption) (*Rows, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	request := &lemanv1.ReadRowsRequest{Table: r.ref()}
	for _, option := range options {
		option.read(request)
	}
	err := noneNegative(
		amount{"limit", request.GetLimit()}, amount{"offset", request.GetOffset()},
		amount{"batch_size", int64(request.GetBatchSize())},
	)
	if err != nil {
		return nil, err
	}
	_, versioned := request.GetAt().(*lemanv1.ReadRowsRequest_Version)
	if err := versionIsOne("version", versioned, request.GetVersion()); err != nil {
		return nil, err
	}
	client := r.client()
	if err := client.made(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	rows := &Rows{ctx: ctx, cancel: cancel, client: client, request: request, waiting: newPatience(client.patience).forReading()}
	rows.references.Store(1)
	if !rows.open() {
		rows.Release()
		return nil, rows.err
	}
	rows.schema = rows.reader.Schema()
	rows.version, rows.table = rows.incoming.version, rows.incoming.table
	return rows, nil
}

// Version is the version of the table that is read.
func (r *Rows) Version() int64 { return r.version }

// Schema is that of all batches.
func (r *Rows) Schema() *arrow.Schema { return r.schema }

// Err is what ended the rows early, usually an [*Error], or that they were read again; nil: nothing did.
func (r *Rows) Err() error { return r.err }

// RecordBatch is the current batch. It is valid until the next call of Next, unless it is retained.
func (r *Rows) RecordBatch() arrow.RecordBatch {
	if r.reader == nil {
		return nil
	}
	return r.reader.RecordBatch()
}

// Record is RecordBatch.
//
// Deprecated: [array.RecordReader] asks for it. Use RecordBatch.
func (r *Rows) Record() arrow.RecordBatch { return r.RecordBatch() }

// Retain has the rows wait for one more Release.
func (r *Rows) Retain() { r.references.Add(1) }

// Release ends the call, whatever is still to come, once it was called as often as the rows were retained.
func (r *Rows) Release() {
	if r.references.Add(-1) == 0 {
		r.cancel()
		r.close()
	}
}

// All gives the batches, which are valid until the next one, and releases the rows in the end. It gives them once: of rows
// that were read to their end, or released, an error.
func (r *Rows) All() iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		if r.ended {
			r.err = cmp.Or(r.err, spent())
		} else {
			defer r.Release()
		}
		for r.Next() {
			if !yield(r.RecordBatch(), nil) {
				return
			}
		}
		if r.err != nil {
			yield(nil, r.err)
		}
	}
}

// Next takes the next batch; false: there is none, or an error (see Err).
func (r *Rows) Next() bool {
	if r.references.Load() < 1 {
		r.err = cmp.Or(r.err, spent())
	}
	for r.err == nil && r.reader != nil {
		if r.reader.Next() {
			r.took(r.reader.RecordBatch().NumRows())
			return true
		}
		if r.reader.Err() == nil {
			r.cancel() // the last answer was read; nothing is left of the call
			r.ended = true
			return false
		}
		if !r.interrupted(r.reader.Err()) || !r.open() {
			return false
		}
	}
	return false
}

// spent is the error of rows that are read again.
func spent() error {
	return invalid("rows", "the rows were read to their end, or released: call Read again to read them once more")
}

// took has an interrupted call go on behind rows that were read, in the version of the table that they are of.
func (r *Rows) took(rows int64) {
	r.waiting.reset()
	r.request.Offset += rows
	r.request.At = &lemanv1.ReadRowsRequest_Version{Version: r.version}
	r.request.Incarnation = r.table
	if r.request.Limit != nil {
		r.request.Limit = proto.Int64(r.request.GetLimit() - rows)
	}
}

// open begins the call, or continues with it; false: it fails, see err.
func (r *Rows) open() bool {
	for {
		r.close()
		if r.request.Limit != nil && r.request.GetLimit() == 0 && r.schema != nil {
			r.ended = true
			return false // all was read that was asked for
		}
		ctx, cancel := context.WithCancel(r.ctx)
		stream, err := r.client.tables().ReadRows(ctx, r.request, onceByGRPC)
		if err == nil {
			r.incoming = &incoming{stream: stream, cancel: cancel}
			if r.reader, err = ipc.NewReader(r.incoming); err == nil {
				return true
			}
		} else {
			cancel()
		}
		if !r.interrupted(err) {
			return false
		}
	}
}

// interrupted returns true when the call is worth another attempt, after a pause; false: see err.
func (r *Rows) interrupted(err error) bool {
	if r.incoming != nil && r.incoming.err != nil {
		err = r.incoming.err // the reader only says that it could not read
	}
	var failed *Error
	if !errors.As(err, &failed) {
		failed = &Error{Code: codes.DataLoss, Message: "the rows cannot be read: " + err.Error(), cause: err}
	}
	if r.client.again(r.ctx, failed, r.waiting) {
		return true
	}
	r.err = r.client.ending(r.ctx, failed)
	return false
}

func (r *Rows) close() {
	if r.reader != nil {
		r.reader.Release()
		r.reader = nil
	}
	if r.incoming != nil {
		r.incoming.cancel()
		r.incoming = nil
	}
}

// incoming reads the bytes of a stream's answers, one after the other.
type incoming struct {
	stream interface {
		Recv() (*lemanv1.ReadRowsResponse, error)
	}
	cancel  context.CancelFunc
	left    []byte
	version int64
	table   string
	err     error // what ended the stream, if it was not its end
}

// Read takes the next bytes.
func (i *incoming) Read(into []byte) (int, error) {
	for len(i.left) == 0 {
		answer, err := i.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			i.err = err
			return 0, err
		}
		if i.version == 0 {
			i.version, i.table = answer.GetVersion(), answer.GetIncarnation()
		}
		i.left = answer.GetArrowIpc()
	}
	n := copy(into, i.left)
	i.left = i.left[n:]
	return n, nil
}
