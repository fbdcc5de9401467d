package leman

import (
	"context"
	"iter"
	"time"

	lemanv1 "leman.dev/go/leman/v1"
)

// silence is how long a watch waits for a message: the services send one at least every 15 seconds.
const silence = 45 * time.Second

// JobUpdate is the state of a job at one moment, with the events since the previous update.
type JobUpdate struct {
	// Job is the whole job.
	Job *lemanv1.Job
	// Events lists new events, each once.
	Events []*lemanv1.JobEvent
	// EventsMissing is true if events before these may have been lost, because an executor died or there were more than
	// a thousand at once.
	EventsMissing bool
	// Sequence is the position of this update in the watch, for [After]. It never decreases, even when the services
	// restart.
	Sequence int64
}

// WatchOption is an option of [Job.Watch].
type WatchOption interface {
	WaitOption
	watch(*watchSettings)
}

// WaitOption is an option of [Job.Wait].
type WaitOption interface {
	wait(*watchSettings)
}

type watchSettings struct {
	after    int64
	progress func(*lemanv1.Progress)
	update   func(*JobUpdate)
}

type afterOption int64

// After starts the watch after an update that this process, or another one, received earlier.
func After(sequence int64) WatchOption { return afterOption(sequence) }

func (n afterOption) watch(s *watchSettings) { s.after = int64(n) }
func (n afterOption) wait(s *watchSettings)  { s.after = int64(n) }

type waitFunc func(*watchSettings)

func (f waitFunc) wait(s *watchSettings) { f(s) }

// OnProgress calls a function with the progress of the job, whenever it has changed and at least every 15 seconds.
func OnProgress(callback func(progress *lemanv1.Progress)) WaitOption {
	return waitFunc(func(s *watchSettings) { s.progress = callback })
}

// OnUpdate calls a function with each update.
func OnUpdate(callback func(update *JobUpdate)) WaitOption {
	return waitFunc(func(s *watchSettings) { s.update = callback })
}

// Terminal returns true if a job in that state has ended.
func Terminal(state lemanv1.Job_State) bool {
	switch state {
	case lemanv1.Job_STATE_DONE, lemanv1.Job_STATE_DONE_WITH_ERRORS, lemanv1.Job_STATE_FAILED, lemanv1.Job_STATE_CANCELLED:
		return true
	default:
		return false
	}
}

// Watch yields the current job, and the job again after each change; the last update has a terminal state. If the
// services restart or the connection breaks, it continues, unless no message comes for as long as the client's
// patience. The job continues when the watch ends early.
func (j *Job) Watch(ctx context.Context, options ...WatchOption) iter.Seq2[*JobUpdate, error] {
	if err := checked(ctx, options); err != nil {
		return func(yield func(*JobUpdate, error) bool) { yield(nil, err) }
	}
	var s watchSettings
	for _, option := range options {
		option.watch(&s)
	}
	if err := noneNegative(amount{"after", s.after}); err != nil {
		return func(yield func(*JobUpdate, error) bool) { yield(nil, err) }
	}
	return j.updates(ctx, s.after)
}

func (j *Job) updates(ctx context.Context, after int64) iter.Seq2[*JobUpdate, error] {
	return func(yield func(*JobUpdate, error) bool) {
		sequence, lastEvent := after, int64(0)
		open := func(ctx context.Context) (messages[lemanv1.WatchJobResponse], error) {
			return j.calls().WatchJob(ctx,
				&lemanv1.WatchJobRequest{Database: j.db().name, JobId: j.id, AfterSequence: sequence}, onceByGRPC)
		}
		seen := func(message *lemanv1.WatchJobResponse) (last bool) {
			sequence = max(sequence, message.GetSequence())
			return Terminal(message.GetJob().GetState())
		}
		for message, err := range resumed(ctx, j.db().client, open, seen, silence) {
			if err != nil {
				yield(nil, err)
				return
			}
			update := &JobUpdate{
				Job: message.GetJob(), EventsMissing: message.GetEventsMissing(), Sequence: message.GetSequence(),
			}
			for _, event := range message.GetEvents() {
				if event.GetSequence() > lastEvent {
					lastEvent = event.GetSequence()
					update.Events = append(update.Events, event)
				}
			}
			if !yield(update, nil) {
				return
			}
		}
	}
}

// Wait waits until the job has ended and returns it. The error is an [*Error] if the job FAILED, with the reason of the
// failure, or was CANCELLED (JOB_CANCELLED). A job that ended as DONE_WITH_ERRORS returns no error. Wait keeps waiting
// for a paused job. When the context ends, the job continues.
func (j *Job) Wait(ctx context.Context, options ...WaitOption) (*lemanv1.Job, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	var s watchSettings
	for _, option := range options {
		option.wait(&s)
	}
	if err := noneNegative(amount{"after", s.after}); err != nil {
		return nil, err
	}
	var last *lemanv1.Job
	for update, err := range j.updates(ctx, s.after) {
		if err != nil {
			return last, err
		}
		last = update.Job
		if s.progress != nil {
			s.progress(last.GetProgress())
		}
		if s.update != nil {
			s.update(update)
		}
	}
	return last, JobError(last)
}
