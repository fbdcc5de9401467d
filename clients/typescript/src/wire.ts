import { fromBinary, toBinary, type DescMessage, type DescMethod, type MessageShape } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";

import { fromCall, LemanError } from "./errors.js";
import { methodName } from "./policy.js";
import type { Scope } from "./scope.js";

/** Return how gRPC calls a method. */
export function wire<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { input: I; output: O },
): [string, (message: MessageShape<I>) => Buffer, (bytes: Buffer) => MessageShape<O>] {
  const encode = (message: MessageShape<I>): Buffer => {
    const bytes = toBinary(method.input, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
  return [`/${methodName(method)}`, encode, (bytes) => fromBinary(method.output, bytes)];
}

/** Return the deadline for a call that starts now. */
export function timeLeft(scope: Scope): { deadline?: number } {
  return scope.deadline === undefined ? {} : { deadline: scope.deadline };
}

/** Return whether a mutation has a request id. */
export function hasRequestId(message: object): boolean {
  return "requestId" in message && typeof message.requestId === "string" && message.requestId !== "";
}

/** Return whether an error comes from gRPC. */
function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error && "metadata" in error;
}

/** Convert an error of an attempt: errors of gRPC become LemanErrors. */
export function told(error: unknown, method: DescMethod, requestId: string): unknown {
  return isServiceError(error) ? fromCall(error, methodName(method), requestId) : error;
}

/**
 * Make the callback for a gRPC response. It throws nothing: such an error could not be caught, and would end the
 * process.
 */
export function settling(
  resolve: (answer: never) => void,
  reject: (error: ServiceError) => void,
): (error: ServiceError | null, answer?: unknown) => void {
  return (error, answer) => {
    if (error === null) {
      resolve(answer as never);
    } else {
      reject(error);
    }
  };
}

/** Return the error with which a call ends: that of its scope, if the scope ended it. */
export function ending(error: unknown, scope: Scope): unknown {
  const failed = error instanceof LemanError ? error : undefined;
  const ended = scope.ended();
  if (failed === undefined || ended === undefined || !["CANCELLED", "UNAVAILABLE"].includes(failed.code)) {
    return error;
  }
  const { method, requestId } = failed;
  return new LemanError({
    code: ended.code,
    reason: ended.reason,
    message: ended.message,
    method,
    requestId,
    cause: failed,
  });
}
