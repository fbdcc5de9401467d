package leman

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// requestIDField is the field by which services know that a request was sent before.
const requestIDField protoreflect.Name = "request_id"

// methodFacts is what the protos say of a method.
type methodFacts struct {
	public     bool                         // it is one of leman.v1
	repeatable bool                         // sent again it does nothing more, if it carries a request id where it can
	requestID  protoreflect.FieldDescriptor // of a mutation that has one; nil: none
}

var knownMethods sync.Map // full method name → methodFacts

// factsOf tells what the protos say of a method, such as "/leman.v1.JobService/GetJob".
func factsOf(method string) methodFacts {
	if known, ok := knownMethods.Load(method); ok {
		return known.(methodFacts)
	}
	facts := readFacts(method)
	knownMethods.Store(method, facts)
	return facts
}

func readFacts(method string) methodFacts {
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	descriptor, isMethod := found.(protoreflect.MethodDescriptor)
	if err != nil || !isMethod || descriptor.ParentFile().Package() != "leman.v1" {
		return methodFacts{}
	}
	facts := methodFacts{public: true}
	options, _ := descriptor.Options().(*descriptorpb.MethodOptions)
	if options.GetIdempotencyLevel() != descriptorpb.MethodOptions_IDEMPOTENCY_UNKNOWN {
		facts.repeatable = true
		return facts
	}
	facts.requestID = descriptor.Input().Fields().ByName(requestIDField)
	facts.repeatable = facts.requestID != nil
	return facts
}

type requestIDKey struct{}

// WithRequestID has the mutation that is made with the returned context carry this id, in place of one that the client
// makes up; calls with an empty one are refused. Use it to send a mutation again from another process: under one id it is
// done once. The same id with another mutation, or with other rows, is refused (REQUEST_ID_REUSED). Take a context of its
// own for each mutation. Of no context there is none with an id: the call refuses it.
func WithRequestID(ctx context.Context, id string) context.Context {
	if ctx == nil {
		return nil
	}
	return context.WithValue(ctx, requestIDKey{}, id)
}

// hasRequestID shows whether the caller gave an id, under which the mutation may be asked for again.
func hasRequestID(ctx context.Context) bool {
	_, ok := ctx.Value(requestIDKey{}).(string)
	return ok
}

// withDerivedID gives a further mutation of one call an id of its own, where its caller gave the first one. No other
// caller gives that by chance.
func withDerivedID(ctx context.Context, what string) context.Context {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		said := id + "-" + what
		digest := sha256.Sum256([]byte(said))
		return WithRequestID(ctx, said+"-"+hex.EncodeToString(digest[:6]))
	}
	return ctx
}

// requestID gives the id for a mutation: the caller's, or a new one.
func requestID(ctx context.Context) string {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		return id
	}
	return rand.Text()
}

// withRequestID gives a mutation its request id, unless its caller has set one. The caller's message stays as it is.
func withRequestID(ctx context.Context, facts methodFacts, request any) any {
	message, ok := request.(proto.Message)
	if facts.requestID == nil || !ok || message.ProtoReflect().Has(facts.requestID) {
		return request
	}
	filled := proto.Clone(message)
	filled.ProtoReflect().Set(facts.requestID, protoreflect.ValueOfString(requestID(ctx)))
	return filled
}

// defaultDeadlines are how long a unary call may take whose context has no deadline, by service.
var defaultDeadlines = map[string]time.Duration{
	"leman.v1.InfoService":     10 * time.Second,
	"leman.v1.CatalogService":  time.Minute,
	"leman.v1.DatabaseService": time.Minute,
	"leman.v1.PlannerService":  5 * time.Minute,
	"leman.v1.JobService":      5 * time.Minute,
	"leman.v1.CommitService":   10 * time.Minute,
	"leman.v1.TableService":    10 * time.Minute,
}

// serviceOf takes the service out of a full method name.
func serviceOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service
}

// withDeadline gives a call a deadline, where its caller has set none.
func withDeadline(ctx context.Context, method string) (context.Context, context.CancelFunc) {
	limit, known := defaultDeadlines[serviceOf(method)]
	if _, has := ctx.Deadline(); has || !known {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
