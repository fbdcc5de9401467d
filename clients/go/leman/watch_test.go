package leman

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	lemanv1 "leman.dev/go/leman/v1"
)

// story is a job that is watched: message n has the events up to n. A stream ends with end after each of the cuts.
type story struct {
	cuts   []int64 // sequences after which a stream is cut
	end    func(stream grpc.ServerStream) error
	length int64
	last   lemanv1.Job_State
	lock   sync.Mutex
	asked  []int64
}

// streams tells how often the job was watched.
func (s *story) streams() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.asked)
}

// begun notes what a watch asks for.
func (s *story) begun(after int64) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.asked = append(s.asked, after)
}

// cut shows whether a stream is cut here.
func (s *story) cut(sequence int64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if len(s.cuts) == 0 || s.cuts[0] != sequence {
		return false
	}
	s.cuts = s.cuts[1:]
	return true
}

func (s *story) watch(stream grpc.ServerStream) error {
	var request lemanv1.WatchJobRequest
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	s.begun(request.GetAfterSequence())
	// the state now comes first, whatever was seen
	for sequence := max(1, request.GetAfterSequence()); sequence <= s.length; sequence++ {
		state := lemanv1.Job_STATE_RUNNING
		if sequence == s.length {
			state = s.last
		}
		// repeats an event that the watcher has already seen
		events := []*lemanv1.JobEvent{{Sequence: max(1, sequence-1)}, {Sequence: sequence}}
		answer := &lemanv1.WatchJobResponse{Sequence: sequence, Job: job(state), Events: events, EventsMissing: sequence == 4}
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
		if s.cut(sequence) {
			return s.end(stream)
		}
	}
	return nil
}

const cutByProxy = "stream terminated by RST_STREAM with error code: INTERNAL_ERROR"

func unavailable(grpc.ServerStream) error { return status.Error(codes.Unavailable, "draining") }

func TestAWatchGoesOnBehindWhatItSaw(t *testing.T) {
	for name, end := range map[string]func(grpc.ServerStream) error{
		"refused": unavailable,
		"ended":   func(grpc.ServerStream) error { return nil },
		"cut by a proxy": func(grpc.ServerStream) error {
			return status.Error(codes.Internal, cutByProxy)
		},
		"cancelled": func(grpc.ServerStream) error { return status.Error(codes.Canceled, "CANCELLED") },
		"busy": func(grpc.ServerStream) error {
			return refusal(codes.ResourceExhausted, "CALLER_STREAMS", time.Millisecond)
		},
	} {
		told := &story{cuts: []int64{2, 3, 3}, end: end, length: 6, last: lemanv1.Job_STATE_DONE}
		services := serve(t, map[string]handler{"JobService/WatchJob": told.watch})

		updates, err := Collect(services.connected().Database("lake").Job("j1").Watch(t.Context()))

		check(t, err == nil, "%s: %v", name, err)
		check(t, slices.Equal(told.asked, []int64{0, 2, 3, 3}), "%s: asked after %v", name, told.asked)
		var events []int64
		for _, update := range updates {
			check(t, update.EventsMissing == (update.Sequence == 4), "%s: %v", name, update)
			for _, event := range update.Events {
				events = append(events, event.GetSequence())
			}
		}
		check(t, slices.Equal(events, []int64{1, 2, 3, 4, 5, 6}), "%s: events %v", name, events)
		check(t, updates[len(updates)-1].Job.GetState() == lemanv1.Job_STATE_DONE, "%s: %v", name, updates)
	}
}

func TestAWatchOutlastsARestart(t *testing.T) {
	told := &story{cuts: []int64{2}, length: 4, last: lemanv1.Job_STATE_DONE}
	told.end = func(stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return nil
	}
	services := serve(t, map[string]handler{"JobService/WatchJob": told.watch})
	client := services.connected()
	for update, err := range client.Database("lake").Job("j1").Watch(t.Context()) {
		check(t, err == nil, "%v", err)
		if update.Sequence == 2 && told.streams() == 1 {
			services.server.Stop()
			services.start()
		}
	}

	check(t, slices.Equal(told.asked, []int64{0, 2}), "asked after %v", told.asked)
}

func TestAWatchBeginsWhereAnEarlierOneEnded(t *testing.T) {
	told := &story{length: 4, last: lemanv1.Job_STATE_DONE}
	services := serve(t, map[string]handler{"JobService/WatchJob": told.watch})
	watched := services.connected().Database("lake").Job("j1")

	updates, err := Collect(watched.Watch(t.Context(), After(3)))

	check(t, err == nil && len(updates) == 2 && told.asked[0] == 3, "%v %v", updates, err)
}

func TestAWatchThatIsLeftEndsTheCall(t *testing.T) {
	left := make(chan struct{})
	services := serve(t, map[string]handler{"JobService/WatchJob": func(stream grpc.ServerStream) error {
		_ = stream.SendMsg(&lemanv1.WatchJobResponse{Sequence: 1, Job: job(lemanv1.Job_STATE_RUNNING)})
		<-stream.Context().Done()
		close(left)
		return nil
	}})
	for _, err := range services.connected().Database("lake").Job("j1").Watch(t.Context()) {
		check(t, err == nil, "%v", err)
		break
	}

	<-left
}

func TestAWatchThatHearsNothingIsCut(t *testing.T) {
	streams := 0
	client := serve(t, nil).connected()
	open := func(ctx context.Context) (messages[lemanv1.WatchJobResponse], error) {
		streams++
		return mute{ctx, streams > 1}, nil
	}
	seen := func(*lemanv1.WatchJobResponse) bool { return true }

	heard, err := Collect(resumed(t.Context(), client, open, seen, 20*time.Millisecond))

	check(t, err == nil && len(heard) == 1 && streams == 2, "%d streams: %v", streams, err)
}

