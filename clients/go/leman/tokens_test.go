package leman

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	lemanv1 "leman.dev/go/leman/v1"
)

// atOnce is longer than anything takes that does not hang, however busy the machine.
const atOnce = 20 * time.Second

// ends returns the error of a call that was made in another goroutine.
func ends(t *testing.T, called <-chan error) error {
	t.Helper()
	select {
	case err := <-called:
		return err
	case <-time.After(atOnce):
		t.Fatal("the call goes on")
		return nil
	}
}

func calling(call func() error) <-chan error {
	called := make(chan error, 1)
	go func() { called <- call() }()
	return called
}

// stuck supplies one expired token. Later calls block until their context ends or, if free is given, until it has a value.
func stuck(asked chan<- bool, free <-chan bool) TokenSource {
	var before atomic.Bool
	return TokenFunc(func(ctx context.Context) (Token, error) {
		if !before.Swap(true) {
			return Token{"first", time.Now()}, nil
		}
		asked <- true
		if free != nil {
			<-free
			return Token{Value: "second"}, nil
		}
		<-ctx.Done()
		return Token{}, ctx.Err()
	})
}

func TestCloseEndsCallsThatWaitForAToken(t *testing.T) {
	for name, call := range map[string]func(*Client) error{
		"a call":  func(c *Client) error { return second(c.Info(context.Background())) },
		"a wait":  func(c *Client) error { return second(c.Database("lake").Job("j1").Wait(context.Background())) },
		"rows":    func(c *Client) error { return second(c.Database("lake").Table("t").Read(context.Background())) },
		"an item": func(c *Client) error { return second(Collect(c.Database("lake").Tables(context.Background()))) },
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan bool, 1)
			client := serve(t, nil).connected(WithTokenSource(stuck(asked, nil)))
			called := calling(func() error { return call(client) })
			<-asked
			another := calling(func() error { return call(client) }) // waits for the same answer, or comes too late

			check(t, client.Close() == nil, "it cannot be closed")

			for _, one := range []<-chan error{called, another} {
				var failed *Error
				err := ends(t, one)
				check(t, errors.As(err, &failed) && failed.Code == codes.Canceled && failed.Reason == ReasonClosed, "%v", err)
			}
		})
	}
}

func TestCloseEndsTheWaitUntilACallIsSentAgain(t *testing.T) {
	refused := make(chan bool, 9)
	services := serve(t, map[string]handler{"JobService/GetJob": func(grpc.ServerStream) error {
		refused <- true
		return refusal(codes.ResourceExhausted, "COMMIT_QUEUE_FULL", time.Hour)
	}})
	client := services.connected(WithPatience(2 * time.Hour))
	waits := calling(func() error {
		long, cancel := context.WithTimeout(context.Background(), 2*time.Hour)
		defer cancel()
		return second(client.Database("lake").Job("j1").Get(long))
	})
	<-refused

	check(t, client.Close() == nil, "it cannot be closed")

	var failed *Error
	err := ends(t, waits)
	check(t, errors.As(err, &failed) && failed.Reason == ReasonClosed, "%v", err)
}

func TestACallLeavesASourceThatDoesNotHeedItsContext(t *testing.T) {
	asked, free := make(chan bool, 9), make(chan bool)
	services := serve(t, nil)
	client := services.connected(WithTokenSource(stuck(asked, free)))

	for range 3 {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := ends(t, calling(func() error { return second(client.Info(short)) }))
		cancel()
		check(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "token source"), "%v", err)
	}
	check(t, len(asked) == 1, "it was asked %d times at once", len(asked))

	close(free)
	_, err := client.Info(t.Context())
	shown := services.shown("InfoService/GetInfo")
	check(t, err == nil && shown[len(shown)-1] == "Bearer second", "%v %q", err, shown)
}

func TestASourceThatEndedWithAnotherCallIsAskedAgain(t *testing.T) {
	began, left := make(chan bool, 1), make(chan bool)
	var times atomic.Int32
	held := newTokens(TokenFunc(func(ctx context.Context) (Token, error) {
		if times.Add(1) > 1 {
			return Token{Value: "second"}, nil
		}
		began <- true
		<-ctx.Done()
		<-left
		return Token{}, ctx.Err()
	}))
	first, cancel := context.WithCancel(t.Context())
	gone := calling(func() error { return second(held.get(first)) })
	<-began
	var token string
	waits := calling(func() (err error) { token, err = held.get(t.Context()); return err })

	cancel()
	check(t, errors.Is(ends(t, gone), context.Canceled), "another end")
	close(left)
	err := ends(t, waits)
	check(t, err == nil && token == "second", "%q %v", token, err)
}

func TestTheFirstContactHasItsBoundWhateverTheSourceDoes(t *testing.T) {
	free := make(chan bool)
	defer close(free)
	for name, source := range map[string]TokenFunc{
		"it heeds its context": func(ctx context.Context) (Token, error) { <-ctx.Done(); return Token{}, ctx.Err() },
		"it does not":          func(context.Context) (Token, error) { <-free; return Token{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, nil).address
			err := ends(t, calling(func() error {
				return second(Connect(t.Context(), address, WithTokenSource(source), WithFirstContact(50*time.Millisecond)))
			}))
			var failed *Error
			check(t, errors.As(err, &failed) && failed.Code == codes.Unavailable, "%v", err)
			check(t, strings.Contains(failed.Message, "token source"), "%v", err)
		})
	}
}

func TestASourceThatPanicsOrEndsItsGoroutineGivesNoToken(t *testing.T) {
	address := serve(t, nil).address
	for told, source := range map[string]TokenFunc{
		"the source panicked: oh":        func(context.Context) (Token, error) { panic("oh") },
		"the source ended its goroutine": func(context.Context) (Token, error) { runtime.Goexit(); return Token{}, nil },
		"the source gave an empty token": func(context.Context) (Token, error) { return Token{}, nil },
	} {
		err := ends(t, calling(func() error { return second(Connect(t.Context(), address, WithTokenSource(source))) }))
		var failed *Error
		check(t, errors.As(err, &failed) && failed.Code == codes.Unauthenticated, "%v", err)
		check(t, strings.Contains(failed.Message, told), "%v", err)
	}
}

func TestATokenThatNoCallCanCarryIsABadRequest(t *testing.T) {
	for _, token := range []string{"x y", "x\n", "ü", "x\x00y", "\xff"} {
		_, err := Connect(t.Context(), serve(t, nil).address, WithToken(token))
		var failed *Error
		check(t, errors.As(err, &failed) && failed.Code == codes.InvalidArgument, "%q: %v", token, err)
		check(t, HasReason(err, lemanv1.ErrorReason_BAD_REQUEST) && failed.Fields[0].Field == "token", "%q: %v", token, err)
		check(t, !strings.Contains(failed.Message, token), "it shows the token: %v", err)
	}
}
