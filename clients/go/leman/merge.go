package leman

import (
	"context"

	"google.golang.org/grpc"

	lemanv1 "leman.dev/go/leman/v1"
)

// Updated is what [Table.Update] did.
type Updated struct {
	// Version is that of the table in which the rows have the values; the latest, where there was none to update.
	Version int64
	// Rows is how many were updated.
	Rows int64
}

// Update gives columns of the rows for which the SQL is true other values; "true" updates all rows. set has SQL over the
// row as it was, such as "n + 1", by column. Computed columns that rest on one of them become NULL in these rows.
func (t *Table) Update(ctx context.Context, where string, set map[string]string) (Updated, error) {
	request := &lemanv1.UpdateRowsRequest{Table: t.ref(), Where: where, Expressions: set}
	answer, err := t.client().tables().UpdateRows(ctx, request)
	return Updated{answer.GetVersion(), answer.GetRowsUpdated()}, err
}

// MergeRule says what becomes of rows that match, or of those that do not. It is made by [UpdateMatched],
// [InsertNotMatched] and [DeleteNotMatchedBySource].
type MergeRule func(*lemanv1.MergeRowsHeader)

// UpdateMatched gives rows of the table that match the values that are sent: those for which the SQL is true, which
// names columns target.n and source.n, or all for "".
func UpdateMatched(where string) MergeRule {
	return func(header *lemanv1.MergeRowsHeader) { header.UpdateMatched, header.UpdateWhere = true, where }
}

// InsertNotMatched adds rows that are sent and match none of the table.
func InsertNotMatched() MergeRule {
	return func(header *lemanv1.MergeRowsHeader) { header.InsertNotMatched = true }
}

// DeleteNotMatchedBySource deletes rows of the table that match none that is sent: those for which the SQL over the
// table's columns is true, or all for "".
func DeleteNotMatchedBySource(where string) MergeRule {
	return func(header *lemanv1.MergeRowsHeader) {
		header.DeleteNotMatchedBySource, header.DeleteWhere = true, where
	}
}

// Merged is what [Table.Merge] did.
type Merged struct {
	// Version is that of the table in which it is done; the latest, where there was nothing to do.
	Version int64
	// Inserted, Updated and Deleted are how many rows there are of each.
	Inserted, Updated, Deleted int64
}

// Merge brings rows together with those of the table that have the same values in the columns on, all of it or nothing,
// in one version of the table.
func (t *Table) Merge(ctx context.Context, on []string, rows Source, rules ...MergeRule) (Merged, error) {
	if err := contextGiven(ctx); err != nil {
		return Merged{}, err
	}
	if err := allGiven("rules", rules); err != nil {
		return Merged{}, err
	}
	header := &lemanv1.MergeRowsHeader{Table: t.ref(), RequestId: requestID(ctx), On: on}
	for _, rule := range rules {
		rule(header)
	}
	var answer *lemanv1.MergeRowsResponse
	err := t.client().upload(ctx, func(ctx context.Context) error {
		reader, err := rows.start()
		if err != nil {
			return err
		}
		defer reader.Release()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // what was not sent whole changes nothing
		stream, err := t.client().tables().MergeRows(ctx)
		if err != nil {
			return err
		}
		answer, err = sendRows(mergeStream{stream}, &lemanv1.MergeRowsRequest{
			Part: &lemanv1.MergeRowsRequest_Header{Header: header},
		}, reader)
		return err
	})
	return Merged{answer.GetVersion(), answer.GetRowsInserted(), answer.GetRowsUpdated(), answer.GetRowsDeleted()}, err
}

type mergeStream struct {
	grpc.ClientStreamingClient[lemanv1.MergeRowsRequest, lemanv1.MergeRowsResponse]
}

func (mergeStream) piece(data []byte) *lemanv1.MergeRowsRequest {
	return &lemanv1.MergeRowsRequest{Part: &lemanv1.MergeRowsRequest_ArrowIpc{ArrowIpc: data}}
}
