package leman

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
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
// the services refuse one (UNAUTHENTICATED); the call is then sent again, with what the source gives.
//
// The context is that of the call that asks; it ends with [Client.Close], too. A call does not wait longer for a source
// than its own context lasts, also for one that goes on after that: what it gives in the end is for the calls that
// come then, and until then no one asks it again.
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
