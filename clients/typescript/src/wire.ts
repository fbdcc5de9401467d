import { fromBinary, toBinary, type DescMessage, type DescMethod, type MessageShape } from "@bufbuild/protobuf";
import type { ServiceError } from "@grpc/grpc-js";

import { fromCall, LemanError } from "./errors.js";
import { methodName } from "./policy.js";
import type { Scope } from "./scope.js";

/** How a method is called on the wire. */
export function wire<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { input: I; output: O },
): [string, (message: MessageShape<I>) => Buffer, (bytes: Buffer) => MessageShape<O>] {
  const encode = (message: MessageShape<I>): Buffer => {
    const bytes = toBinary(method.input, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
  return [`/${methodName(method)}`, encode, (bytes) => fromBinary(method.output, bytes)];
}

/** Give the deadline of a call that is made now. */
export function timeLeft(scope: Scope): { deadline?: number } {
  return scope.deadline === undefined ? {} : { deadline: scope.deadline };
}

/** Return whether a mutation says which one it is. */
export function hasRequestId(message: object): boolean {
  return "requestId" in message && typeof message.requestId === "string" && message.requestId !== "";
}

/** Tell what gRPC raised from all else. */
function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error && "metadata" in error;
}

/** The error of an attempt: of what gRPC says, a LemanError. */
export function told(error: unknown, method: DescMethod, requestId: string): unknown {
  return isServiceError(error) ? fromCall(error, methodName(method), requestId) : error;
}

/** What gRPC tells an answer to. It raises nothing itself: no one could catch that, and the process would end. */
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

/** The error that a call ends with: that of its scope, where it was cut off by that. */
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
