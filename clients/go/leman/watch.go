package leman

import (
	"context"
	"iter"
	"time"

	lemanv1 "leman.dev/go/leman/v1"
)

// silence is how long a watch may hear nothing: the services say something every 15 seconds.
const silence = 45 * time.Second

// JobUpdate is a job at one moment, with what happened since the one before.
type JobUpdate struct {
	// Job is the whole job as it stands.
	Job *lemanv1.Job
	// Events is what happened, each event once.
	Events []*lemanv1.JobEvent
	// EventsMissing says that there may have been events before these that no one can tell any more: an executor died, or
	// there were more than a thousand at once.
	EventsMissing bool
	// Sequence is how far the watch is, for [After]. It never falls, over restarts of the services too.
	Sequence int64
}

// WatchOption changes a watch.
type WatchOption interface {
	WaitOption
	watch(*watchSettings)
}

// WaitOption changes how a job is waited for.
type WaitOption interface {
	wait(*watchSettings)
}

type watchSettings struct {
	after    int64
	progress func(*lemanv1.Progress)
	update   func(*JobUpdate)
}

type afterOption int64

// After begins a watch behind an update that was seen before, by this process or another one.
func After(sequence int64) WatchOption { return afterOption(sequence) }

func (n afterOption) watch(s *watchSettings) { s.after = int64(n) }
func (n afterOption) wait(s *watchSettings)  { s.after = int64(n) }

type waitFunc func(*watchSettings)

func (f waitFunc) wait(s *watchSettings) { f(s) }

// OnProgress calls a function with how far the job is, whenever that has changed and at least every 15 seconds.
func OnProgress(callback func(progress *lemanv1.Progress)) WaitOption {
	return waitFunc(func(s *watchSettings) { s.progress = callback })
}

// OnUpdate calls a function with each update.
func OnUpdate(callback func(update *JobUpdate)) WaitOption {
	return waitFunc(func(s *watchSettings) { s.update = callback })
}

// Terminal shows whether a job in that state has ended.
func Terminal(state lemanv1.Job_State) bool {
	switch state {
	case lemanv1.Job_STATE_DONE, lemanv1.Job_STATE_DONE_WITH_ERRORS, lemanv1.Job_STATE_FAILED, lemanv1.Job_STATE_CANCELLED:
		return true
	default:
		return false
	}
}

// Watch gives the job now and whenever something changed; the last update has a terminal state. It continues where it was
// over restarts of the services and cuts of the connection, as long as something comes within the client's patience. The
// job goes on when the watch ends early.
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

// Wait waits until the job has ended and gives it as it stands then, with an [*Error] where it FAILED (the reason says
// why) or was CANCELLED (JOB_CANCELLED). A job that ended as DONE_WITH_ERRORS has no error; one that is paused is waited
// for. When the context ends, the job goes on.
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
