package leman

import (
	"context"
	"iter"

	lemanv1 "leman.dev/go/leman/v1"
)

// relation is what tables and views have in common: rows, versions, files.
type relation struct {
	database *Database
	name     string
}

// Name returns the name in the database.
func (r relation) Name() string { return r.name }

// Database returns the database.
func (r relation) Database() *Database { return r.database }

func (r relation) db() *Database { return r.database.orNone() }

func (r relation) client() *Client { return r.db().client }

func (r relation) ref() *lemanv1.TableRef { return r.db().ref(r.name) }

// Commits lists Leman's commits in the history, newest first.
func (r relation) Commits(ctx context.Context, options ...ListOption) iter.Seq2[*lemanv1.Commit, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]*lemanv1.Commit, string, error) {
		page, err := r.client().commits().ListCommits(ctx,
			&lemanv1.ListCommitsRequest{Table: r.ref(), PageSize: size, PageToken: token})
		return page.GetCommits(), page.GetNextPageToken(), err
	})
}

// Commit returns the outcome of a commit by its request id. If the commit is still in progress, it waits.
func (r relation) Commit(ctx context.Context, requestID string) (*lemanv1.Commit, error) {
	request := &lemanv1.GetCommitRequest{Table: r.ref(), RequestId: requestID}
	answer, err := r.client().commits().GetCommit(ctx, request)
	return answer.GetCommit(), err
}

// OptimizeIndices updates the indexes on the given columns, or all indexes if none are given, and returns which rows
// they then cover. It takes as long as Lance needs to index the missing rows: set the deadline of the context
// accordingly.
func (r relation) OptimizeIndices(ctx context.Context, columns ...string) ([]*lemanv1.IndexCoverage, error) {
	request := &lemanv1.OptimizeIndicesRequest{Table: r.ref(), Columns: columns}
	answer, err := r.client().commits().OptimizeIndices(ctx, request)
	return answer.GetIndices(), err
}

// CollectGarbage deletes Leman's files next to the data that are no longer needed and older than a week. With changes
// to the request you can set another age, or only list what would be deleted (DryRun).
func (r relation) CollectGarbage(
	ctx context.Context, changes ...func(*lemanv1.CollectGarbageRequest),
) (*lemanv1.CollectGarbageResponse, error) {
	if err := allGiven("changes", changes); err != nil {
		return nil, err
	}
	request := &lemanv1.CollectGarbageRequest{Table: r.ref()}
	for _, change := range changes {
		change(request)
	}
	return r.client().commits().CollectGarbage(ctx, request)
}
