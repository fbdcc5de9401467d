package leman

import (
	"context"
	"iter"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// View is a materialized view of a database: a table that a query over another table fills. It is made by
// [Database.View].
type View struct{ relation }

// View names a view. Nothing is called: [View.Describe] shows whether it is there.
func (d *Database) View(name string) *View { return &View{relation{d, name}} }

// OpenView names a view that is there. The error has the reason TABLE_NOT_FOUND or NOT_A_VIEW where it is not.
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

// ViewOption changes a view that is made.
type ViewOption func(*lemanv1.CreateMaterializedViewRequest)

// MaxRowsPerViewFragment bounds the rows in a fragment.
func MaxRowsPerViewFragment(rows int64) ViewOption {
	return func(request *lemanv1.CreateMaterializedViewRequest) { request.MaxRowsPerFragment = &rows }
}

// CreateView makes a view: a placeholder for each row of the source that the query's filter matches. No function is
// called: [View.Refresh] fills it. A source without a database in its name is one of this database.
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

// DropView removes a view, with its history and what is stored beside it. Its source stays. With [Force]: although views
// rest on it, which keep their rows and cannot be refreshed any more.
func (d *Database) DropView(ctx context.Context, name string, options ...ForceOption) error {
	_, err := d.client.commits().DropView(ctx, &lemanv1.DropViewRequest{View: d.ref(name), Force: forced(options)})
	return err
}

// Describe tells its query, source, version, columns and counts.
func (v *View) Describe(ctx context.Context) (*lemanv1.MaterializedView, error) {
	answer, err := v.client().catalog().GetMaterializedView(ctx, &lemanv1.GetMaterializedViewRequest{View: v.ref()})
	return answer.GetView(), err
}

// Refresh starts a job that brings the view to a version of its source. [Job.Wait] waits for it.
func (v *View) Refresh(ctx context.Context, options ...RefreshOption) (*Job, error) {
	request, err := v.refresh(ctx, options)
	if err != nil {
		return nil, err
	}
	return v.db().createJob(ctx, request)
}

// ExplainRefresh tells what a refresh would do, and why: a dry run.
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

// AlterColumns gives function columns of the view other functions or inputs: all of them or none. They are stale until
// the next refresh. It gives the view as it is now.
func (v *View) AlterColumns(ctx context.Context, columns ...*lemanv1.ViewFunction) (*lemanv1.MaterializedView, error) {
	if err := allGiven("columns", columns); err != nil {
		return nil, err
	}
	answer, err := v.client().catalog().AlterMaterializedView(ctx, &lemanv1.AlterMaterializedViewRequest{
		View: v.ref(), Functions: columns, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"functions"}},
	})
	return answer.GetView(), err
}
