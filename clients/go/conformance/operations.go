package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"leman.dev/go/leman"
	lemanv1 "leman.dev/go/leman/v1"
)

type operation func(ctx context.Context, db *leman.Database, with json.RawMessage) (any, error)

// nothing is the value of an operation that has none.
var nothing = map[string]any{}

// operations are what a step can ask for.
var operations = map[string]operation{
	"rpc":               with(rpc),
	"tables":            with(tables),
	"create_table":      with(createTable),
	"drop_table":        with(dropTable),
	"rename_table":      with(renameTable),
	"describe":          with(describe),
	"append":            with(appendRows),
	"read":              with(read),
	"delete":            with(deleteRows),
	"update":            with(updateRows),
	"merge":             with(mergeRows),
	"add_columns":       with(addColumns),
	"alter_columns":     with(alterColumns),
	"drop_columns":      with(dropColumns),
	"rename_column":     with(renameColumn),
	"functions":         with(functions),
	"register_function": with(registerFunction),
	"upload_bundle":     with(uploadBundle),
	"create_view":       with(createView),
	"views":             with(views),
	"drop_view":         with(dropView),
	"plan":              with(plan),
	"preview":           with(preview),
	"backfill":          with(backfill),
	"refresh":           with(refresh),
	"jobs":              with(jobs),
	"job":               with(job),
	"watch":             with(watch),
	"wait":              with(wait),
	"cancel":            with(cancel),
	"pause":             with(pause),
	"resume":            with(resume),
	"errors":            with(failedRows),
}

// with reads what an operation is given.
func with[T any](does func(context.Context, *leman.Database, T) (any, error)) operation {
	return func(ctx context.Context, db *leman.Database, text json.RawMessage) (any, error) {
		var given T
		var change struct {
			RequestID string `json:"request_id"`
		}
		if len(text) > 0 {
			if err := errors.Join(json.Unmarshal(text, &given), json.Unmarshal(text, &change)); err != nil {
				return nil, err
			}
		}
		if change.RequestID != "" {
			ctx = leman.WithRequestID(ctx, change.RequestID)
		}
		return does(ctx, db, given)
	}
}

// named is what most operations are given.
type named struct {
	Table   string          `json:"table"`
	View    string          `json:"view"`
	NewName string          `json:"new_name"`
	Column  string          `json:"column"`
	Columns json.RawMessage `json:"columns"`
	Source  string          `json:"source"`
	Where   string          `json:"where"`
	Force   bool            `json:"force"`
}

func (n named) forced() []leman.ForceOption {
	if n.Force {
		return []leman.ForceOption{leman.Force()}
	}
	return nil
}

func tables(ctx context.Context, db *leman.Database, _ named) (any, error) {
	names, err := leman.Collect(db.Tables(ctx))
	return map[string]any{"tables": append([]string{}, names...)}, err
}

func dropTable(ctx context.Context, db *leman.Database, given named) (any, error) {
	return nothing, db.DropTable(ctx, given.Table, given.forced()...)
}

func renameTable(ctx context.Context, db *leman.Database, given named) (any, error) {
	_, err := db.RenameTable(ctx, given.Table, given.NewName, given.forced()...)
	return nothing, err
}

func describe(ctx context.Context, db *leman.Database, given named) (any, error) {
	found, err := db.Table(given.Table).Describe(ctx)
	if err != nil {
		return nil, err
	}
	schema, err := leman.DecodeSchema(found.GetSchema())
	if err != nil {
		return nil, err
	}
	columns, computed := []string{}, []string{}
	for _, column := range schema.Fields() {
		columns = append(columns, column.Name)
	}
	for _, column := range found.GetComputedColumns() {
		computed = append(computed, column.GetName())
	}
	return map[string]any{
		"version": found.GetVersion(), "rows": found.GetRowCount(), "columns": columns, "computed": computed,
	}, nil
}

func deleteRows(ctx context.Context, db *leman.Database, given named) (any, error) {
	deleted, err := db.Table(given.Table).Delete(ctx, given.Where)
	return map[string]any{"rows": deleted.Rows}, err
}

// computed is what computes a column.
type computed struct {
	SQL      string   `json:"sql"`
	Function string   `json:"function"`
	Inputs   []string `json:"inputs"`
}

func (n named) computed() ([]*lemanv1.NewColumn, error) {
	var told map[string]computed
	if err := json.Unmarshal(n.Columns, &told); err != nil {
		return nil, err
	}
	var columns []*lemanv1.NewColumn
	for _, name := range slices.Sorted(maps.Keys(told)) {
		columns = append(columns, told[name].column(name))
	}
	return columns, nil
}

