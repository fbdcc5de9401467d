package leman

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	lemanv1 "leman.dev/go/leman/v1"
)

// Table is a handle for a table of a database. Create one with [Database.Table].
type Table struct{ relation }

// Describe returns the table's schema, version, number of rows and computed columns.
func (t *Table) Describe(ctx context.Context) (*lemanv1.DescribeTableResponse, error) {
	return t.client().catalog().DescribeTable(ctx, &lemanv1.DescribeTableRequest{Table: t.ref()})
}

// Schema returns the table's schema.
func (t *Table) Schema(ctx context.Context) (*arrow.Schema, error) {
	found, err := t.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return DecodeSchema(found.GetSchema())
}

// Deleted is the result of [Table.Delete].
type Deleted struct {
	// Version is the version of the table without the deleted rows. If no row matched, it is the latest version.
	Version int64
	// Rows is the number of deleted rows.
	Rows int64
}

// Delete deletes the rows for which the SQL condition is true; "true" selects all rows.
func (t *Table) Delete(ctx context.Context, where string) (Deleted, error) {
	answer, err := t.client().tables().DeleteRows(ctx, &lemanv1.DeleteRowsRequest{Table: t.ref(), Where: where})
	return Deleted{answer.GetVersion(), answer.GetRowsDeleted()}, err
}

// SQLColumn defines a column that is computed by a SQL expression over the table's columns.
func SQLColumn(name, expression string) *lemanv1.NewColumn {
	return &lemanv1.NewColumn{Name: name, Function: &lemanv1.NewColumn_SqlExpression{SqlExpression: expression}}
}

// FunctionColumn defines a column that is computed by a registered function. An empty version means the one that was
// registered last. inputs are the table's columns that the function reads, in the order of its parameters; without any,
// the columns with the names of the parameters.
func FunctionColumn(name, function, version string, inputs ...string) *lemanv1.NewColumn {
	ref := &lemanv1.UdfRef{Name: function, Version: version}
	return &lemanv1.NewColumn{Name: name, Function: &lemanv1.NewColumn_Udf{Udf: ref}, InputColumns: inputs}
}

// AddColumns adds computed columns, either all of them or none. They are NULL until they are backfilled. It returns the
// version of the table that has them.
func (t *Table) AddColumns(ctx context.Context, columns ...*lemanv1.NewColumn) (version int64, err error) {
	if err := allGiven("columns", columns); err != nil {
		return 0, err
	}
	answer, err := t.client().catalog().AddColumns(ctx, &lemanv1.AddColumnsRequest{Table: t.ref(), Columns: columns})
	return answer.GetVersion(), err
}

// Altered changes the function of a column, for [Table.AlterColumns]. The values are stale until the next backfill.
func Altered(column *lemanv1.NewColumn) *lemanv1.ColumnAlteration {
	return &lemanv1.ColumnAlteration{Column: column}
}

// AlteredKeepingValues changes the function of a column, with the same inputs, for [Table.AlterColumns]. Existing
// values stay current.
func AlteredKeepingValues(column *lemanv1.NewColumn) *lemanv1.ColumnAlteration {
	return &lemanv1.ColumnAlteration{Column: column, KeepValues: true}
}

// Renamed renames a column, for [Table.AlterPlainColumns].
func Renamed(column, name string) *lemanv1.PlainColumnAlteration {
	return &lemanv1.PlainColumnAlteration{Name: column, NewName: &name}
}

// AlterColumns changes the functions of computed columns, either all of them or none. See [Altered] and
// [AlteredKeepingValues].
func (t *Table) AlterColumns(ctx context.Context, columns ...*lemanv1.ColumnAlteration) (version int64, err error) {
	if err := allGiven("columns", columns); err != nil {
		return 0, err
	}
	for i, column := range columns {
		if column.GetColumn() == nil {
			return 0, invalid("columns", "columns: number %d alters no column: give Altered one, such as a SQLColumn", i+1)
		}
	}
	answer, err := t.client().catalog().AlterColumns(ctx, &lemanv1.AlterColumnsRequest{Table: t.ref(), Columns: columns})
	return answer.GetVersion(), err
}

// AddPlainColumns adds columns that no function computes, either all of them or none. Their values are NULL.
func (t *Table) AddPlainColumns(ctx context.Context, fields ...arrow.Field) (version int64, err error) {
	if err := typesGiven("fields", fields); err != nil {
		return 0, err
	}
	if err := namesAreText("fields", fields); err != nil {
		return 0, err
	}
	schema, err := EncodeSchema(arrow.NewSchema(fields, nil))
	if err != nil {
		return 0, err
	}
	answer, err := t.client().tables().AddPlainColumns(ctx, &lemanv1.AddPlainColumnsRequest{
		Table:   t.ref(),
		Columns: &lemanv1.AddPlainColumnsRequest_Schema{Schema: schema},
	})
	return answer.GetVersion(), err
}

