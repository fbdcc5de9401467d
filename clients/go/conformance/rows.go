package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"leman.dev/go/leman"
)

type rowsWith struct {
	Table string `json:"table"`
	Arrow string `json:"arrow"`
}

// source gives the rows of a step.
func (w rowsWith) source() (leman.Source, error) {
	content, err := base64.StdEncoding.DecodeString(w.Arrow)
	if err != nil {
		return leman.Source{}, err
	}
	reader, err := ipc.NewReader(bytes.NewReader(content))
	if err != nil {
		return leman.Source{}, err
	}
	defer reader.Release()
	var batches []arrow.RecordBatch
	for reader.Next() {
		batch := reader.RecordBatch()
		batch.Retain()
		batches = append(batches, batch)
	}
	return leman.Batches(reader.Schema(), batches...), reader.Err()
}

func createTable(ctx context.Context, db *leman.Database, with rowsWith) (any, error) {
	rows, err := with.source()
	if err != nil {
		return nil, err
	}
	_, err = db.CreateTableFrom(ctx, with.Table, rows)
	return nothing, err
}

func appendRows(ctx context.Context, db *leman.Database, with rowsWith) (any, error) {
	rows, err := with.source()
	if err != nil {
		return nil, err
	}
	_, err = db.Table(with.Table).Append(ctx, rows)
	return nothing, err
}

type updateWith struct {
	Table string            `json:"table"`
	Where string            `json:"where"`
	Set   map[string]string `json:"set"`
}

func updateRows(ctx context.Context, db *leman.Database, with updateWith) (any, error) {
	updated, err := db.Table(with.Table).Update(ctx, with.Where, with.Set)
	return map[string]any{"rows": updated.Rows}, err
}

type mergeWith struct {
	rowsWith
	On          []string `json:"keys"`
	Update      bool     `json:"update"`
	UpdateWhere string   `json:"update_where"`
	Insert      bool     `json:"insert"`
	Delete      bool     `json:"delete"`
	DeleteWhere string   `json:"delete_where"`
}

func mergeRows(ctx context.Context, db *leman.Database, with mergeWith) (any, error) {
	rows, err := with.source()
	if err != nil {
		return nil, err
	}
	var rules []leman.MergeRule
	if with.Update {
		rules = append(rules, leman.UpdateMatched(with.UpdateWhere))
	}
	if with.Insert {
		rules = append(rules, leman.InsertNotMatched())
	}
	if with.Delete {
		rules = append(rules, leman.DeleteNotMatchedBySource(with.DeleteWhere))
	}
	merged, err := db.Table(with.Table).Merge(ctx, with.On, rows, rules...)
	return map[string]any{"inserted": merged.Inserted, "updated": merged.Updated, "deleted": merged.Deleted}, err
}

type readWith struct {
	Table   string          `json:"table"`
	Columns []string        `json:"columns"`
	Where   string          `json:"where"`
	Limit   *int64          `json:"limit"`
	Offset  int64           `json:"offset"`
	Version json.RawMessage `json:"version"`
	Batches int             `json:"batches"`
}

func (w readWith) options() ([]leman.ReadOption, error) {
	options := []leman.ReadOption{leman.Columns(w.Columns...), leman.Where(w.Where), leman.Offset(w.Offset)}
	if w.Limit != nil {
		options = append(options, leman.Limit(*w.Limit))
	}
	var version any
	if len(w.Version) > 0 {
		if err := json.Unmarshal(w.Version, &version); err != nil {
			return nil, err
		}
	}
	switch at := version.(type) {
	case float64:
		options = append(options, leman.AtVersion(int64(at)))
	case string:
		options = append(options, leman.AtTag(at))
	}
	return options, nil
}

func read(ctx context.Context, db *leman.Database, with readWith) (any, error) {
	options, err := with.options()
	if err != nil {
		return nil, err
	}
	rows, err := db.Table(with.Table).Read(ctx, options...)
	if err != nil {
		return nil, err
	}
	var written bytes.Buffer
	writer := ipc.NewWriter(&written, ipc.WithSchema(rows.Schema()))
	taken := 0
	for batch, err := range rows.All() {
		if err != nil {
			return nil, err
		}
		if err := writer.Write(batch); err != nil {
			return nil, err
		}
		if taken++; taken == with.Batches {
			break
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return map[string]string{"arrow": base64.StdEncoding.EncodeToString(written.Bytes())}, nil
}
