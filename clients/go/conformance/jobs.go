package main

import (
	"context"
	"strings"

	"leman.dev/go/leman"
	lemanv1 "leman.dev/go/leman/v1"
)

// jobWith is what an operation about jobs is given.
type jobWith struct {
	Job      string            `json:"job"`
	Table    string            `json:"table"`
	View     string            `json:"view"`
	Column   string            `json:"column"`
	Where    string            `json:"where"`
	Labels   map[string]string `json:"labels"`
	Priority int32             `json:"priority"`
	States   []string          `json:"states"`
	Limit    int               `json:"limit"`
	Take     int               `json:"take"`
	Progress bool              `json:"progress"`
}

func plan(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	found, err := db.Table(given.Table).ExplainBackfill(ctx, given.Column, leman.Where(given.Where))
	if err != nil {
		return nil, err
	}
	reasons := map[string]int64{}
	for _, reason := range found.GetReasons() {
		reasons[strings.TrimPrefix(reason.GetReason().String(), "REASON_")] = reason.GetRows()
	}
	return map[string]any{
		"rows_total": found.GetRowsTotal(), "rows_reused": found.GetRowsReused(),
		"rows_to_compute": found.GetRowsToCompute(), "reasons": reasons,
	}, nil
}

// previewWith is what a preview is given.
type previewWith struct {
	computed
	Table  string `json:"table"`
	Column string `json:"column"`
	Where  string `json:"where"`
	Rows   int32  `json:"n"`
}

func preview(ctx context.Context, db *leman.Database, given previewWith) (any, error) {
	column := given.column("")
	if given.Column != "" {
		column = leman.ComputedColumn(given.Column)
	}
	made, err := db.Table(given.Table).Preview(ctx, column, func(request *lemanv1.PreviewFunctionRequest) {
		request.Where = given.Where
		if given.Rows != 0 {
			request.Rows = &given.Rows
		}
	})
	if err != nil {
		return nil, err
	}
	states, outputs := []string{}, []string{}
	for _, row := range made.GetRows() {
		states = append(states, strings.TrimPrefix(row.GetState().String(), "STATE_"))
		outputs = append(outputs, row.GetOutput())
	}
	return map[string]any{
		"states": states, "outputs": outputs, "rows_to_compute": made.GetProjection().GetRowsToCompute(),
	}, nil
}

func backfill(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	begun, err := db.Table(given.Table).Backfill(ctx, given.Column,
		leman.Where(given.Where), leman.Labels(given.Labels), leman.Priority(given.Priority))
	if err != nil {
		return nil, err
	}
	return map[string]any{"job": begun.ID()}, nil
}

func refresh(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	begun, err := db.View(given.View).Refresh(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"job": begun.ID()}, nil
}

func jobs(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	filter := &lemanv1.JobFilter{Labels: given.Labels}
	if given.Table != "" {
		filter.Tables = []string{given.Table}
	}
	for _, name := range given.States {
		filter.States = append(filter.States, lemanv1.Job_State(lemanv1.Job_State_value["STATE_"+name]))
	}
	told := []string{}
	for job, err := range db.Jobs(ctx, filter) {
		if err != nil {
			return nil, err
		}
		told = append(told, job.GetJobId())
		if len(told) == given.Limit {
			break
		}
	}
	return map[string]any{"jobs": told}, nil
}

func stateName(job *lemanv1.Job) string {
	return strings.TrimPrefix(job.GetState().String(), "STATE_")
}

func job(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	found, err := db.Job(given.Job).Get(ctx)
	if err != nil {
		return nil, err
	}
	table := found.GetBackfill().GetTable()
	if table == nil {
		table = found.GetRefresh().GetView()
	}
	told := map[string]any{
		"job": found.GetJobId(), "state": stateName(found), "table": table.GetTable(),
		"column": found.GetBackfill().GetColumn(), "labels": found.GetLabels(), "priority": found.GetPriority(),
	}
	if failed := leman.JobError(found); found.GetState() == lemanv1.Job_STATE_FAILED {
		told["error"] = explain(failed).Error
	}
	return told, nil
}

func watch(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	told, state := []map[string]any{}, ""
	for update, err := range db.Job(given.Job).Watch(ctx) {
		if err != nil {
			return nil, err
		}
		state = stateName(update.Job)
		for _, event := range update.Events {
			kind := strings.TrimPrefix(event.GetKind().String(), "KIND_")
			told = append(told, map[string]any{"sequence": event.GetSequence(), "kind": kind})
		}
		if given.Take > 0 && len(told) >= given.Take {
			told = told[:given.Take]
			break
		}
	}
	return map[string]any{"events": told, "state": state}, nil
}

func wait(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	told := []int64{}
	var options []leman.WaitOption
	if given.Progress {
		options = append(options, leman.OnProgress(func(progress *lemanv1.Progress) {
			told = append(told, progress.GetRowsCommitted())
		}))
	}
	found, err := db.Job(given.Job).Wait(ctx, options...)
	if err != nil {
		return nil, err
	}
	return map[string]any{"state": stateName(found), "progress": told}, nil
}

func cancel(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	return changed(db.Job(given.Job).Cancel(ctx))
}

func pause(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	return changed(db.Job(given.Job).Pause(ctx))
}

func resume(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	return changed(db.Job(given.Job).Resume(ctx))
}

func changed(job *lemanv1.Job, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"state": stateName(job)}, nil
}

func failedRows(ctx context.Context, db *leman.Database, given jobWith) (any, error) {
	told := []map[string]any{}
	for row, err := range db.Job(given.Job).Errors(ctx) {
		if err != nil {
			return nil, err
		}
		told = append(told, map[string]any{"row_address": row.GetRowAddress(), "error_type": row.GetErrorType()})
		if len(told) == given.Limit {
			break
		}
	}
	return map[string]any{"errors": told}, nil
}