// AlterPlainColumns changes the names ([Renamed]), types or nullability of columns, either all of them or none. It is
// refused if computed columns or views read a column, or a job computes it. With [Force] it is changed anyway;
// backfills and refreshes that read it, and jobs that compute it, then fail.
func (t *Table) AlterPlainColumns(
	ctx context.Context, columns []*lemanv1.PlainColumnAlteration, options ...ForceOption,
) (version int64, err error) {
	if err := allGiven("columns", columns); err != nil {
		return 0, err
	}
	request := &lemanv1.AlterPlainColumnsRequest{Table: t.ref(), Columns: columns, Force: forced(options)}
	answer, err := t.client().tables().AlterPlainColumns(ctx, request)
	return answer.GetVersion(), err
}

// DropColumns drops columns, also computed ones, either all of them or none. It is refused if computed columns or views
// read a column, or a job computes it. With [Force] it is dropped anyway; backfills and refreshes that read it, and
// jobs that compute it, then fail.
func (t *Table) DropColumns(ctx context.Context, columns []string, options ...ForceOption) (version int64, err error) {
	request := &lemanv1.DropColumnsRequest{Table: t.ref(), Columns: columns, Force: forced(options)}
	answer, err := t.client().tables().DropColumns(ctx, request)
	return answer.GetVersion(), err
}

// Backfill starts a job that computes a column for the rows without a current value. Wait for it with [Job.Wait].
func (t *Table) Backfill(ctx context.Context, column string, options ...BackfillOption) (*Job, error) {
	request, err := t.backfill(ctx, column, options)
	if err != nil {
		return nil, err
	}
	return t.db().createJob(ctx, request)
}

// ExplainBackfill returns what a backfill would compute, and why, without running it.
func (t *Table) ExplainBackfill(
	ctx context.Context, column string, options ...BackfillOption,
) (*lemanv1.ExplainPlanResponse, error) {
	request, err := t.backfill(ctx, column, options)
	if err != nil {
		return nil, err
	}
	return t.client().planner().ExplainPlan(ctx, &lemanv1.ExplainPlanRequest{Spec: request.GetBackfill()})
}

func (t *Table) backfill(
	ctx context.Context, column string, options []BackfillOption,
) (*lemanv1.CreateJobRequest, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	spec := &lemanv1.BackfillSpec{Table: t.ref(), Column: column}
	request := &lemanv1.CreateJobRequest{Request: &lemanv1.CreateJobRequest_Backfill{Backfill: spec}}
	for _, option := range options {
		option.backfill(request)
	}
	if err := functionNamed(spec.GetUdf()); err != nil {
		return nil, err
	}
	_, versioned := spec.GetReadFrom().(*lemanv1.BackfillSpec_ReadVersion)
	if err := versionIsOne("read_version", versioned, spec.GetReadVersion()); err != nil {
		return nil, err
	}
	return request, noneNegative(amount{"concurrency", int64(spec.GetConcurrency())})
}

// RowStates counts the rows of a computed column in each state, such as computed or failed.
func (t *Table) RowStates(ctx context.Context, column string) (*lemanv1.GetRowStatesResponse, error) {
	return t.client().planner().GetRowStates(ctx, &lemanv1.GetRowStatesRequest{Table: t.ref(), Column: column})
}

// Row is the location of a row.
type Row struct {
	// Address is fragment id << 32 | physical offset.
	Address int64
	// ID is the row id, or 0 if row ids are not stable.
	ID int64
}

// RowsInState lists the rows of a computed column that are in a state, by address.
func (t *Table) RowsInState(
	ctx context.Context, column string, state lemanv1.RowState, options ...ListOption,
) iter.Seq2[Row, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]Row, string, error) {
		page, err := t.client().planner().GetRowStates(ctx, &lemanv1.GetRowStatesRequest{
			Table: t.ref(), Column: column, State: state, PageSize: size, PageToken: token,
		})
		rows := make([]Row, len(page.GetRowAddresses()))
		for i, address := range page.GetRowAddresses() {
			rows[i].Address = address
			if ids := page.GetRowIds(); i < len(ids) {
				rows[i].ID = ids[i]
			}
		}
		return rows, page.GetNextPageToken(), err
	})
}
