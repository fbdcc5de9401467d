package leman

import (
	"context"
	"iter"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// View is a handle for a materialized view: a table with the rows of a query over another table. Create one with
// [Database.View].
type View struct{ relation }

// View returns a handle for a view. It makes no call; use [View.Describe] to learn whether the view exists.
func (d *Database) View(name string) *View { return &View{relation{d, name}} }

// OpenView returns a handle for an existing view. Otherwise the error has the reason TABLE_NOT_FOUND or NOT_A_VIEW.
func (d *Database) OpenView(ctx context.Context, name string) (*View, error) {
	view := d.View(name)
	_, err := view.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return view, nil
}

// Views lists the views, by name.
func (d *Database) Views(ctx context.Context, options ...ListOption) iter.Seq2[*lemanv1.MaterializedViewSummary, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]*lemanv1.MaterializedViewSummary, string, error) {
		page, err := d.client.catalog().ListMaterializedViews(ctx,
			&lemanv1.ListMaterializedViewsRequest{Database: d.name, PageSize: size, PageToken: token})
		d.client.warn(ctx, page.GetWarnings())
		return page.GetViews(), page.GetNextPageToken(), err
	})
}

// ViewOption is an option of [Database.CreateView].
type ViewOption func(*lemanv1.CreateMaterializedViewRequest)

// MaxRowsPerViewFragment limits the number of rows in a fragment.
func MaxRowsPerViewFragment(rows int64) ViewOption {
	return func(request *lemanv1.CreateMaterializedViewRequest) { request.MaxRowsPerFragment = &rows }
}

// CreateView creates a view with an empty row for each row of the source that matches the query's filter. It calls no
// function; [View.Refresh] computes the values. If the source names no database, it is a table of this database.
func (d *Database) CreateView(
	ctx context.Context, name string, query *lemanv1.ViewQuery, options ...ViewOption,
) (*View, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	if source := query.GetSource(); source != nil && source.GetDatabase() == "" {
		query = &lemanv1.ViewQuery{
			Source: d.ref(source.GetTable()), Columns: query.GetColumns(), Functions: query.GetFunctions(),
			Where: query.GetWhere(), ShuffleSeed: query.ShuffleSeed, Limit: query.Limit, Offset: query.GetOffset(),
		}
	}
	request := &lemanv1.CreateMaterializedViewRequest{View: d.ref(name), Query: query}
	for _, option := range options {
		option(request)
	}
	if err := noneNegative(amount{"max_rows_per_fragment", request.GetMaxRowsPerFragment()}); err != nil {
		return nil, err
	}
	if query == nil {
		return nil, invalid("query", "query is nil: give the source of the view and its columns")
	}
	answer, err := d.client.catalog().CreateMaterializedView(ctx, request)
	if err != nil {
		return nil, err
	}
	d.client.warn(ctx, answer.GetWarnings())
	return d.View(name), nil
}

// DropView removes a view with its history and its stored files. Its source stays. It is refused if other views depend
// on it. With [Force] it is dropped anyway: these views keep their rows but cannot be refreshed.
func (d *Database) DropView(ctx context.Context, name string, options ...ForceOption) error {
	_, err := d.client.commits().DropView(ctx, &lemanv1.DropViewRequest{View: d.ref(name), Force: forced(options)})
	return err
}

// Describe returns the view's query, source, version, columns and counts.
func (v *View) Describe(ctx context.Context) (*lemanv1.MaterializedView, error) {
	answer, err := v.client().catalog().GetMaterializedView(ctx, &lemanv1.GetMaterializedViewRequest{View: v.ref()})
	return answer.GetView(), err
}

// Refresh starts a job that updates the view to a version of its source. Wait for it with [Job.Wait].
func (v *View) Refresh(ctx context.Context, options ...RefreshOption) (*Job, error) {
	request, err := v.refresh(ctx, options)
	if err != nil {
		return nil, err
	}
	return v.db().createJob(ctx, request)
}

// ExplainRefresh returns what a refresh would do, and why, without running it.
func (v *View) ExplainRefresh(ctx context.Context, options ...RefreshOption) (*lemanv1.ExplainRefreshResponse, error) {
	request, err := v.refresh(ctx, options)
	if err != nil {
		return nil, err
	}
	return v.client().planner().ExplainRefresh(ctx, &lemanv1.ExplainRefreshRequest{Spec: request.GetRefresh()})
}

func (v *View) refresh(ctx context.Context, options []RefreshOption) (*lemanv1.CreateJobRequest, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	spec := &lemanv1.RefreshSpec{View: v.ref()}
	request := &lemanv1.CreateJobRequest{Request: &lemanv1.CreateJobRequest_Refresh{Refresh: spec}}
	for _, option := range options {
		option.refresh(request)
	}
	if err := versionIsOne("src_version", spec.SrcVersion != nil, spec.GetSrcVersion()); err != nil {
		return nil, err
	}
	return request, noneNegative(amount{"concurrency", int64(spec.GetConcurrency())})
}

// AlterColumns changes functions of the view's columns, or their inputs, either all of them or none. These columns are
// stale until the next refresh. It returns the updated view.
func (v *View) AlterColumns(ctx context.Context, columns ...*lemanv1.ViewFunction) (*lemanv1.MaterializedView, error) {
	if err := allGiven("columns", columns); err != nil {
		return nil, err
	}
	answer, err := v.client().catalog().AlterMaterializedView(ctx, &lemanv1.AlterMaterializedViewRequest{
		View: v.ref(), Functions: columns, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"functions"}},
	})
	return answer.GetView(), err
}
