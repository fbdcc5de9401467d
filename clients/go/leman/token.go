package leman

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// fileTokenAge is how long a token from a file is used before the file is read again.
	fileTokenAge = time.Second
	// expiryMargin is how long before its expiry a token is renewed.
	expiryMargin = 10 * time.Second
)

// Token is a bearer token.
type Token struct {
	// Value is what follows "Bearer ".
	Value string
	// Expires is when the token must be renewed. Zero: when the services refuse it.
	Expires time.Time
}

// TokenSource supplies tokens. The client calls it before the first call, shortly before a token expires, and when the
// services refuse a token (UNAUTHENTICATED). After a refusal the client retries the call with the new token. It calls a
// source from one goroutine at a time.
//
// The context is that of the call that needs the token; it also ends with [Client.Close]. The call waits for the source
// only until its own context ends, even if the source ignores the context and continues. A token that such a source
// returns late is used by later calls, and until it returns, the client does not call the source again.
type TokenSource interface {
	Token(ctx context.Context) (Token, error)
}

// TokenFunc is a function that implements [TokenSource].
type TokenFunc func(ctx context.Context) (Token, error)

// Token calls the function.
func (f TokenFunc) Token(ctx context.Context) (Token, error) { return f(ctx) }

// StaticToken returns a source that always supplies the same token. If the services refuse it, the call fails without a
// retry.
func StaticToken(value string) TokenSource { return staticToken(value) }

type staticToken string

func (t staticToken) Token(context.Context) (Token, error) { return Token{Value: string(t)}, nil }

// TokenFile returns a source that reads the token from a file and trims surrounding white space. A changed file takes
// effect within a second, or at once when the services refuse the old token.
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
