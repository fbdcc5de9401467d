package leman

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"

	lemanv1 "leman.dev/go/leman/v1"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// policyAttempts is the number of attempts that the published policy gives a call that changes nothing, even if no
	// patience is left.
	policyAttempts = 5
	// mostLosses is how many connections a call may lose while it runs. If it loses more, the call itself may be what
	// crashes the services.
	mostLosses = 2
)

// patience controls how long a call waits for unavailable services: its pauses grow from 50 ms to a second. It starts
// over whenever there is progress, such as a message of a stream.
type patience struct {
	limit   time.Duration
	pause   time.Duration
	begun   time.Time // when the first attempt failed; zero: none since the last reset
	renewed bool      // the token was renewed since the last reset
	lost    int       // lost connections since the last reset
	failed  int       // failed attempts since the last reset
	always  int       // attempts that are made even if no time is left
}

func newPatience(limit time.Duration) *patience {
	return &patience{limit: limit, pause: firstPause}
}

// forReading returns the patience for a call that changes nothing, or that can safely be made twice.
func (p *patience) forReading() *patience {
	p.always = policyAttempts
	return p
}

func (p *patience) reset() {
	p.pause, p.begun, p.renewed, p.lost, p.failed = firstPause, time.Time{}, false, 0, 0
}

// mayLose counts a lost connection, and returns false if the call has lost too many.
func (p *patience) mayLose(failed *Error) bool {
	if failed.lostConnection() {
		p.lost++
	}
	return p.lost < mostLosses
}

// wait pauses before another attempt and returns true. It returns false at once if the patience or the context would
// end during the pause.
func (p *patience) wait(ctx context.Context, atLeast time.Duration) bool {
	now := time.Now()
	if p.begun.IsZero() {
		p.begun = now
	}
	pause := max(atLeast, time.Duration(float64(p.pause)*(0.5+rand.Float64()/2)))
	end := now.Add(pause)
	p.failed++
	over := end.After(p.begun.Add(p.limit)) && p.failed >= p.always
	if deadline, has := ctx.Deadline(); over || (has && end.After(deadline)) {
		return false
	}
	p.pause = min(2*p.pause, longestPause)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// passing returns true if an error is likely to be temporary. Services that disappear during a call may end it with
// errors of gRPC, which have no reason.
func passing(ctx context.Context, failed *Error) bool {
	if ctx.Err() != nil {
		return false
	}
	switch failed.Code {
	case codes.Unavailable: // of the services; the caller has to start function servers
		return failed.Reason != ReasonClosed && failed.Reason != lemanv1.ErrorReason_FUNCTION_UNAVAILABLE.String()
	case codes.ResourceExhausted:
		return failed.RetryDelay > 0
	case codes.Canceled:
		return failed.Reason == "" && !errors.Is(failed.cause, context.Canceled)
	default:
		return false
	}
}
