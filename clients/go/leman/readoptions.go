package leman

import lemanv1 "leman.dev/go/leman/v1"

// ReadOption is an option of [Table.Read]; it selects rows and columns.
type ReadOption interface {
	read(request *lemanv1.ReadRowsRequest)
}

type readFunc func(request *lemanv1.ReadRowsRequest)

func (f readFunc) read(request *lemanv1.ReadRowsRequest) { f(request) }

// RowsOption selects rows to read or to compute.
type RowsOption interface {
	ReadOption
	BackfillOption
}

type rowsOption struct {
	reading func(*lemanv1.ReadRowsRequest)
	filling func(*lemanv1.BackfillSpec)
}

func (o rowsOption) read(request *lemanv1.ReadRowsRequest)      { o.reading(request) }
func (o rowsOption) backfill(request *lemanv1.CreateJobRequest) { o.filling(request.GetBackfill()) }

// Where selects the rows for which the SQL condition is true.
func Where(sql string) RowsOption {
	return rowsOption{
		func(request *lemanv1.ReadRowsRequest) { request.Where = sql },
		func(spec *lemanv1.BackfillSpec) { spec.Where = sql },
	}
}

// AtVersion reads a version of the table, 1 or more. A backfill with AtVersion computes from the rows of that version.
func AtVersion(version int64) RowsOption {
	return rowsOption{
		func(request *lemanv1.ReadRowsRequest) {
			request.At = &lemanv1.ReadRowsRequest_Version{Version: version}
		},
		func(spec *lemanv1.BackfillSpec) {
			spec.ReadFrom = &lemanv1.BackfillSpec_ReadVersion{ReadVersion: version}
		},
	}
}

// AtTag reads the version that a tag of the table refers to; see [AtVersion].
func AtTag(tag string) RowsOption {
	return rowsOption{
		func(request *lemanv1.ReadRowsRequest) { request.At = &lemanv1.ReadRowsRequest_Tag{Tag: tag} },
		func(spec *lemanv1.BackfillSpec) { spec.ReadFrom = &lemanv1.BackfillSpec_ReadTag{ReadTag: tag} },
	}
}

// Columns selects columns, in this order. A field of a struct is written with dots: "box.w".
func Columns(names ...string) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.Columns = append(request.Columns, names...) })
}

// Limit reads at most this number of rows.
func Limit(rows int64) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.Limit = &rows })
}

// Offset skips this number of rows, counted after [Where].
func Offset(rows int64) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.Offset = rows })
}

// BatchRows limits the rows of a record batch. The default is 8,192.
func BatchRows(rows int32) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.BatchSize = rows })
}

// WithRowIDs adds a last column _rowid.
func WithRowIDs() ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.WithRowId = true })
}

// WithRowAddresses adds a last column _rowaddr: fragment id << 32 | physical offset.
func WithRowAddresses() ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.WithRowAddress = true })
}
