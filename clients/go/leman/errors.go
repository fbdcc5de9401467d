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

// Reasons that the client gives by itself; all others are those of [lemanv1.ErrorReason].
const (
	ReasonJobFailed    = "JOB_FAILED"    // a job ended as FAILED and did not say why
	ReasonJobCancelled = "JOB_CANCELLED" // a job ended as CANCELLED
	ReasonClosed       = "CLOSED"        // the client was closed
	// ReasonPlaintextToken: a token would have been sent to another machine without TLS; nothing was sent.
	ReasonPlaintextToken = "PLAINTEXT_TOKEN"
)

// Error is every error of the services, and of the client where it has one of its own. Find it with [errors.As].
//
// It matches [context.Canceled] and [context.DeadlineExceeded] in [errors.Is] where its code says so, and
// [status.FromError] takes it for the gRPC error that it was.
type Error struct {
	// Code is the gRPC status code.
	Code codes.Code
	// Reason is a name of [lemanv1.ErrorReason], or one of this package; empty: the error is gRPC's own. Later releases
	// of the services may send names that this one does not know.
	Reason string
	// Message says what was wrong and what to do.
	Message string
	// Fields says what is wrong with which field of the request.
	Fields []FieldViolation
	// Metadata has facts, such as the name of the table.
	Metadata map[string]string
	// RetryDelay is how long to wait before the call is sent again; 0: the services do not say.
	RetryDelay time.Duration
	// Method is the call that failed, such as "/leman.v1.JobService/GetJob"; empty: a job failed.
	Method string
	// RequestID is what the logs of the services have the call under; empty: a job failed.
	RequestID string
	// JobID is the job that failed or was cancelled; empty: a call failed.
	JobID string

	cause error
	token string // that the call was made with
}

// FieldViolation says what is wrong with a field of a request.
type FieldViolation struct {
	Field       string
	Description string
}

// Error is the code, the reason and the message.
func (e *Error) Error() string {
	kind := e.Code.String()
	if e.Reason != "" {
		kind += " (" + e.Reason + ")"
	}
	return "leman: " + kind + ": " + e.Message
}

// Unwrap is the error that it was made from.
func (e *Error) Unwrap() error { return e.cause }

// Is shows whether it stands for the end of a context; a job that was cancelled does not.
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

// GRPCStatus is the status with its details.
func (e *Error) GRPCStatus() *status.Status {
	var from interface{ GRPCStatus() *status.Status }
	if errors.As(e.cause, &from) && from.GRPCStatus().Code() == e.Code {
		return from.GRPCStatus()
	}
	return status.New(e.Code, e.Message)
}

// ErrorReason is Reason as the enum; ERROR_REASON_UNSPECIFIED where it is none of those that this release knows.
func (e *Error) ErrorReason() lemanv1.ErrorReason {
	return lemanv1.ErrorReason(lemanv1.ErrorReason_value[e.Reason])
}

// HasReason shows whether err is, or wraps, an [*Error] of that reason.
func HasReason(err error, reason lemanv1.ErrorReason) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Reason == reason.String()
}

// fromStatus reads the details of a google.rpc.Status.
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

// asError gives what a call of gRPC ended with as an *Error.
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

// wasCut shows whether a proxy lost the service amid an answer. As headers are out it can only reset the stream, and gRPC
// tells that in words of its own: the services give every INTERNAL a reason.
func wasCut(failed *Error) bool {
	broken := failed.Code == codes.Internal || failed.Code == codes.Unknown
	return broken && failed.Reason == "" && strings.Contains(failed.Message, "RST_STREAM")
}

// lostConnection shows whether a connection was lost while a call ran on it; a call that found none was not made.
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

// What gRPC, services and proxies say of connections that end during a call, and of those that were never made.
var (
	connectionLost = []string{
		"error reading from server", "transport is closing", "socket closed", "connection reset", "broken pipe", "recvmsg",
		"rst_stream", "connection termination",
	}
	notConnected = []string{"failed to connect", "error while dialing", "server preface"}
)

// invalid is an error of the caller's that the client finds by itself.
func invalid(field, format string, values ...any) *Error {
	message := fmt.Sprintf(format, values...)
	return &Error{
		Code:    codes.InvalidArgument,
		Reason:  lemanv1.ErrorReason_BAD_REQUEST.String(),
		Message: message,
		Fields:  []FieldViolation{{Field: field, Description: message}},
	}
}

// JobError is the error of a job that FAILED or was CANCELLED, an [*Error]; nil: it is done, or goes on.
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
