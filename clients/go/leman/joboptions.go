package leman

import lemanv1 "leman.dev/go/leman/v1"

// BackfillOption is an option of [Table.Backfill]. Use [BackfillFunc] for fields that have no option of their own.
type BackfillOption interface {
	backfill(request *lemanv1.CreateJobRequest)
}

// RefreshOption is an option of [View.Refresh]. Use [RefreshFunc] for fields that have no option of their own.
type RefreshOption interface {
	refresh(request *lemanv1.CreateJobRequest)
}

// RetryOption is an option of [Job.Retry].
type RetryOption interface {
	retry(request *lemanv1.RetryJobRequest)
}

// JobOption is an option of any job.
type JobOption interface {
	BackfillOption
	RefreshOption
	RetryOption
}

// BackfillFunc sets fields in the specification of a backfill.
type BackfillFunc func(spec *lemanv1.BackfillSpec)

func (f BackfillFunc) backfill(request *lemanv1.CreateJobRequest) { f(request.GetBackfill()) }

// RefreshFunc sets fields in the specification of a refresh.
type RefreshFunc func(spec *lemanv1.RefreshSpec)

func (f RefreshFunc) refresh(request *lemanv1.CreateJobRequest) { f(request.GetRefresh()) }

type jobOption struct {
	create func(*lemanv1.CreateJobRequest)
	again  func(*lemanv1.RetryJobRequest)
}

func (o jobOption) backfill(request *lemanv1.CreateJobRequest) { o.create(request) }
func (o jobOption) refresh(request *lemanv1.CreateJobRequest)  { o.create(request) }
func (o jobOption) retry(request *lemanv1.RetryJobRequest)     { o.again(request) }

// Labels sets labels by which the job can be found.
func Labels(labels map[string]string) JobOption {
	return jobOption{
		func(request *lemanv1.CreateJobRequest) { request.Labels = labels },
		func(request *lemanv1.RetryJobRequest) { request.Labels = labels },
	}
}

// Priority sets the priority, from −100 to 100. A waiting job starts before jobs of lower priority.
func Priority(priority int32) JobOption {
	return jobOption{
		func(request *lemanv1.CreateJobRequest) { request.Priority = priority },
		func(request *lemanv1.RetryJobRequest) { request.Priority = priority },
	}
}

// Env sets environment variables for the functions of the job, such as an API key. The values are secrets: the services
// delete them when the job ends, and show only the names. A retried job does not inherit them.
func Env(variables map[string]string) JobOption {
	return jobOption{
		func(request *lemanv1.CreateJobRequest) { request.Env = variables },
		func(request *lemanv1.RetryJobRequest) { request.Env = variables },
	}
}

type concurrencyOption int32

// Concurrency sets the largest number of worker processes.
func Concurrency(workers int32) interface {
	BackfillOption
	RefreshOption
} {
	return concurrencyOption(workers)
}

func (n concurrencyOption) backfill(request *lemanv1.CreateJobRequest) {
	request.GetBackfill().Concurrency = (*int32)(&n)
}

func (n concurrencyOption) refresh(request *lemanv1.CreateJobRequest) {
	request.GetRefresh().Concurrency = (*int32)(&n)
}

type usingOption struct{ ref *lemanv1.UdfRef }

// Using computes with a registered function instead of the column's own. An empty version means the one that was
// registered last. A retry with Using also makes it the column's function.
func Using(function, version string) interface {
	BackfillOption
	RetryOption
} {
	return usingOption{&lemanv1.UdfRef{Name: function, Version: version}}
}

func (o usingOption) backfill(request *lemanv1.CreateJobRequest) { request.GetBackfill().Udf = o.ref }
func (o usingOption) retry(request *lemanv1.RetryJobRequest)     { request.Udf = o.ref }

type keepOthersOption struct{}

// KeepOthers keeps the values of the rows that did not fail, although the retry changes the function with [Using].
func KeepOthers() RetryOption { return keepOthersOption{} }

func (keepOthersOption) retry(request *lemanv1.RetryJobRequest) { request.KeepOthers = true }

// SourceVersion refreshes the view to this version of its source, 1 or more. It may be older than the current one.
func SourceVersion(version int64) RefreshOption {
	return RefreshFunc(func(spec *lemanv1.RefreshSpec) { spec.SrcVersion = &version })
}

// RefreshPolicy selects how the view may be refreshed.
func RefreshPolicy(policy lemanv1.RefreshSpec_Policy) RefreshOption {
	return RefreshFunc(func(spec *lemanv1.RefreshSpec) { spec.Policy = policy })
}
