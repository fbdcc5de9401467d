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

// Rows reads the rows of one version of a table or view, one record batch at a time; it is an [array.RecordReader]. It
// holds one batch in memory, whatever the size of the table and however slowly you read. If the call is interrupted, it
// continues after the last row.
//
// Use it from one goroutine, and only once: [Rows.All] after the end of the rows, and Next after Release, are errors;
// call Read again instead. Release it at the end, unless you use [Rows.All], which does so itself.
type Rows struct {
	ctx     context.Context
	cancel  context.CancelFunc
	client  *Client
	request *lemanv1.ReadRowsRequest
	waiting *patience

	references atomic.Int64
	version    int64
	table      string // incarnation: distinguishes tables of the same name
	schema     *arrow.Schema
	incoming   *incoming
	reader     *ipc.Reader
	ended      bool // all rows were read
	err        error
}

var _ array.RecordReader = (*Rows)(nil)

// Read starts to read rows and waits for their schema. The context must stay valid until the rows are released.
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

// Version returns the version of the table that is read.
func (r *Rows) Version() int64 { return r.version }

// Schema returns the schema of all batches.
func (r *Rows) Schema() *arrow.Schema { return r.schema }

// Err returns the error that ended the rows early, usually an [*Error], or the error of reading them twice. Otherwise
// it is nil.
func (r *Rows) Err() error { return r.err }

// RecordBatch returns the current batch. It is valid until the next call of Next, unless you retain it.
func (r *Rows) RecordBatch() arrow.RecordBatch {
	if r.reader == nil {
		return nil
	}
	return r.reader.RecordBatch()
}

// Record is RecordBatch.
//
// Deprecated: it exists because [array.RecordReader] requires it. Use RecordBatch.
func (r *Rows) Record() arrow.RecordBatch { return r.RecordBatch() }

// Retain requires one more call of Release.
func (r *Rows) Retain() { r.references.Add(1) }

// Release ends the call, even before all rows were read. If the rows were retained, the last Release does.
func (r *Rows) Release() {
	if r.references.Add(-1) == 0 {
		r.cancel()
		r.close()
	}
}

// All returns an iterator over the batches, each valid until the next one, and releases the rows at the end. It yields
// an error if the rows were already read to their end, or released.
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

// Next reads the next batch. It returns false at the end or after an error (see Err).
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
			r.cancel() // after the last message, to free the call's resources
			r.ended = true
			return false
		}
		if !r.interrupted(r.reader.Err()) || !r.open() {
			return false
		}
	}
	return false
}

// spent returns the error of reading rows twice.
func spent() error {
	return invalid("rows", "the rows were read to their end, or released: call Read again to read them once more")
}

// took counts rows that were read, so that an interrupted call continues after them, in the same version of the table.
func (r *Rows) took(rows int64) {
	r.waiting.reset()
	r.request.Offset += rows
	r.request.At = &lemanv1.ReadRowsRequest_Version{Version: r.version}
	r.request.Incarnation = r.table
	if r.request.Limit != nil {
		r.request.Limit = proto.Int64(r.request.GetLimit() - rows)
	}
}

// open starts the call, or continues it. It returns false after an error, which it stores in err.
func (r *Rows) open() bool {
	for {
		r.close()
		if r.request.Limit != nil && r.request.GetLimit() == 0 && r.schema != nil {
			r.ended = true
			return false // all requested rows were read
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

// interrupted pauses and returns true if the call should be retried. Otherwise it stores the error in err and returns
// false.
func (r *Rows) interrupted(err error) bool {
	if r.incoming != nil && r.incoming.err != nil {
		err = r.incoming.err // the Arrow reader hides the cause
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

// incoming is a reader over the bytes of a stream's messages.
type incoming struct {
	stream interface {
		Recv() (*lemanv1.ReadRowsResponse, error)
	}
	cancel  context.CancelFunc
	left    []byte
	version int64
	table   string
	err     error // the error that ended the stream, or nil
}

// Read returns the next bytes.
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
