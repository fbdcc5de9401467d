package leman

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lemanv1 "leman.dev/go/leman/v1"
)

var numbers = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

// batch has the numbers from one to behind another.
func batch(from, to int64) arrow.RecordBatch {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, numbers)
	defer builder.Release()
	for n := from; n < to; n++ {
		builder.Field(0).(*array.Int64Builder).Append(n)
	}
	return builder.NewRecordBatch()
}

func values(t *testing.T, rows *Rows) []int64 {
	t.Helper()
	var all []int64
	for batch, err := range rows.All() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, batch.Column(0).(*array.Int64).Int64Values()...)
	}
	return all
}

func upTo(n int64) []int64 {
	var all []int64
	for i := range n {
		all = append(all, i)
	}
	return all
}

// shelf serves 100 numbers in batches of ten, of version 4, in pieces of a few bytes.
type shelf struct {
	cuts  []int // batches after which a stream is cut
	asked []*lemanv1.ReadRowsRequest
	left  chan struct{}
}

func (s *shelf) read(stream grpc.ServerStream) error {
	request := &lemanv1.ReadRowsRequest{}
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	s.asked = append(s.asked, request)
	end := int64(100)
	if request.Limit != nil {
		end = min(end, request.GetOffset()+request.GetLimit())
	}
	var buffer bytes.Buffer
	writer := ipc.NewWriter(&buffer, ipc.WithSchema(numbers))
	first := true
	answer := func(content []byte) *lemanv1.ReadRowsResponse {
		if !first {
			return &lemanv1.ReadRowsResponse{ArrowIpc: content}
		}
		first = false
		return &lemanv1.ReadRowsResponse{ArrowIpc: content, Version: 4, Incarnation: "made once"}
	}
	send := func() error {
		for buffer.Len() > 0 {
			if err := stream.SendMsg(answer(bytes.Clone(buffer.Next(100)))); err != nil {
				return err
			}
		}
		return nil
	}
	for n, sent := request.GetOffset(), 0; n < end; n, sent = n+10, sent+1 {
		if len(s.cuts) > 0 && s.cuts[0] == sent {
			s.cuts = s.cuts[1:]
			half := buffer.Len()
			_ = writer.Write(batch(n, min(n+10, end)))
			buffer.Truncate(half + 50) // in the middle of a batch
			_ = send()
			return status.Error(codes.Unavailable, "cut")
		}
		if err := errors.Join(writer.Write(batch(n, min(n+10, end))), send()); err != nil {
			if s.left != nil {
				close(s.left)
			}
			return err
		}
	}
	return errors.Join(writer.Close(), send())
}

