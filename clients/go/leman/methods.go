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

// requestIDField is the field by which the services recognize a retried request.
const requestIDField protoreflect.Name = "request_id"

// methodFacts is what the protos declare about a method.
type methodFacts struct {
	public     bool                         // a method of leman.v1
	repeatable bool                         // a retry is safe, with a request id where the method has one
	requestID  protoreflect.FieldDescriptor // the request id field of a mutation, or nil
}

var knownMethods sync.Map // full method name → methodFacts

// factsOf returns what the protos declare about a method, such as "/leman.v1.JobService/GetJob".
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

// WithRequestID returns a context whose mutation carries this request id instead of a generated one. With it, another
// process can retry the mutation: the services apply mutations with equal ids once. If an id is used again for a
// different mutation or for different rows, the call is refused (REQUEST_ID_REUSED). An empty id, or a nil ctx, makes
// the call fail with INVALID_ARGUMENT. Use a separate context for each mutation.
func WithRequestID(ctx context.Context, id string) context.Context {
	if ctx == nil {
		return nil
	}
	return context.WithValue(ctx, requestIDKey{}, id)
}

// hasRequestID returns true if the caller set a request id, so that it may repeat the mutation.
func hasRequestID(ctx context.Context) bool {
	_, ok := ctx.Value(requestIDKey{}).(string)
	return ok
}

// withDerivedID derives a request id for a further mutation of the same call, if the caller set the first one. Other
// callers cannot produce the derived id by accident.
func withDerivedID(ctx context.Context, what string) context.Context {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		said := id + "-" + what
		digest := sha256.Sum256([]byte(said))
		return WithRequestID(ctx, said+"-"+hex.EncodeToString(digest[:6]))
	}
	return ctx
}

// requestID returns the request id of a mutation: the caller's, or a new one.
func requestID(ctx context.Context) string {
	if id, ok := ctx.Value(requestIDKey{}).(string); ok {
		return id
	}
	return rand.Text()
}

// withRequestID returns the request with a request id, unless the caller set one in it. It does not modify the caller's
// message.
func withRequestID(ctx context.Context, facts methodFacts, request any) any {
	message, ok := request.(proto.Message)
	if facts.requestID == nil || !ok || message.ProtoReflect().Has(facts.requestID) {
		return request
	}
	filled := proto.Clone(message)
	filled.ProtoReflect().Set(facts.requestID, protoreflect.ValueOfString(requestID(ctx)))
	return filled
}

// defaultDeadlines has, by service, the deadline of a unary call whose context has none.
var defaultDeadlines = map[string]time.Duration{
	"leman.v1.InfoService":     10 * time.Second,
	"leman.v1.CatalogService":  time.Minute,
	"leman.v1.DatabaseService": time.Minute,
	"leman.v1.PlannerService":  5 * time.Minute,
	"leman.v1.JobService":      5 * time.Minute,
	"leman.v1.CommitService":   10 * time.Minute,
	"leman.v1.TableService":    10 * time.Minute,
}

// serviceOf returns the service in a full method name.
func serviceOf(method string) string {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service
}

// withDeadline adds the default deadline to a context that has none.
func withDeadline(ctx context.Context, method string) (context.Context, context.CancelFunc) {
	limit, known := defaultDeadlines[serviceOf(method)]
	if _, has := ctx.Deadline(); has || !known {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
