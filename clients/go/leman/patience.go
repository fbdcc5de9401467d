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
	// policyAttempts is what the published policy has for a call that changes nothing, whatever patience is left.
	policyAttempts = 5
	// mostLosses is how many connections a call may lose while it runs: it may be what ends the services.
	mostLosses = 2
)

// patience is how long a call waits for services that are away: pauses that grow from 50 ms to a second. It is new
// again with whatever goes forward, such as a message of a stream.
type patience struct {
	limit   time.Duration
	pause   time.Duration
	begun   time.Time // when the first attempt failed; zero: none has since the last reset
	renewed bool      // the token was renewed since the last reset
	lost    int       // connections that were lost since the last reset
	failed  int       // attempts that failed since the last reset
	always  int       // attempts that are made even where no time is left
}

func newPatience(limit time.Duration) *patience {
	return &patience{limit: limit, pause: firstPause}
}

// forReading is the patience of a call that changes nothing, or nothing more when it is made twice.
func (p *patience) forReading() *patience {
	p.always = policyAttempts
	return p
}

func (p *patience) reset() {
	p.pause, p.begun, p.renewed, p.lost, p.failed = firstPause, time.Time{}, false, 0, 0
}

// mayLose returns false where a call has lost its connection again than it may.
func (p *patience) mayLose(failed *Error) bool {
	if failed.lostConnection() {
		p.lost++
	}
	return p.lost < mostLosses
}

// wait returns true after a pause, when another attempt is worth it; false at once when it is not: patience or the
// context would have ended.
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

// passing shows whether an error is likely to pass by itself. Services that go away under a call may end it in ways of
// gRPC's own, which have no reason.
func passing(ctx context.Context, failed *Error) bool {
	if ctx.Err() != nil {
		return false
	}
	switch failed.Code {
	case codes.Unavailable: // of the services; a function server that is away is for the caller to start
		return failed.Reason != ReasonClosed && failed.Reason != lemanv1.ErrorReason_FUNCTION_UNAVAILABLE.String()
	case codes.ResourceExhausted:
		return failed.RetryDelay > 0
	case codes.Canceled:
		return failed.Reason == "" && !errors.Is(failed.cause, context.Canceled)
	default:
		return false
	}
}