func TestRowsThatAreInterruptedGoOn(t *testing.T) {
	stored := &shelf{cuts: []int{0, 2, 0, 5}}
	services := serve(t, map[string]handler{"TableService/ReadRows": stored.read})
	table := services.connected().Database("lake").Table("docs")

	rows, err := table.Read(t.Context(), Where("n >= 0"), AtTag("monday"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, rows.Schema().Equal(numbers) && rows.Version() == 4, "%v %d", rows.Schema(), rows.Version())
	found := values(t, rows)

	check(t, slices.Equal(found, upTo(100)), "%v", found)
	check(t, stored.asked[0].GetTag() == "monday" && stored.asked[0].GetIncarnation() == "", "%v", stored.asked[0])
	for _, request := range stored.asked[2:] {
		check(t, request.GetVersion() == 4 && request.GetWhere() == "n >= 0", "%v", request)
		check(t, request.GetIncarnation() == "made once", "%v", request)
	}
}

func TestALimitHoldsOverInterruptions(t *testing.T) {
	stored := &shelf{cuts: []int{1, 1}}
	services := serve(t, map[string]handler{"TableService/ReadRows": stored.read})

	rows, err := services.connected().Database("lake").Table("docs").Read(t.Context(), Limit(25), Offset(5))
	if err != nil {
		t.Fatal(err)
	}

	check(t, slices.Equal(values(t, rows), upTo(30)[5:]), "%v", stored.asked)
	check(t, stored.asked[2].GetLimit() == 5 && stored.asked[2].GetOffset() == 25, "%v", stored.asked[2])
}

func TestRowsThatAreLeftEndTheCall(t *testing.T) {
	left := make(chan struct{})
	services := serve(t, map[string]handler{"TableService/ReadRows": func(stream grpc.ServerStream) error {
		var buffer bytes.Buffer
		_ = ipc.NewWriter(&buffer, ipc.WithSchema(numbers)).Write(batch(0, 10))
		_ = stream.SendMsg(&lemanv1.ReadRowsResponse{ArrowIpc: buffer.Bytes(), Version: 1})
		<-stream.Context().Done()
		close(left)
		return nil
	}})
	rows, err := services.connected().Database("lake").Table("docs").Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	for range rows.All() {
		break
	}

	<-left
}

func TestRowsAreReadOnce(t *testing.T) {
	services := serve(t, map[string]handler{"TableService/ReadRows": func(stream grpc.ServerStream) error {
		return (&shelf{}).read(stream)
	}})
	table := services.connected().Database("lake").Table("docs")
	for name, read := range map[string]func(*Rows){
		"to the end": func(rows *Rows) { check(t, len(values(t, rows)) == 100, "not all") },
		"in part":    func(rows *Rows) { rows.All()(func(arrow.RecordBatch, error) bool { return false }) },
		"released":   func(rows *Rows) { rows.Release() },
		"and held":   func(rows *Rows) { rows.Retain(); values(t, rows) },
		"by Next": func(rows *Rows) {
			for rows.Next() {
			}
			check(t, !rows.Next(), "it goes on")
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := table.Read(t.Context())
			check(t, err == nil, "%v", err)
			defer rows.cancel()
			read(rows)
			check(t, rows.Err() == nil, "%v", rows.Err())

			items, err := Collect(rows.All())

			var failed *Error
			check(t, errors.As(err, &failed) && failed.Code == codes.InvalidArgument, "%v", err)
			check(t, len(items) == 0 && errors.Is(rows.Err(), err), "%d, %v", len(items), rows.Err())
		})
	}
}

func TestRowsOfNoTable(t *testing.T) {
	services := serve(t, map[string]handler{"TableService/ReadRows": func(grpc.ServerStream) error {
		return refusal(codes.NotFound, "TABLE_NOT_FOUND", 0)
	}})

	_, err := services.connected().Database("lake").Table("docs").Read(t.Context())

	check(t, HasReason(err, lemanv1.ErrorReason_TABLE_NOT_FOUND), "%v", err)
}

func TestAnErrorBetweenRowsIsTold(t *testing.T) {
	services := serve(t, map[string]handler{"TableService/ReadRows": func(stream grpc.ServerStream) error {
		var buffer bytes.Buffer
		_ = ipc.NewWriter(&buffer, ipc.WithSchema(numbers)).Write(batch(0, 10))
		_ = stream.SendMsg(&lemanv1.ReadRowsResponse{ArrowIpc: buffer.Bytes(), Version: 1})
		return refusal(codes.FailedPrecondition, "FILTER_FAILED", 0)
	}})
	rows, err := services.connected().Database("lake").Table("docs").Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Release()

	check(t, rows.Next() && rows.RecordBatch().NumRows() == 10, "no batch")
	check(t, !rows.Next() && HasReason(rows.Err(), lemanv1.ErrorReason_FILTER_FAILED), "%v", rows.Err())
	check(t, !rows.Next() && rows.RecordBatch() == nil, "there was more")
}

// intake receives rows, and fails the requested number of times.
type intake struct {
	fails   []error
	before  bool // fail before all was read
	headers []*lemanv1.AppendRowsHeader
	rows    []int64
	batches []int64
	largest int
}

