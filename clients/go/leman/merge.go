package leman

import (
	"context"

	"google.golang.org/grpc"

	lemanv1 "leman.dev/go/leman/v1"
)

// Updated is the result of [Table.Update].
type Updated struct {
	// Version is the version of the table with the new values. If no row matched, it is the latest version.
	Version int64
	// Rows is the number of updated rows.
	Rows int64
}

// Update changes values in the rows for which the SQL condition where is true; "true" selects all rows. set has one SQL
// expression per column, such as "n + 1", which is evaluated on the row before the update. In the updated rows,
// computed columns that depend on a changed column become NULL.
func (t *Table) Update(ctx context.Context, where string, set map[string]string) (Updated, error) {
	request := &lemanv1.UpdateRowsRequest{Table: t.ref(), Where: where, Expressions: set}
	answer, err := t.client().tables().UpdateRows(ctx, request)
	return Updated{answer.GetVersion(), answer.GetRowsUpdated()}, err
}

// MergeRule says what [Table.Merge] does with rows that match, or with those that do not. Make one with
// [UpdateMatched], [InsertNotMatched] or [DeleteNotMatchedBySource].
type MergeRule func(*lemanv1.MergeRowsHeader)

// UpdateMatched updates rows of the table that match a sent row with the values of that row. where is a SQL condition
// that limits the updated rows and can use target.n and source.n for a column n; "" means all matching rows.
func UpdateMatched(where string) MergeRule {
	return func(header *lemanv1.MergeRowsHeader) { header.UpdateMatched, header.UpdateWhere = true, where }
}

// InsertNotMatched adds the sent rows that match no row of the table.
func InsertNotMatched() MergeRule {
	return func(header *lemanv1.MergeRowsHeader) { header.InsertNotMatched = true }
}

// DeleteNotMatchedBySource deletes rows of the table that match no sent row. where is a SQL condition over the table's
// columns that limits the deleted rows; "" means all of these rows.
func DeleteNotMatchedBySource(where string) MergeRule {
	return func(header *lemanv1.MergeRowsHeader) {
		header.DeleteNotMatchedBySource, header.DeleteWhere = true, where
	}
}

// Merged is the result of [Table.Merge].
type Merged struct {
	// Version is the version of the table with the changes. If nothing changed, it is the latest version.
	Version int64
	// Inserted, Updated and Deleted are numbers of rows.
	Inserted, Updated, Deleted int64
}

// Merge matches the sent rows with rows of the table that have the same values in the columns on, and applies the rules
// to them. It makes all changes in one new version of the table or, after an error, none.
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
		defer cancel() // an incomplete upload changes nothing
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
