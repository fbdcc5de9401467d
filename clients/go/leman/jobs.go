package leman

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// JobListOption is an option of [Database.Jobs].
type JobListOption interface {
	listJobs(*listSettings)
}

type oldestFirstOption struct{}

// OldestFirst lists the oldest jobs first.
func OldestFirst() JobListOption { return oldestFirstOption{} }

func (oldestFirstOption) listJobs(s *listSettings) { s.oldestFirst = true }

// Jobs lists the jobs that match a filter, or all jobs if the filter is nil. The newest come first, unless you pass
// [OldestFirst].
func (d *Database) Jobs(
	ctx context.Context, filter *lemanv1.JobFilter, options ...JobListOption,
) iter.Seq2[*lemanv1.Job, error] {
	if err := allGiven("options", options); err != nil {
		return nothingBut[*lemanv1.Job](err)
	}
	var s listSettings
	for _, option := range options {
		option.listJobs(&s)
	}
	if err := noneNegative(amount{"page_size", int64(s.pageSize)}); err != nil {
		return nothingBut[*lemanv1.Job](err)
	}
	order := lemanv1.JobOrder_JOB_ORDER_NEWEST_FIRST
	if s.oldestFirst {
		order = lemanv1.JobOrder_JOB_ORDER_OLDEST_FIRST
	}
	return pages(ctx, func(ctx context.Context, token string) ([]*lemanv1.Job, string, error) {
		page, err := d.client.jobs().ListJobs(ctx, &lemanv1.ListJobsRequest{
			Database: d.name, Filter: filter, Order: order, PageSize: s.pageSize, PageToken: token,
		})
		if token == "" {
			d.client.warn(ctx, page.GetWarnings())
		}
		return page.GetJobs(), page.GetNextPageToken(), err
	})
}

// CancelJobs cancels the jobs that match a filter and have not ended; an empty filter matches all jobs. The response
// lists matching jobs that could not be cancelled, because another executor runs them.
func (d *Database) CancelJobs(ctx context.Context, filter *lemanv1.JobFilter) (*lemanv1.CancelJobsResponse, error) {
	return d.client.jobs().CancelJobs(ctx, &lemanv1.CancelJobsRequest{Database: d.name, Filter: filter})
}

// Job returns a handle for a job. It makes no call.
func (d *Database) Job(id string) *Job { return &Job{database: d, id: id} }

func (d *Database) createJob(ctx context.Context, request *lemanv1.CreateJobRequest) (*Job, error) {
	answer, err := d.client.jobs().CreateJob(ctx, request)
	if err != nil {
		return nil, err
	}
	return d.Job(answer.GetJob().GetJobId()), nil
}

// Job is a handle for a job of a database. The job runs in the services, independent of this handle and its process.
type Job struct {
	database *Database
	id       string
}

// ID returns the id of the job.
func (j *Job) ID() string { return j.id }

func (j *Job) db() *Database { return j.database.orNone() }

func (j *Job) calls() lemanv1.JobServiceClient { return j.db().client.jobs() }

// Get returns the current state of the job.
func (j *Job) Get(ctx context.Context) (*lemanv1.Job, error) {
	answer, err := j.calls().GetJob(ctx, &lemanv1.GetJobRequest{Database: j.db().name, JobId: j.id})
	return answer.GetJob(), err
}

// Cancel cancels the job; its finished work is kept. It returns the updated job, usually CANCELLING.
func (j *Job) Cancel(ctx context.Context) (*lemanv1.Job, error) {
	answer, err := j.calls().CancelJob(ctx, &lemanv1.CancelJobRequest{Database: j.db().name, JobId: j.id})
	return answer.GetJob(), err
}

// Pause pauses the job. Its workers store what they have computed and end. The job stays paused, also over restarts of
// the services, until it is resumed or cancelled. Pause returns the updated job, usually PAUSING.
func (j *Job) Pause(ctx context.Context) (*lemanv1.Job, error) {
	answer, err := j.calls().PauseJob(ctx, &lemanv1.PauseJobRequest{Database: j.db().name, JobId: j.id})
	return answer.GetJob(), err
}

// Resume continues a paused job. It returns the updated job, usually PENDING.
func (j *Job) Resume(ctx context.Context) (*lemanv1.Job, error) {
	answer, err := j.calls().ResumeJob(ctx, &lemanv1.ResumeJobRequest{Database: j.db().name, JobId: j.id})
	return answer.GetJob(), err
}

// Delete removes an ended job from the history for good. The computed values stay.
func (j *Job) Delete(ctx context.Context) error {
	_, err := j.calls().DeleteJob(ctx, &lemanv1.DeleteJobRequest{Database: j.db().name, JobId: j.id})
	return err
}

// SetLabels replaces all labels of the job.
func (j *Job) SetLabels(ctx context.Context, labels map[string]string) (*lemanv1.Job, error) {
	return j.update(ctx, &lemanv1.UpdateJobRequest{Labels: labels}, "labels")
}

// SetPriority changes the priority, which counts while the job waits to start.
func (j *Job) SetPriority(ctx context.Context, priority int32) (*lemanv1.Job, error) {
	return j.update(ctx, &lemanv1.UpdateJobRequest{Priority: priority}, "priority")
}

