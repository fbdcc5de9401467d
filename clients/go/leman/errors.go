package leman

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lemanv1 "leman.dev/go/leman/v1"
)

// Reasons that only the client gives. All other reasons are in [lemanv1.ErrorReason].
const (
	ReasonJobFailed    = "JOB_FAILED"    // a job ended as FAILED without a reason
	ReasonJobCancelled = "JOB_CANCELLED" // a job ended as CANCELLED
	ReasonClosed       = "CLOSED"        // the client was closed
	// ReasonPlaintextToken: the call was refused before anything was sent, because it would have sent a token to
	// another machine without TLS.
	ReasonPlaintextToken = "PLAINTEXT_TOKEN"
)

// Error is the type of all errors of the services and of this client. Get it from an error with [errors.As].
//
// [errors.Is] matches it with [context.Canceled] and [context.DeadlineExceeded] according to its code, and
// [status.FromError] returns its gRPC status.
type Error struct {
	// Code is the gRPC status code.
	Code codes.Code
	// Reason is the name of a [lemanv1.ErrorReason], or a reason of this package. It is empty for errors of gRPC
	// itself. Later releases of the services may return names that this release does not know.
	Reason string
	// Message says what was wrong and what to do.
	Message string
	// Fields lists the invalid fields of the request.
	Fields []FieldViolation
	// Metadata has facts, such as the name of the table.
	Metadata map[string]string
	// RetryDelay is how long to wait before a retry; 0 if the services do not say.
	RetryDelay time.Duration
	// Method is the method that failed, such as "/leman.v1.JobService/GetJob"; empty if a job failed.
	Method string
	// RequestID is the id of the call in the logs of the services; empty if a job failed.
	RequestID string
	// JobID is the job that failed or was cancelled; empty if a call failed.
	JobID string

	cause error
	token string // the token that the call was made with
}

// FieldViolation says what is wrong with a field of a request.
type FieldViolation struct {
	Field       string
	Description string
}

// Error returns the code, the reason and the message.
func (e *Error) Error() string {
	kind := e.Code.String()
	if e.Reason != "" {
		kind += " (" + e.Reason + ")"
	}
	return "leman: " + kind + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is matches the errors of an ended context by code. The error of a cancelled job does not match them.
func (e *Error) Is(target error) bool {
	switch e.Code {
	case codes.Canceled:
		return target == context.Canceled && e.JobID == ""
	case codes.DeadlineExceeded:
		return target == context.DeadlineExceeded
	default:
		return false
	}
}

// GRPCStatus returns the gRPC status with its details.
func (e *Error) GRPCStatus() *status.Status {
	var from interface{ GRPCStatus() *status.Status }
	if errors.As(e.cause, &from) && from.GRPCStatus().Code() == e.Code {
		return from.GRPCStatus()
	}
	return status.New(e.Code, e.Message)
}

// ErrorReason returns Reason as the enum, or ERROR_REASON_UNSPECIFIED if this release does not know it.
func (e *Error) ErrorReason() lemanv1.ErrorReason {
	return lemanv1.ErrorReason(lemanv1.ErrorReason_value[e.Reason])
}

// HasReason returns true if err is, or wraps, an [*Error] with that reason.
func HasReason(err error, reason lemanv1.ErrorReason) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Reason == reason.String()
}

// fromStatus converts a google.rpc.Status.
func fromStatus(from *status.Status) *Error {
	failed := &Error{Code: from.Code(), Message: from.Message()}
	for _, detail := range from.Details() {
		switch found := detail.(type) {
		case *errdetails.ErrorInfo:
			failed.Reason, failed.Metadata = found.GetReason(), found.GetMetadata()
		case *errdetails.BadRequest:
			for _, violation := range found.GetFieldViolations() {
				failed.Fields = append(failed.Fields, FieldViolation{violation.GetField(), violation.GetDescription()})
			}
		case *errdetails.RetryInfo:
			failed.RetryDelay = found.GetRetryDelay().AsDuration()
		}
	}
	return failed
}

// asError converts the error of a gRPC call.
func asError(method, requestID string, err error) *Error {
	var failed *Error
	if errors.As(err, &failed) {
		return failed
	}
	from, ok := status.FromError(err)
	if !ok {
		from = status.FromContextError(err)
	}
	failed = fromStatus(from)
	if wasCut(failed) {
		failed.Code = codes.Unavailable
	}
	failed.Method, failed.RequestID, failed.cause = method, requestID, err
	return failed
}

// wasCut returns true if a proxy lost the service while it streamed a response. The headers are sent by then, so the
// proxy can only reset the stream, and gRPC reports INTERNAL with a text of its own. The services give every INTERNAL a
// reason.
func wasCut(failed *Error) bool {
	broken := failed.Code == codes.Internal || failed.Code == codes.Unknown
	return broken && failed.Reason == "" && strings.Contains(failed.Message, "RST_STREAM")
}

// lostConnection returns true if the connection was lost while the call ran, and false if the call never had one.
func (e *Error) lostConnection() bool {
	if e.Code != codes.Unavailable {
		return false
	}
	said := strings.ToLower(e.Message)
	return !slices.ContainsFunc(notConnected, contains(said)) && slices.ContainsFunc(connectionLost, contains(said))
}

func contains(said string) func(string) bool {
	return func(sign string) bool { return strings.Contains(said, sign) }
}

// Texts with which gRPC, services and proxies report a connection that ended during a call, or that could not be made.
var (
	connectionLost = []string{
		"error reading from server", "transport is closing", "socket closed", "connection reset", "broken pipe", "recvmsg",
		"rst_stream", "connection termination",
	}
	notConnected = []string{"failed to connect", "error while dialing", "server preface"}
)

// invalid returns the error for an invalid argument that the client itself detects.
func invalid(field, format string, values ...any) *Error {
	message := fmt.Sprintf(format, values...)
	return &Error{
		Code:    codes.InvalidArgument,
		Reason:  lemanv1.ErrorReason_BAD_REQUEST.String(),
		Message: message,
		Fields:  []FieldViolation{{Field: field, Description: message}},
	}
}

// JobError returns the [*Error] of a job that FAILED or was CANCELLED, and nil for any other job.
func JobError(job *lemanv1.Job) error {
	switch job.GetState() {
	case lemanv1.Job_STATE_CANCELLED:
		message := fmt.Sprintf("job %s was cancelled; what it had finished is kept", job.GetJobId())
		return &Error{Code: codes.Canceled, Reason: ReasonJobCancelled, Message: message, JobID: job.GetJobId()}
	case lemanv1.Job_STATE_FAILED:
		return failure(job.GetJobId(), job.GetError())
	default:
		return nil
	}
}

func failure(jobID string, why *spb.Status) *Error {
	failed := fromStatus(status.FromProto(why))
	failed.JobID = jobID
	if failed.Reason == "" {
		failed.Reason = ReasonJobFailed
	}
	if failed.Code == codes.OK {
		failed.Code = codes.Unknown
	}
	failed.Message = fmt.Sprintf(
		"job %s failed: %s; what was finished is kept: the same call continues from there", jobID, failed.Message)
	return failed
}
