import { createHash, randomUUID } from "node:crypto";

import { flag, text, type Kinds } from "./arguments.js";
import type { Calls } from "./calls.js";
import { invalid } from "./errors.js";
import { CALL, type CallOptions } from "./scope.js";
import type { Stubs } from "./stubs.js";

/** What the objects of one client share. */
export interface Context {
  readonly calls: Calls;
  readonly stubs: Stubs;
  /** Called with warnings for people, for example about damaged entries that a listing left out. */
  readonly warn: (text: string) => void;
}

/** Options of every mutation. */
export interface MutationOptions extends CallOptions {
  /**
   * The request id. The services apply mutations with equal ids once, so with your own id another process can retry a
   * mutation. If an id is used again for a different change or for different rows, the call is refused
   * (REQUEST_ID_REUSED). Undefined: the client generates an id, and retries the call under it while services are
   * unavailable.
   */
  requestId?: string | undefined;
}

/** The kinds of a mutation's options. */
export const MUTATION: Kinds<MutationOptions> = { ...CALL, requestId: text };

/**
 * Options of calls that remove or rename something on which other objects may depend. With `force` they do so anyway.
 */
export interface ForceOptions extends MutationOptions {
  force?: boolean | undefined;
}

/** The kinds of these options. */
export const FORCE: Kinds<ForceOptions> = { ...MUTATION, force: flag };

/** Derive the id of a further change of one call. Other callers cannot produce it by accident. */
export function derivedId(requestId: string, what: string): string {
  const said = `${requestId}-${what}`;
  return `${said}-${createHash("sha256").update(said).digest("hex").slice(0, 12)}`;
}

/** Return the request id of a mutation: the caller's, or a new one. Throws INVALID_ARGUMENT. */
export function requestIdOf(options: MutationOptions | undefined): string {
  const given: unknown = options?.requestId ?? randomUUID().replaceAll("-", "");
  if (typeof given !== "string" || given === "") {
    throw invalid("requestId", "requestId is no text, or empty: give one of your own, or leave it out");
  }
  return given;
}
