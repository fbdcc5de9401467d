import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import type { ServiceError } from "@grpc/grpc-js";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema, type Status } from "./gen/google/rpc/status_pb.js";
import type { ErrorReason } from "./gen/leman/v1/errors_pb.js";
import { milliseconds } from "./values.js";

const CODES = [
  "OK",
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
] as const;

/** The name of a gRPC status code. */
export type Code = Exclude<(typeof CODES)[number], "OK">;

/**
 * The reason of an error, for programs: a name of `ErrorReason`, or one of the client's own: `CLOSED` (the client was
 * closed), `JOB_FAILED` (a job failed without a reason), `JOB_CANCELLED`, `PLAINTEXT_TOKEN` (the call would have sent a
 * token to another machine without TLS), `TYPE_NOT_READABLE` (apache-arrow does not know a type of the rows). Later
 * releases of the services may return names that this release does not know.
 */
export type Reason =
  | Exclude<keyof typeof ErrorReason, "ERROR_REASON_UNSPECIFIED">
  | "CLOSED"
  | "JOB_FAILED"
  | "JOB_CANCELLED"
  | "PLAINTEXT_TOKEN"
  | "TYPE_NOT_READABLE"
  | (string & {});

/** What is wrong with a field of a request. */
export interface FieldViolation {
  /** A path such as `spec.where`. */
  readonly field: string;
  readonly description: string;
}

/** The parts of a {@link LemanError}. */
export interface LemanErrorInit {
  code: Code;
  message: string;
  reason?: Reason | undefined;
  fields?: readonly FieldViolation[];
  metadata?: Readonly<Record<string, string>>;
  retryDelay?: number | undefined;
  method?: string | undefined;
  requestId?: string | undefined;
  jobId?: string | undefined;
  cause?: unknown;
}

/** The class of all errors of the services and of this client. */
export class LemanError extends Error {
  override readonly name = "LemanError";
  /** The gRPC status code. */
  readonly code: Code;
  /** The stable reason, for programs; undefined for errors of gRPC itself, such as a broken connection. */
  readonly reason: Reason | undefined;
  /** The invalid fields of the request. */
  readonly fields: readonly FieldViolation[];
  /** Facts, such as the name of the table. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Milliseconds to wait before a retry; undefined if the services do not say. */
  readonly retryDelay: number | undefined;
  /** The method that failed, such as `leman.v1.JobService/GetJob`; undefined if no call failed. */
  readonly method: string | undefined;
  /** The id of the call in the logs of the services. */
  readonly requestId: string | undefined;
  /** The job that failed or was cancelled; undefined if a call failed. */
  readonly jobId: string | undefined;

  constructor(init: LemanErrorInit) {
    super(init.message, init.cause === undefined ? undefined : { cause: init.cause });
    this.code = init.code;
    this.reason = init.reason;
    this.fields = init.fields ?? [];
    this.metadata = init.metadata ?? {};
    this.retryDelay = init.retryDelay;
    this.method = init.method;
    this.requestId = init.requestId;
    this.jobId = init.jobId;
  }
}

/** Make the error for an invalid request, before it is sent. */
export function invalid(field: string, message: string): LemanError {
  return new LemanError({
    code: "INVALID_ARGUMENT",
    reason: "BAD_REQUEST",
    message,
    fields: [{ field, description: message }],
  });
}

/**
 * Make the error of a failed gRPC call. A call that was cancelled without a reason becomes UNAVAILABLE, because
 * services that shut down end calls this way. If this client cancelled it, the scope of the call knows.
 */
export function fromCall(error: ServiceError, method: string, requestId: string): LemanError {
  const told = detailsOf(error);
  const code = codeName(error.code);
  const said = error.details === "" ? error.message : error.details;
  const left = code === "CANCELLED" && told?.reason === undefined;
  const message = left ? `the services ended the call by themselves (${said})` : said;
  return new LemanError({
    message,
    ...told,
    ...(left && { message }),
    code: left || (told?.reason === undefined && wasCut(code, message)) ? "UNAVAILABLE" : code,
    method,
    requestId,
    cause: error,
  });
}

/** Read the details that the services attach to an error; undefined if there are none, or they cannot be read. */
function detailsOf(error: ServiceError): LemanErrorInit | undefined {
  const [packed] = error.metadata.get("grpc-status-details-bin");
  try {
    return packed instanceof Uint8Array ? fromStatus(fromBinary(StatusSchema, packed)) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Return whether a connection or a proxy lost the service while it sent a response. gRPC reports this with a text of
 * its own, because a proxy can only reset a stream whose headers have been sent.
 */
function wasCut(code: Code, message: string): boolean {
  return ["INTERNAL", "UNKNOWN"].includes(code) && /RST_STREAM|ECONNRESET|GOAWAY/.test(message);
}

/**
 * Return whether a connection was lost while a call ran on it, judged by the texts of gRPC, the services and proxies. A
 * call that never had a connection does not count.
 */
export function lostConnection({ code, message }: LemanError): boolean {
  return (
    code === "UNAVAILABLE" &&
    /connection dropped|socket closed|econnreset|epipe|connection reset|recvmsg|rst_stream|connection termination/i.test(
      message,
    ) &&
    !/no connection established|failed to connect/i.test(message)
  );
}

/** Convert a google.rpc.Status. */
export function fromStatus(status: Status): LemanErrorInit {
  const init: LemanErrorInit = { code: codeName(status.code), message: status.message };
  for (const detail of status.details) {
    const info = anyUnpack(detail, ErrorInfoSchema);
    if (info !== undefined) {
      init.reason = info.reason === "" ? undefined : info.reason;
      init.metadata = info.metadata;
    }
    const request = anyUnpack(detail, BadRequestSchema);
    if (request !== undefined) {
      init.fields = request.fieldViolations.map(({ field, description }) => ({ field, description }));
    }
    const retry = anyUnpack(detail, RetryInfoSchema);
    if (retry !== undefined) {
      init.retryDelay = milliseconds(retry.retryDelay);
    }
  }
  return init;
}

function codeName(code: number): Code {
  const name = CODES[code];
  return name === undefined || name === "OK" ? "UNKNOWN" : name;
}
