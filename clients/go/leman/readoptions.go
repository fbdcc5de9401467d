package leman

import lemanv1 "leman.dev/go/leman/v1"

// ReadOption says which rows and columns are read.
type ReadOption interface {
	read(request *lemanv1.ReadRowsRequest)
}

type readFunc func(request *lemanv1.ReadRowsRequest)

func (f readFunc) read(request *lemanv1.ReadRowsRequest) { f(request) }

// RowsOption says which rows are read, or computed.
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

// Where means the rows for which the SQL is true.
func Where(sql string) RowsOption {
	return rowsOption{
		func(request *lemanv1.ReadRowsRequest) { request.Where = sql },
		func(spec *lemanv1.BackfillSpec) { spec.Where = sql },
	}
}

// AtVersion reads a version of the table, 1 or more. A backfill computes from the rows as they were then.
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

// AtTag reads the version that a tag of the table stands for; see [AtVersion].
func AtTag(tag string) RowsOption {
	return rowsOption{
		func(request *lemanv1.ReadRowsRequest) { request.At = &lemanv1.ReadRowsRequest_Tag{Tag: tag} },
		func(spec *lemanv1.BackfillSpec) { spec.ReadFrom = &lemanv1.BackfillSpec_ReadTag{ReadTag: tag} },
	}
}

// Columns reads these columns, in this order; a field of a struct by names with dots between: "box.w".
func Columns(names ...string) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.Columns = append(request.Columns, names...) })
}

// Limit reads so many rows at the most.
func Limit(rows int64) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.Limit = &rows })
}

// Offset leaves so many of the first rows out, of those that [Where] means.
func Offset(rows int64) ReadOption {
	return readFunc(func(request *lemanv1.ReadRowsRequest) { request.Offset = rows })
}

// BatchRows has record batches of so many rows at the most; 8,192, unless it is given.
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
