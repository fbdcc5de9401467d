package main

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"

	"leman.dev/go/leman"
)

// codeNames are the names that gRPC's own page has for its codes.
var codeNames = func() map[codes.Code]string {
	names := map[codes.Code]string{}
	for number, name := range code.Code_name {
		names[codes.Code(number)] = name
	}
	return names
}()

// connection says which client a step uses.
type connection struct {
	Name     string   `json:"name"`
	Endpoint string   `json:"endpoint"`
	Token    string   `json:"token"`
	Tokens   []string `json:"tokens"`
	// Plaintext permits the token to go to other machines without TLS.
	Plaintext bool   `json:"plaintext"`
	CA        string `json:"ca"`
	Cert      string `json:"cert"`
	Key       string `json:"key"`
}

// connections are the clients of a case, by name.
type connections map[string]*leman.Client

func (c connections) client(told connection) (*leman.Client, error) {
	if client, ok := c[told.Name]; ok {
		return client, nil
	}
	client, err := leman.Connect(context.Background(), told.Endpoint, told.options()...)
	if err != nil {
		return nil, err
	}
	c[told.Name] = client
	return client, nil
}

func (c connections) close() {
	for _, client := range c {
		_ = client.Close()
	}
}

func (c connection) options() []leman.Option {
	var options []leman.Option
	if c.Token != "" {
		options = append(options, leman.WithToken(c.Token))
	}
	if len(c.Tokens) > 0 {
		left := c.Tokens
		options = append(options, leman.WithTokenSource(leman.TokenFunc(func(context.Context) (leman.Token, error) {
			token := left[0]
			if len(left) > 1 {
				left = left[1:]
			}
			return leman.Token{Value: token}, nil
		})))
	}
	if c.CA != "" {
		options = append(options, leman.WithTLS(leman.TLSFiles{CA: c.CA, Cert: c.Cert, Key: c.Key}))
	}
	if c.Plaintext {
		options = append(options, leman.WithPlaintext())
	}
	return options
}