func (j *Job) update(ctx context.Context, request *lemanv1.UpdateJobRequest, field string) (*lemanv1.Job, error) {
	request.Database, request.JobId = j.db().name, j.id
	request.UpdateMask = &fieldmaskpb.FieldMask{Paths: []string{field}}
	answer, err := j.calls().UpdateJob(ctx, request)
	return answer.GetJob(), err
}

// Retry starts a job that calls the function again for the rows of the column that are marked as failed. This job must
// have ended.
func (j *Job) Retry(ctx context.Context, options ...RetryOption) (*Job, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	request := &lemanv1.RetryJobRequest{Database: j.db().name, JobId: j.id}
	for _, option := range options {
		option.retry(request)
	}
	if err := functionNamed(request.GetUdf()); err != nil {
		return nil, err
	}
	answer, err := j.calls().RetryJob(ctx, request)
	if err != nil {
		return nil, err
	}
	return j.db().Job(answer.GetJob().GetJobId()), nil
}

// ErrorListOption is an option of [Job.Errors].
type ErrorListOption interface {
	listErrors(*lemanv1.ListJobErrorsRequest)
}

type errorListFunc func(*lemanv1.ListJobErrorsRequest)

func (f errorListFunc) listErrors(request *lemanv1.ListJobErrorsRequest) { f(request) }
func (n pageSizeOption) listErrors(request *lemanv1.ListJobErrorsRequest) {
	request.PageSize = int32(n)
}

// OfColumn lists only the failed rows of this column.
func OfColumn(name string) ErrorListOption {
	return errorListFunc(func(request *lemanv1.ListJobErrorsRequest) { request.Column = name })
}

// PlacesOnly lists only the addresses of failed rows, without their errors. So the list is complete even if the
// function's error policy stores no errors.
func PlacesOnly() ErrorListOption {
	return errorListFunc(func(request *lemanv1.ListJobErrorsRequest) { request.PlacesOnly = true })
}

// Errors lists the rows for which the function failed, by address.
func (j *Job) Errors(ctx context.Context, options ...ErrorListOption) iter.Seq2[*lemanv1.RowError, error] {
	return pages(ctx, func(ctx context.Context, token string) ([]*lemanv1.RowError, string, error) {
		if err := checked(ctx, options); err != nil {
			return nil, "", err
		}
		request := &lemanv1.ListJobErrorsRequest{Database: j.db().name, JobId: j.id}
		for _, option := range options {
			option.listErrors(request)
		}
		if err := noneNegative(amount{"page_size", int64(request.GetPageSize())}); err != nil {
			return nil, "", err
		}
		request.PageToken = token
		page, err := j.calls().ListJobErrors(ctx, request)
		return page.GetErrors(), page.GetNextPageToken(), err
	})
}

// ErrorGroupOption is an option of [Job.ErrorGroups].
type ErrorGroupOption interface {
	groupErrors(*lemanv1.GroupJobErrorsRequest)
}

type errorGroupFunc func(*lemanv1.GroupJobErrorsRequest)

func (f errorGroupFunc) groupErrors(request *lemanv1.GroupJobErrorsRequest) { f(request) }
func (n pageSizeOption) groupErrors(request *lemanv1.GroupJobErrorsRequest) {
	request.PageSize = int32(n)
}

// GroupsOfColumn groups only the failed rows of this column.
func GroupsOfColumn(name string) ErrorGroupOption {
	return errorGroupFunc(func(request *lemanv1.GroupJobErrorsRequest) { request.Column = name })
}

// Examples sets how many example rows each group has, from 0 to 5. The default is one.
func Examples(n int) ErrorGroupOption {
	return errorGroupFunc(func(request *lemanv1.GroupJobErrorsRequest) { request.Examples = proto.Int32(int32(n)) })
}

// ErrorGroups counts the failed rows by error, and lists the largest group first. The service does the counting, and
// sends only a few example rows.
func (j *Job) ErrorGroups(ctx context.Context, options ...ErrorGroupOption) iter.Seq2[*lemanv1.RowErrorGroup, error] {
	return pages(ctx, func(ctx context.Context, token string) ([]*lemanv1.RowErrorGroup, string, error) {
		if err := checked(ctx, options); err != nil {
			return nil, "", err
		}
		request := &lemanv1.GroupJobErrorsRequest{Database: j.db().name, JobId: j.id}
		for _, option := range options {
			option.groupErrors(request)
		}
		sizes := []amount{{"page_size", int64(request.GetPageSize())}, {"examples", int64(request.GetExamples())}}
		if err := noneNegative(sizes...); err != nil {
			return nil, "", err
		}
		request.PageToken = token
		page, err := j.calls().GroupJobErrors(ctx, request)
		return page.GetGroups(), page.GetNextPageToken(), err
	})
}

// WaitFor waits until the job has ended or the time limit has passed, and returns the current job. It uses no stream,
// for callers that cannot hold one open. Unlike [Job.Wait], it returns no error for a failed job.
func (j *Job) WaitFor(ctx context.Context, limit time.Duration) (*lemanv1.Job, error) {
	for end := time.Now().Add(limit); ; {
		left := max(0, time.Until(end))
		request := &lemanv1.WaitJobRequest{
			Database: j.db().name, JobId: j.id, Timeout: durationpb.New(min(left, time.Minute)),
		}
		answer, err := j.calls().WaitJob(ctx, request)
		if err != nil || Terminal(answer.GetJob().GetState()) || time.Until(end) <= 0 {
			return answer.GetJob(), err
		}
	}
}
