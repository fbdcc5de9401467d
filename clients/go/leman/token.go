package leman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// fileTokenAge is how long a token from a file is used before the file is looked at again.
	fileTokenAge = time.Second
	// expiryMargin is how long before its end a token is renewed.
	expiryMargin = 10 * time.Second
)

// Token is what a caller shows the services.
type Token struct {
	// Value is what follows "Bearer ".
	Value string
	// Expires is when to ask the source for another one; zero: once the services refuse this one.
	Expires time.Time
}

// TokenSource gives tokens. It is asked by one goroutine at a time: at first, shortly before a token expires, and when
// the services refuse one (UNAUTHENTICATED); the call is then sent once more, with what the source gives.
type TokenSource interface {
	Token(ctx context.Context) (Token, error)
}

// TokenFunc is a function as a [TokenSource].
type TokenFunc func(ctx context.Context) (Token, error)

// Token calls the function.
func (f TokenFunc) Token(ctx context.Context) (Token, error) { return f(ctx) }

// StaticToken gives the same token always: what was refused is not sent again.
func StaticToken(value string) TokenSource { return staticToken(value) }

type staticToken string

func (t staticToken) Token(context.Context) (Token, error) { return Token{Value: string(t)}, nil }

// TokenFile gives the token in a file, without the white space around it. A new one holds a second after the file has
// changed, and at once when the services refuse the old one.
func TokenFile(path string) TokenSource { return tokenFile(path) }

type tokenFile string

func (f tokenFile) Token(context.Context) (Token, error) {
	content, err := os.ReadFile(string(f))
	if err != nil {
		return Token{}, err
	}
	value := strings.TrimSpace(string(content))
	if value == "" {
		return Token{}, fmt.Errorf("%s is empty", f)
	}
	return Token{Value: value, Expires: time.Now().Add(expiryMargin + fileTokenAge)}, nil
}

// tokens keeps the current token of a source; nil: calls carry none.
type tokens struct {
	source  TokenSource
	turn    chan struct{} // of one element: who holds it may use what follows
	current Token
}

func newTokens(source TokenSource) *tokens {
	if source == nil {
		return nil
	}
	return &tokens{source: source, turn: make(chan struct{}, 1)}
}

// get gives the token to show now.
func (t *tokens) get(ctx context.Context) (string, error) {
	if t == nil {
		return "", nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	now := time.Now()
	holds := t.current.Value != "" && (t.current.Expires.IsZero() || now.Before(t.current.Expires))
	if holds && (t.current.Expires.IsZero() || now.Before(t.current.Expires.Add(-expiryMargin))) {
		return t.current.Value, nil
	}
	found, err := t.source.Token(ctx)
	switch {
	case err == nil && found.Value == "":
		err = errors.New("the source gave an empty token")
	case err == nil && strings.ContainsFunc(found.Value, func(r rune) bool { return r <= ' ' || r > '~' }):
		const told = "the token has a blank, a line end or a letter beyond ASCII: no token of services has; " +
			"give it without, such as by strings.TrimSpace"
		return "", &Error{Code: codes.InvalidArgument, Message: told}
	case err == nil:
		t.current = found
		return found.Value, nil
	}
	if holds {
		return t.current.Value, nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	return "", &Error{Code: codes.Unauthenticated, Message: "there is no token: " + err.Error(), cause: err}
}

// renew is told that the services refused a token, and tells whether the source gives one to try.
func (t *tokens) renew(ctx context.Context, refused string) bool {
	if t == nil {
		return false
	}
	if _, same := t.source.(staticToken); same {
		return false
	}
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if t.current.Value == refused {
		t.current = Token{}
	}
	<-t.turn
	_, err := t.get(ctx)
	return err == nil
}
