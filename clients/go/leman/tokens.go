package leman

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// errNoToken is the cause of the error if a source supplied no token while a call could wait.
var errNoToken = errors.New("the token source gave no token in time")

// tokens holds the current token of a source. A nil *tokens stands for calls without a token.
type tokens struct {
	source  TokenSource
	lock    sync.Mutex
	current Token
	asked   *asking // the running request to the source, or nil
}

// asking is one request to a source, on behalf of all calls that wait for its token.
type asking struct {
	ctx       context.Context // of the call that started it
	done      chan struct{}   // closed when the fields below are set
	value     string
	err       error // why there is no token
	abandoned bool  // the call that started it ended first: waiting calls start another request
}

func newTokens(source TokenSource) *tokens {
	if source == nil {
		return nil
	}
	return &tokens{source: source}
}

// get returns the token for a call. It waits for the source until the context ends.
func (t *tokens) get(ctx context.Context) (string, error) {
	if t == nil {
		return "", nil
	}
	for {
		held, asked := t.ask(ctx)
		if asked == nil {
			return held, nil
		}
		select {
		case <-asked.done:
		case <-ctx.Done():
			return "", unanswered(ctx)
		}
		switch {
		case asked.err == nil:
			return asked.value, nil
		case ctx.Err() != nil:
			return "", unanswered(ctx)
		case asked.abandoned:
		case held != "":
			return held, nil
		default:
			return "", asked.err
		}
	}
}

// ask returns the current token. If that is about to expire, it also returns a request for another one, and starts it
// unless one is running. The request runs in a goroutine of its own. So a source that ignores its context blocks no
// other call, and there is at most one such goroutine.
func (t *tokens) ask(ctx context.Context) (held string, asked *asking) {
	t.lock.Lock()
	defer t.lock.Unlock()
	now, expires := time.Now(), t.current.Expires
	if t.current.Value != "" && (expires.IsZero() || now.Before(expires)) {
		held = t.current.Value
		if expires.IsZero() || now.Before(expires.Add(-expiryMargin)) {
			return held, nil
		}
	}
	switch {
	case t.asked == nil:
		t.asked = &asking{ctx: ctx, done: make(chan struct{})}
		go t.answer(t.asked)
	case held != "": // it serves while another call asks
		return held, nil
	}
	return held, t.asked
}

// answer calls the source and stores its token.
func (t *tokens) answer(asked *asking) {
	found, err := Token{}, noToken(errors.New("the source ended its goroutine"))
	defer func() {
		t.lock.Lock()
		defer t.lock.Unlock()
		if err == nil {
			t.current = found
		}
		asked.value, asked.err, asked.abandoned = found.Value, err, err != nil && asked.ctx.Err() != nil
		t.asked = nil
		close(asked.done)
	}()
	found, err = tokenOf(asked.ctx, t.source)
}

// tokenOf calls the source and checks that its token can be sent. If the source panics, it returns an error.
func tokenOf(ctx context.Context, source TokenSource) (found Token, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = noToken(fmt.Errorf("the source panicked: %v", cause))
		}
	}()
	found, err = source.Token(ctx)
	if err == nil && found.Value == "" {
		err = errors.New("the source gave an empty token")
	}
	if err != nil {
		return Token{}, noToken(err)
	}
	if strings.ContainsFunc(found.Value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Token{}, invalid("token", "the token has a blank, a line end or a letter beyond ASCII: no token of services"+
			" has; give it without, such as by strings.TrimSpace")
	}
	return found, nil
}

func noToken(why error) error {
	return &Error{Code: codes.Unauthenticated, Message: "there is no token: " + why.Error(), cause: why}
}

// unanswered returns the error of a call whose context ended while it waited for a token.
func unanswered(ctx context.Context) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return &Error{Code: codes.DeadlineExceeded, Message: errNoToken.Error(), cause: errors.Join(errNoToken, ctx.Err())}
}

// renew discards a token that the services refused, and returns true if the source supplied another one to retry with.
func (t *tokens) renew(ctx context.Context, refused string) bool {
	if t == nil {
		return false
	}
	if _, same := t.source.(staticToken); same {
		return false
	}
	t.lock.Lock()
	if t.current.Value == refused {
		t.current = Token{}
	}
	t.lock.Unlock()
	_, err := t.get(ctx)
	return err == nil
}