func (c computed) column(name string) *lemanv1.NewColumn {
	if c.Function == "" {
		return leman.SQLColumn(name, c.SQL)
	}
	function, version, _ := strings.Cut(c.Function, "@")
	return leman.FunctionColumn(name, function, version, c.Inputs...)
}

func addColumns(ctx context.Context, db *leman.Database, given named) (any, error) {
	columns, err := given.computed()
	if err != nil {
		return nil, err
	}
	version, err := db.Table(given.Table).AddColumns(ctx, columns...)
	return map[string]any{"version": version}, err
}

func alterColumns(ctx context.Context, db *leman.Database, given named) (any, error) {
	columns, err := given.computed()
	if err != nil {
		return nil, err
	}
	var altered []*lemanv1.ColumnAlteration
	for _, column := range columns {
		altered = append(altered, leman.Altered(column))
	}
	version, err := db.Table(given.Table).AlterColumns(ctx, altered...)
	return map[string]any{"version": version}, err
}

func dropColumns(ctx context.Context, db *leman.Database, given named) (any, error) {
	var columns []string
	if err := json.Unmarshal(given.Columns, &columns); err != nil {
		return nil, err
	}
	version, err := db.Table(given.Table).DropColumns(ctx, columns, given.forced()...)
	return map[string]any{"version": version}, err
}

func renameColumn(ctx context.Context, db *leman.Database, given named) (any, error) {
	renamed := []*lemanv1.PlainColumnAlteration{leman.Renamed(given.Column, given.NewName)}
	version, err := db.Table(given.Table).AlterPlainColumns(ctx, renamed, given.forced()...)
	return map[string]any{"version": version}, err
}

func functions(ctx context.Context, db *leman.Database, _ named) (any, error) {
	told := []string{}
	for function, err := range db.Functions(ctx) {
		if err != nil {
			return nil, err
		}
		told = append(told, function.GetName()+"@"+function.GetVersion())
	}
	return map[string]any{"functions": told}, nil
}

// types are those that functions of cases give.
var types = map[string]arrow.DataType{
	"bool":    arrow.FixedWidthTypes.Boolean,
	"float64": arrow.PrimitiveTypes.Float64,
	"int64":   arrow.PrimitiveTypes.Int64,
	"utf8":    arrow.BinaryTypes.String,
}

type functionWith struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Kind       string   `json:"kind"`
	Entrypoint string   `json:"entrypoint"`
	Inputs     []string `json:"inputs"`
	Output     string   `json:"output"`
}

func registerFunction(ctx context.Context, db *leman.Database, given functionWith) (any, error) {
	kind, known := lemanv1.UdfDefinition_Kind_value["KIND_"+strings.ToUpper(given.Kind)]
	output := types[given.Output]
	if !known || output == nil {
		return nil, fmt.Errorf("the runner knows no function of kind %q that gives %q", given.Kind, given.Output)
	}
	var inputs []arrow.Field
	for _, name := range given.Inputs {
		inputs = append(inputs, arrow.Field{Name: name, Type: arrow.Null})
	}
	definition, err := leman.EntrypointFunction(
		given.Name, given.Version, given.Entrypoint, lemanv1.UdfDefinition_Kind(kind), inputs, output)
	if err != nil {
		return nil, err
	}
	_, err = db.RegisterFunction(ctx, definition)
	return nothing, err
}

func uploadBundle(ctx context.Context, db *leman.Database, given struct {
	Data string `json:"data"`
},
) (any, error) {
	bundle, err := base64.StdEncoding.DecodeString(given.Data)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(bundle)
	_, err = db.UploadBundle(ctx, bytes.NewReader(bundle))
	return map[string]any{"sha256": hex.EncodeToString(digest[:])}, err
}

func createView(ctx context.Context, db *leman.Database, given named) (any, error) {
	columns := map[string]string{}
	if len(given.Columns) > 0 {
		if err := json.Unmarshal(given.Columns, &columns); err != nil {
			return nil, err
		}
	}
	query := &lemanv1.ViewQuery{Source: &lemanv1.TableRef{Table: given.Source}, Where: given.Where}
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		query.Columns = append(query.Columns, &lemanv1.ViewColumn{Name: name, Expression: columns[name]})
	}
	_, err := db.CreateView(ctx, given.View, query)
	return nothing, err
}

func views(ctx context.Context, db *leman.Database, _ named) (any, error) {
	told := []string{}
	for view, err := range db.Views(ctx) {
		if err != nil {
			return nil, err
		}
		told = append(told, view.GetName())
	}
	return map[string]any{"views": told}, nil
}

func dropView(ctx context.Context, db *leman.Database, given named) (any, error) {
	return nothing, db.DropView(ctx, given.View, given.forced()...)
}