func (i *intake) append(stream grpc.ServerStream) error {
	first := &lemanv1.AppendRowsRequest{}
	if err := stream.RecvMsg(first); err != nil {
		return err
	}
	i.headers = append(i.headers, first.GetHeader())
	fails := len(i.fails) > 0
	var failure error
	if fails {
		failure, i.fails = i.fails[0], i.fails[1:]
		if i.before {
			return failure
		}
	}
	var content bytes.Buffer
	for {
		message := &lemanv1.AppendRowsRequest{}
		if err := stream.RecvMsg(message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		i.largest = max(i.largest, len(message.GetArrowIpc()))
		content.Write(message.GetArrowIpc())
	}
	if fails {
		return failure
	}
	reader, err := ipc.NewReader(&content)
	if err != nil {
		return err
	}
	defer reader.Release()
	i.rows, i.batches = nil, nil
	for reader.Next() {
		i.rows = append(i.rows, reader.RecordBatch().Column(0).(*array.Int64).Int64Values()...)
		i.batches = append(i.batches, reader.RecordBatch().NumRows())
	}
	return stream.SendMsg(&lemanv1.AppendRowsResponse{Version: 2, RowsAdded: int64(len(i.rows))})
}

func TestRowsAreSentAgainUnderTheirID(t *testing.T) {
	lost := []error{
		status.Error(codes.Unavailable, "away"), refusal(codes.ResourceExhausted, "TOO_MANY_UPLOADS", 1),
		refusal(codes.Aborted, "UPLOAD_STALLED", 0),
	}
	for _, before := range []bool{false, true} {
		taken := &intake{fails: lost, before: before}
		services := serve(t, map[string]handler{"TableService/AppendRows": taken.append})
		table := services.connected().Database("lake").Table("docs")
		source := Batches(numbers, batch(0, 10), batch(10, 25))

		added, err := table.Append(t.Context(), source, MaxRowsPerFragment(7))

		check(t, err == nil && added == Appended{2, 25}, "%v %v", added, err)
		check(t, slices.Equal(taken.rows, upTo(25)), "%v", taken.rows)
		check(t, len(taken.headers) == 4, "%d calls", len(taken.headers))
		for _, header := range taken.headers {
			check(t, header.GetRequestId() == taken.headers[0].GetRequestId() && header.GetRequestId() != "", "%v", header)
			check(t, header.GetMaxRowsPerFragment() == 7 && header.GetTable().GetTable() == "docs", "%v", header)
		}
	}
}

func TestAReaderIsSentOnce(t *testing.T) {
	taken := &intake{fails: []error{status.Error(codes.Unavailable, "away")}}
	services := serve(t, map[string]handler{"TableService/AppendRows": taken.append})
	table := services.connected().Database("lake").Table("docs")
	reader, err := array.NewRecordReader(numbers, []arrow.RecordBatch{batch(0, 3)})
	if err != nil {
		t.Fatal(err)
	}

	_, err = table.Append(t.Context(), Reader(reader))

	check(t, status.Code(err) == codes.Unavailable && len(taken.headers) == 1, "%d calls: %v", len(taken.headers), err)
}

func TestALargeBatchIsSentInParts(t *testing.T) {
	taken := &intake{}
	services := serve(t, map[string]handler{"TableService/AppendRows": taken.append})
	const rows = 5 << 20 // 40 MiB

	added, err := services.connected().Database("lake").Table("docs").Append(t.Context(), Batches(numbers, batch(0, rows)))

	check(t, err == nil && added.Rows == rows, "%v %v", added, err)
	check(t, taken.largest == appendPiece, "a message had %d bytes", taken.largest)
	check(t, len(taken.batches) == 3 && slices.Max(taken.batches) <= appendBatch/8, "%v", taken.batches)
	check(t, taken.rows[rows-1] == rows-1, "%d", taken.rows[rows-1])
}

func TestWhatASourceSaysIsTheError(t *testing.T) {
	broken := errors.New("the file ends early")
	taken := &intake{}
	services := serve(t, map[string]handler{"TableService/AppendRows": taken.append})
	table := services.connected().Database("lake").Table("docs")

	_, err := table.Append(t.Context(), Reopened(func() (array.RecordReader, error) {
		return array.ReaderFromIter(numbers, func(yield func(arrow.RecordBatch, error) bool) {
			_ = yield(batch(0, 3), nil) && yield(nil, broken)
		}), nil
	}))
	check(t, errors.Is(err, broken), "%v", err)

	_, err = table.Append(t.Context(), Reopened(func() (array.RecordReader, error) { return nil, broken }))
	check(t, errors.Is(err, broken) && taken.rows == nil, "%v", err)
}

func TestATableWhoseRowsAreRefusedGoesAgain(t *testing.T) {
	var created, dropped lemanv1.CreateTableRequest
	refused := &intake{fails: []error{refusal(codes.FailedPrecondition, "NULL_VALUE", 0)}}
	services := serve(t, map[string]handler{
		"TableService/AppendRows": refused.append,
		"TableService/CreateTable": func(stream grpc.ServerStream) error {
			_ = stream.RecvMsg(&created)
			return stream.SendMsg(&lemanv1.CreateTableResponse{Version: 1})
		},
		"TableService/DropTable": func(stream grpc.ServerStream) error {
			_ = stream.RecvMsg(&dropped)
			return stream.SendMsg(&lemanv1.DropTableResponse{})
		},
	})
	db := services.connected().Database("lake")

	_, err := db.CreateTableFrom(t.Context(), "docs", Batches(numbers, batch(0, 3)), WithoutStableRowIDs())

	check(t, HasReason(err, lemanv1.ErrorReason_NULL_VALUE), "%v", err)
	check(t, services.count("TableService/DropTable") == 1, "the table is there")
	schema, err := DecodeSchema(created.GetSchema())
	check(t, err == nil && schema.Equal(numbers), "%v %v", schema, err)
	check(t, created.StableRowIds != nil && !created.GetStableRowIds(), "%v", &created)

	table, err := db.CreateTableFrom(t.Context(), "docs", Batches(numbers, batch(0, 3)), Appending(MaxRowsPerFragment(2)))

	check(t, err == nil && table.Name() == "docs" && slices.Equal(refused.rows, upTo(3)), "%v", err)
	check(t, refused.headers[1].GetMaxRowsPerFragment() == 2, "%v", refused.headers[1])
}

func TestABundleIsSentAgain(t *testing.T) {
	bundle := bytes.Repeat([]byte("leman"), 300_000)
	var received []byte
	fails := 2
	services := serve(t, map[string]handler{"CatalogService/UploadBundle": func(stream grpc.ServerStream) error {
		received = nil
		for {
			message := &lemanv1.UploadBundleRequest{}
			if err := stream.RecvMsg(message); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			received = append(received, message.GetData()...)
			if fails > 0 && len(received) > 600_000 { // more than gRPC keeps to send it again by itself
				fails--
				return status.Error(codes.Unavailable, "away")
			}
		}
		return stream.SendMsg(&lemanv1.UploadBundleResponse{Created: true})
	}})

	created, err := services.connected().Database("lake").UploadBundle(t.Context(), bytes.NewReader(bundle))

	check(t, err == nil && created && fails == 0, "%v", err)
	check(t, bytes.Equal(received, bundle), "%d bytes arrived", len(received))
}

func TestABundleThatIsThereIsNotSentWhole(t *testing.T) {
	services := serve(t, map[string]handler{"CatalogService/UploadBundle": func(stream grpc.ServerStream) error {
		_ = stream.RecvMsg(&lemanv1.UploadBundleRequest{})
		return stream.SendMsg(&lemanv1.UploadBundleResponse{})
	}})
	bundle := bytes.NewReader(make([]byte, 8<<20))

	created, err := services.connected().Database("lake").UploadBundle(t.Context(), bundle)

	check(t, err == nil && !created, "%v", err)
}

func TestSchemasComeBackAsTheyWent(t *testing.T) {
	odd := arrow.NewSchema([]arrow.Field{
		{Name: "día 日", Type: arrow.FixedWidthTypes.Timestamp_us},
		{Name: "vector", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32), Nullable: true},
		{Name: "code", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}},
	}, nil)
	message, err := EncodeSchema(odd)
	if err != nil {
		t.Fatal(err)
	}

	back, err := DecodeSchema(message)

	check(t, err == nil && back.Equal(odd), "%v %v", back, err)
	_, err = DecodeSchema([]byte("none"))
	check(t, err != nil, "%s", fmt.Sprint(err))
}
