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
  /** Told what people should know: what a listing left out because it is damaged, for example. */
  readonly warn: (text: string) => void;
}

/** What every call takes that changes something. */
export interface MutationOptions extends CallOptions {
  /**
   * The id under which it is done once, however often it is sent: give one to send it again from another process.
   * The same id with another change, or with other rows, is refused (REQUEST_ID_REUSED).
   * Undefined: the client makes one up, and sends the call again under it where the services were away.
   */
  requestId?: string | undefined;
}

/** What the options of a mutation are. */
export const MUTATION: Kinds<MutationOptions> = { ...CALL, requestId: text };

/** Options of what removes or renames: although others rest on it. */
export interface ForceOptions extends MutationOptions {
  force?: boolean | undefined;
}

/** What the options of such a mutation are. */
export const FORCE: Kinds<ForceOptions> = { ...MUTATION, force: flag };

/** Give the id of a further change of one call; no other caller gives that by chance. */
export function derivedId(requestId: string, what: string): string {
  const said = `${requestId}-${what}`;
  return `${said}-${createHash("sha256").update(said).digest("hex").slice(0, 12)}`;
}

/** Give the id of a mutation: its caller's, or a new one. Throws INVALID_ARGUMENT. */
export function requestIdOf(options: MutationOptions | undefined): string {
  const given: unknown = options?.requestId ?? randomUUID().replaceAll("-", "");
  if (typeof given !== "string" || given === "") {
    throw invalid("requestId", "requestId is no text, or empty: give one of your own, or leave it out");
  }
  return given;
}
