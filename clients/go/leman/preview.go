package leman

import (
	"context"

	lemanv1 "leman.dev/go/leman/v1"
)

// PreviewFunc sets fields in the request of a preview: rows, filter, version, time limit.
type PreviewFunc func(request *lemanv1.PreviewFunctionRequest)

// PreviewRows tries the function on up to the given number of rows, 1 to 100, for which the SQL condition is true. With
// an empty condition it takes the first rows.
func PreviewRows(rows int32, where string) PreviewFunc {
	return func(request *lemanv1.PreviewFunctionRequest) { request.Rows, request.Where = &rows, where }
}

// PreviewEnv sets environment variables for the function during this preview, as [Env] does for a job.
func PreviewEnv(variables map[string]string) PreviewFunc {
	return func(request *lemanv1.PreviewFunctionRequest) { request.Env = variables }
}

// ComputedColumn returns an existing computed column with its own function, for [Table.Preview].
func ComputedColumn(name string) *lemanv1.NewColumn { return &lemanv1.NewColumn{Name: name} }

// Preview computes a column for a few rows and writes nothing. column is a [ComputedColumn], an [SQLColumn] or a
// [FunctionColumn]. Its name is that of the computed column for which the function is intended, or empty. If the
// function fails on a row, the result has the error with that row.
func (t *Table) Preview(
	ctx context.Context, column *lemanv1.NewColumn, options ...PreviewFunc,
) (*lemanv1.PreviewFunctionResponse, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	request := &lemanv1.PreviewFunctionRequest{
		Table: t.ref(), Column: column.GetName(), InputColumns: column.GetInputColumns(), ErrorPolicy: column.GetErrorPolicy(),
	}
	switch function := column.GetFunction().(type) {
	case *lemanv1.NewColumn_SqlExpression:
		request.Function = &lemanv1.PreviewFunctionRequest_SqlExpression{SqlExpression: function.SqlExpression}
	case *lemanv1.NewColumn_Udf:
		request.Function = &lemanv1.PreviewFunctionRequest_Udf{Udf: function.Udf}
	}
	for _, set := range options {
		set(request)
	}
	if err := noneNegative(amount{"rows", int64(request.GetRows())}); err != nil {
		return nil, err
	}
	if request.GetColumn() == "" && request.GetFunction() == nil {
		return nil, invalid("column", "column names nothing that computes one: give a ComputedColumn, a SQLColumn or a FunctionColumn")
	}
	_, versioned := request.GetVersion().(*lemanv1.PreviewFunctionRequest_ReadVersion)
	if err := versionIsOne("read_version", versioned, request.GetReadVersion()); err != nil {
		return nil, err
	}
	return t.client().jobs().PreviewFunction(ctx, request)
}
