package leman

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

func TestATokenIsNotShownToOtherMachinesInTheClear(t *testing.T) {
	content, err := os.ReadFile("../../../tests/conformance/vectors/addresses.json")
	var known struct{ Loopback, Elsewhere []string }
	check(t, err == nil && json.Unmarshal(content, &known) == nil && len(known.Elsewhere) > 5, "%v", err)
	refused := func(err error) bool {
		var failed *Error
		return errors.As(err, &failed) && failed.Code == codes.InvalidArgument && failed.Reason == ReasonPlaintextToken
	}
	open := func(address string, options ...Option) error {
		s := &settings{}
		for _, option := range options {
			option(s)
		}
		client, err := newClient(address, s)
		if err == nil {
			own := metadata.AppendToOutgoingContext(t.Context(), authorization, "Bearer t")
			_, _, _, err = client.outgoing(own, "/leman.v1.InfoService/GetInfo")
			_ = client.Close()
		}
		return err
	}
	source := WithTokenSource(TokenFunc(func(context.Context) (Token, error) {
		t.Error("asked for a token that is not to be shown")
		return Token{}, nil
	}))
	for _, address := range known.Elsewhere {
		for _, options := range [][]Option{{WithToken("t")}, {source}, {}} {
			check(t, refused(open(address, options...)), "%s: %v", address, open(address, options...))
			check(t, refused(open("localhost:1,"+address, options...)), "%s among others", address)
		}
		check(t, open(address, WithToken("t"), WithPlaintext()) == nil, "%s", address)
		check(t, open(address, WithToken("t"), WithTLS(TLSFiles{})) == nil, "%s", address)
		elsewhere := WithServiceAddresses(ServiceAddresses{Executor: address})
		check(t, refused(open("localhost:1", WithToken("t"), elsewhere)), "%s of a service", address)
	}
	for _, address := range known.Loopback {
		check(t, open(address, WithToken("t")) == nil, "%s", address)
	}
}
