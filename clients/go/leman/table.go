package leman

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	lemanv1 "leman.dev/go/leman/v1"
)

// Table is a table of a database. It is made by [Database.Table].
type Table struct{ relation }

// Describe tells its schema, version, rows and computed columns.
func (t *Table) Describe(ctx context.Context) (*lemanv1.DescribeTableResponse, error) {
	return t.client().catalog().DescribeTable(ctx, &lemanv1.DescribeTableRequest{Table: t.ref()})
}

// Schema tells its columns.
func (t *Table) Schema(ctx context.Context) (*arrow.Schema, error) {
	found, err := t.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return DecodeSchema(found.GetSchema())
}

// Deleted is what [Table.Delete] did.
type Deleted struct {
	// Version is that of the table in which the rows are gone; the latest, where there was none to delete.
	Version int64
	// Rows is how many went.
	Rows int64
}

// Delete removes the rows for which the SQL is true; "true" removes all rows.
func (t *Table) Delete(ctx context.Context, where string) (Deleted, error) {
	answer, err := t.client().tables().DeleteRows(ctx, &lemanv1.DeleteRowsRequest{Table: t.ref(), Where: where})
	return Deleted{answer.GetVersion(), answer.GetRowsDeleted()}, err
}

// SQLColumn is a column that a SQL expression over the table's columns computes.
func SQLColumn(name, expression string) *lemanv1.NewColumn {
	return &lemanv1.NewColumn{Name: name, Function: &lemanv1.NewColumn_SqlExpression{SqlExpression: expression}}
}

// FunctionColumn is a column that a registered function computes. version: empty: the one registered last. inputs: the
// table's columns that the function reads, in order; without: as it names them.
func FunctionColumn(name, function, version string, inputs ...string) *lemanv1.NewColumn {
	ref := &lemanv1.UdfRef{Name: function, Version: version}
	return &lemanv1.NewColumn{Name: name, Function: &lemanv1.NewColumn_Udf{Udf: ref}, InputColumns: inputs}
}

// AddColumns adds computed columns, all NULL until they are backfilled: all of them or none. It gives the version of the
// table in which they exist.
func (t *Table) AddColumns(ctx context.Context, columns ...*lemanv1.NewColumn) (version int64, err error) {
	if err := allGiven("columns", columns); err != nil {
		return 0, err
	}
	answer, err := t.client().catalog().AddColumns(ctx, &lemanv1.AddColumnsRequest{Table: t.ref(), Columns: columns})
	return answer.GetVersion(), err
}

// Altered gives a column another function. Its values are stale until the next backfill.
func Altered(column *lemanv1.NewColumn) *lemanv1.ColumnAlteration {
	return &lemanv1.ColumnAlteration{Column: column}
}

// AlteredKeepingValues gives a column another function of the same inputs. The values that there are stay current.
func AlteredKeepingValues(column *lemanv1.NewColumn) *lemanv1.ColumnAlteration {
	return &lemanv1.ColumnAlteration{Column: column, KeepValues: true}
}

// Renamed gives a column another name.
func Renamed(column, name string) *lemanv1.PlainColumnAlteration {
	return &lemanv1.PlainColumnAlteration{Name: column, NewName: &name}
}

// AlterColumns gives computed columns other functions: all of them or none. See [Altered] and
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

// AddPlainColumns adds columns that no function computes, all NULL: all of them or none.
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

// AlterPlainColumns gives columns other names ([Renamed]), types, or the right to be NULL: all of them or none. With
// [Force]: although computed columns or views read them, or jobs compute them, which then fail.
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

// DropColumns drops columns, computed ones too: all of them or none. With [Force]: although computed columns or views read
// them, or jobs compute them, which then fail.
func (t *Table) DropColumns(ctx context.Context, columns []string, options ...ForceOption) (version int64, err error) {
	request := &lemanv1.DropColumnsRequest{Table: t.ref(), Columns: columns, Force: forced(options)}
	answer, err := t.client().tables().DropColumns(ctx, request)
	return answer.GetVersion(), err
}

// Backfill starts a job that computes a column for the rows that have no current value. [Job.Wait] waits for it.
func (t *Table) Backfill(ctx context.Context, column string, options ...BackfillOption) (*Job, error) {
	request, err := t.backfill(ctx, column, options)
	if err != nil {
		return nil, err
	}
	return t.db().createJob(ctx, request)
}

// ExplainBackfill tells what a backfill would do, and why: a dry run.
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

// RowStates counts the rows of a computed column by what is known of their values.
func (t *Table) RowStates(ctx context.Context, column string) (*lemanv1.GetRowStatesResponse, error) {
	return t.client().planner().GetRowStates(ctx, &lemanv1.GetRowStatesRequest{Table: t.ref(), Column: column})
}

// Row says where a row is.
type Row struct {
	// Address is fragment id << 32 | physical offset.
	Address int64
	// ID is the row id; 0 where row ids are not stable.
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