// mute is a stream of which nothing comes, or one message.
type mute struct {
	ctx   context.Context
	talks bool
}

func (m mute) Recv() (*lemanv1.WatchJobResponse, error) {
	if m.talks {
		return &lemanv1.WatchJobResponse{}, nil
	}
	<-m.ctx.Done()
	return nil, status.FromContextError(m.ctx.Err()).Err()
}

func TestAWatchEndsWithItsContextAndWithPatience(t *testing.T) {
	services := serve(t, map[string]handler{"JobService/WatchJob": unavailable})
	watched := services.connected(WithPatience(300 * time.Millisecond)).Database("lake").Job("j1")

	_, err := Collect(watched.Watch(t.Context()))
	check(t, status.Code(err) == codes.Unavailable, "%v", err)

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = Collect(services.connected().Database("lake").Job("j1").Watch(ctx))
	check(t, errors.Is(err, context.Canceled), "%v", err)
}

func TestAWatchOfNoJobFailsAtOnce(t *testing.T) {
	services := serve(t, map[string]handler{"JobService/WatchJob": func(grpc.ServerStream) error {
		return refusal(codes.NotFound, "JOB_NOT_FOUND", 0)
	}})

	_, err := services.connected().Database("lake").Job("j1").Wait(t.Context())

	check(t, HasReason(err, lemanv1.ErrorReason_JOB_NOT_FOUND), "%v", err)
	check(t, services.count("JobService/WatchJob") == 1, "watched again")
}

func TestATokenThatExpiresUnderAWatchIsRenewed(t *testing.T) {
	told := &story{
		cuts: []int64{1, 2}, length: 3, last: lemanv1.Job_STATE_DONE,
		end: func(grpc.ServerStream) error { return refusal(codes.Unauthenticated, "TOKEN_EXPIRED", 0) },
	}
	services := serve(t, map[string]handler{"JobService/WatchJob": told.watch})
	n := 0
	source := TokenFunc(func(context.Context) (Token, error) {
		n++
		return Token{Value: string(rune('a' + n))}, nil
	})

	_, err := services.connected(WithTokenSource(source)).Database("lake").Job("j1").Wait(t.Context())

	check(t, err == nil, "%v", err)
	shown := services.shown("JobService/WatchJob")
	check(t, slices.Equal(shown, []string{"Bearer b", "Bearer c", "Bearer d"}), "%q", shown)
}

func TestWaitTellsProgressAndHowTheJobEnded(t *testing.T) {
	info, err := anypb.New(&errdetails.ErrorInfo{Reason: "UDF_FAILED", Metadata: map[string]string{"row_address": "4"}})
	if err != nil {
		t.Fatal(err)
	}
	for state, reason := range map[lemanv1.Job_State]string{
		lemanv1.Job_STATE_DONE:             "",
		lemanv1.Job_STATE_DONE_WITH_ERRORS: "",
		lemanv1.Job_STATE_FAILED:           "UDF_FAILED",
		lemanv1.Job_STATE_CANCELLED:        ReasonJobCancelled,
	} {
		services := serve(t, map[string]handler{"JobService/WatchJob": func(stream grpc.ServerStream) error {
			ends := job(state)
			ends.Error = &spb.Status{Code: 9, Message: "no", Details: []*anypb.Any{info}}
			_ = stream.SendMsg(&lemanv1.WatchJobResponse{Sequence: 1, Job: job(lemanv1.Job_STATE_RUNNING)})
			return stream.SendMsg(&lemanv1.WatchJobResponse{Sequence: 2, Job: ends})
		}})
		var progress []int64
		var updates []int64

		found, err := services.connected().Database("lake").Job("j1").Wait(t.Context(),
			OnProgress(func(p *lemanv1.Progress) { progress = append(progress, p.GetRowsCommitted()) }),
			OnUpdate(func(u *JobUpdate) { updates = append(updates, u.Sequence) }))

		check(t, found.GetState() == state, "%v", found)
		check(t, slices.Equal(progress, []int64{7, 7}) && slices.Equal(updates, []int64{1, 2}), "%v %v", progress, updates)
		var failed *Error
		check(t, errors.As(err, &failed) == (reason != ""), "%s: %v", state, err)
		if failed != nil {
			check(t, failed.Reason == reason && failed.JobID == "j1", "%v", failed)
			check(t, !errors.Is(err, context.Canceled), "the job was cancelled, not the call")
		}
	}
}

func TestWaitForAsksUntilTheTimeIsOver(t *testing.T) {
	states := []lemanv1.Job_State{lemanv1.Job_STATE_RUNNING, lemanv1.Job_STATE_PAUSED, lemanv1.Job_STATE_FAILED}
	services := serve(t, map[string]handler{"JobService/WaitJob": unary(
		func(_ context.Context, request *lemanv1.WaitJobRequest) (*lemanv1.WaitJobResponse, error) {
			if request.GetTimeout().AsDuration() == 0 {
				return &lemanv1.WaitJobResponse{Job: job(lemanv1.Job_STATE_RUNNING)}, nil
			}
			state := states[0]
			states = states[1:]
			return &lemanv1.WaitJobResponse{Job: job(state)}, nil
		})})
	waited := services.connected().Database("lake").Job("j1")

	found, err := waited.WaitFor(t.Context(), time.Hour)
	check(t, err == nil && found.GetState() == lemanv1.Job_STATE_FAILED, "%v %v", found, err)

	found, err = waited.WaitFor(t.Context(), 0)
	check(t, err == nil && found.GetState() == lemanv1.Job_STATE_RUNNING, "%v %v", found, err)
}
