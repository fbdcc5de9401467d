package leman

import lemanv1 "leman.dev/go/leman/v1"

// BackfillOption changes a backfill. [BackfillFunc] sets whatever has no option of its own.
type BackfillOption interface {
	backfill(request *lemanv1.CreateJobRequest)
}

// RefreshOption changes the refresh of a view. [RefreshFunc] sets whatever has no option of its own.
type RefreshOption interface {
	refresh(request *lemanv1.CreateJobRequest)
}

// RetryOption changes the retry of a job.
type RetryOption interface {
	retry(request *lemanv1.RetryJobRequest)
}

// JobOption changes any job.
type JobOption interface {
	BackfillOption
	RefreshOption
	RetryOption
}

// BackfillFunc sets fields of what a backfill is asked to do.
type BackfillFunc func(spec *lemanv1.BackfillSpec)

func (f BackfillFunc) backfill(request *lemanv1.CreateJobRequest) { f(request.GetBackfill()) }

// RefreshFunc sets fields of what a refresh is asked to do.
type RefreshFunc func(spec *lemanv1.RefreshSpec)

func (f RefreshFunc) refresh(request *lemanv1.CreateJobRequest) { f(request.GetRefresh()) }

type jobOption struct {
	create func(*lemanv1.CreateJobRequest)
	again  func(*lemanv1.RetryJobRequest)
}

func (o jobOption) backfill(request *lemanv1.CreateJobRequest) { o.create(request) }
func (o jobOption) refresh(request *lemanv1.CreateJobRequest)  { o.create(request) }
func (o jobOption) retry(request *lemanv1.RetryJobRequest)     { o.again(request) }

// Labels says what the job is to be found by.
func Labels(labels map[string]string) JobOption {
	return jobOption{
		func(request *lemanv1.CreateJobRequest) { request.Labels = labels },
		func(request *lemanv1.RetryJobRequest) { request.Labels = labels },
	}
}

// Priority, −100 to 100, has the job take its turn before those with a lower one.
func Priority(priority int32) JobOption {
	return jobOption{
		func(request *lemanv1.CreateJobRequest) { request.Priority = priority },
		func(request *lemanv1.RetryJobRequest) { request.Priority = priority },
	}
}

// Env gives the job's functions environment variables, such as an API key. The values are secrets: the services forget them
// when the job ends, and tell no one more than the names. A retry has none of those of the job that it retries.
func Env(variables map[string]string) JobOption {
	return jobOption{
		func(request *lemanv1.CreateJobRequest) { request.Env = variables },
		func(request *lemanv1.RetryJobRequest) { request.Env = variables },
	}
}

type concurrencyOption int32

// Concurrency is how many worker processes there are at the most.
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

// Using computes with a registered function in place of the column's own; with an empty version the one registered last.
// A retry gives the column that function for good.
func Using(function, version string) interface {
	BackfillOption
	RetryOption
} {
	return usingOption{&lemanv1.UdfRef{Name: function, Version: version}}
}

func (o usingOption) backfill(request *lemanv1.CreateJobRequest) { request.GetBackfill().Udf = o.ref }
func (o usingOption) retry(request *lemanv1.RetryJobRequest)     { request.Udf = o.ref }

type keepOthersOption struct{}

// KeepOthers has the rows that did not fail keep their values, although the retry is [Using] another function.
func KeepOthers() RetryOption { return keepOthersOption{} }

func (keepOthersOption) retry(request *lemanv1.RetryJobRequest) { request.KeepOthers = true }

// SourceVersion has a refresh bring the view to this version of its source, 1 or more, forward or back.
func SourceVersion(version int64) RefreshOption {
	return RefreshFunc(func(spec *lemanv1.RefreshSpec) { spec.SrcVersion = &version })
}

// RefreshPolicy says which ways a refresh may take.
func RefreshPolicy(policy lemanv1.RefreshSpec_Policy) RefreshOption {
	return RefreshFunc(func(spec *lemanv1.RefreshSpec) { spec.Policy = policy })
}
