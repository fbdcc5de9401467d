package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"leman.dev/go/leman"
)

type rpcWith struct {
	Method      string            `json:"method"`
	Request     json.RawMessage   `json:"request"`
	Requests    []json.RawMessage `json:"requests"`
	Take        int               `json:"take"`
	CancelAfter float64           `json:"cancel_after"`
}

// rpc makes a call as the generated stubs do, which call the same two methods of a client.
func rpc(ctx context.Context, db *leman.Database, with rpcWith) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	service, name, _ := strings.Cut(with.Method, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("leman.v1." + service + "." + name))
	if err != nil {
		return nil, err
	}
	method := found.(protoreflect.MethodDescriptor)
	requests := with.Requests
	if requests == nil {
		requests = []json.RawMessage{with.Request}
	}
	if !method.IsStreamingClient() && !method.IsStreamingServer() {
		request, answer, err := messages(method, requests[0])
		if err != nil {
			return nil, err
		}
		if err := db.Client().Invoke(ctx, "/leman.v1."+with.Method, request, answer); err != nil {
			return nil, err
		}
		return responses([]proto.Message{answer})
	}
	description := &grpc.StreamDesc{
		StreamName: name, ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer(),
	}
	stream, err := db.Client().NewStream(ctx, description, "/leman.v1."+with.Method)
	if err != nil {
		return nil, err
	}
	for _, text := range requests {
		request, _, err := messages(method, text)
		if err != nil {
			return nil, err
		}
		if err := stream.SendMsg(request); errors.Is(err, io.EOF) {
			break // the answer says why
		} else if err != nil {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	if with.CancelAfter > 0 {
		defer time.AfterFunc(time.Duration(with.CancelAfter*float64(time.Second)), cancel).Stop()
	}
	return taken(stream, method, with.Take)
}

// taken takes the answers of a stream, as many as are wanted; 0: all.
func taken(stream grpc.ClientStream, method protoreflect.MethodDescriptor, take int) (any, error) {
	var answers []proto.Message
	for take == 0 || len(answers) < take {
		_, answer, err := messages(method, nil)
		if err != nil {
			return nil, err
		}
		err = stream.RecvMsg(answer)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
		if !method.IsStreamingServer() {
			break
		}
	}
	return responses(answers)
}

// messages makes the request that a text in protobuf's JSON says, and an empty answer.
func messages(method protoreflect.MethodDescriptor, text json.RawMessage) (request, answer proto.Message, _ error) {
	input, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		return nil, nil, err
	}
	output, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	request, answer = input.New().Interface(), output.New().Interface()
	if len(text) == 0 {
		return request, answer, nil
	}
	if err := protojson.Unmarshal(text, request); err != nil {
		return nil, nil, fmt.Errorf("the request of %s: %w", method.FullName(), err)
	}
	return request, answer, nil
}

// responses writes answers in protobuf's JSON.
func responses(answers []proto.Message) (any, error) {
	written := []json.RawMessage{}
	for _, answer := range answers {
		text, err := protojson.Marshal(answer)
		if err != nil {
			return nil, err
		}
		written = append(written, text)
	}
	return map[string]any{"responses": written}, nil
}
