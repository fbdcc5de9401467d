package leman

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
)

// messages is a stream of responses, as the generated stubs return it.
type messages[M any] interface {
	Recv() (*M, error)
}

// resumed returns the messages of a stream, and resumes the stream if it is interrupted. open opens the stream, again
// after each interruption. seen receives each message, so that the next open can continue after it, and returns true
// for the last message. A stream without a message for the duration silence counts as interrupted; 0 means no limit.
func resumed[M any](
	ctx context.Context,
	client *Client,
	open func(ctx context.Context) (messages[M], error),
	seen func(message *M) (last bool),
	silence time.Duration,
) iter.Seq2[*M, error] {
	return func(yield func(*M, error) bool) {
		if err := cmp.Or(contextGiven(ctx), client.made()); err != nil {
			yield(nil, err)
			return
		}
		waiting := newPatience(client.patience).forReading()
		for {
			done, failed := follow(ctx, open, silence, func(message *M) (more bool) {
				waiting.reset()
				last := seen(message)
				return yield(message, nil) && !last
			})
			if done {
				return
			}
			if !client.again(ctx, failed, waiting) {
				yield(nil, client.ending(ctx, failed))
				return
			}
		}
	}
}

// follow reads one stream to its end. It returns true if take returned false, or the error that ended the stream.
func follow[M any](
	ctx context.Context, open func(ctx context.Context) (messages[M], error), silence time.Duration, take func(*M) bool,
) (bool, *Error) {
	streaming, cancel := context.WithCancelCause(ctx)
	defer cancel(nil) // also ends a stream that is abandoned early
	stream, err := open(streaming)
	if err != nil {
		return false, asError("", "", err)
	}
	for {
		message, err := receive(stream, cancel, silence)
		switch {
		case errors.Is(context.Cause(streaming), errSilent):
			return false, &Error{Code: codes.Unavailable, Message: errSilent.Error(), cause: err}
		case errors.Is(err, io.EOF):
			return false, &Error{Code: codes.Unavailable, Message: "the stream ended early", cause: err}
		case err != nil:
			return false, asError("", "", err)
		case !take(message):
			return true, nil
		}
	}
}

var errSilent = errors.New("the services said nothing for too long")

// receive returns the next message, and cancels the stream if none comes in time.
func receive[M any](stream messages[M], cancel context.CancelCauseFunc, silence time.Duration) (*M, error) {
	if silence > 0 {
		defer time.AfterFunc(silence, func() { cancel(errSilent) }).Stop()
	}
	return stream.Recv()
}
