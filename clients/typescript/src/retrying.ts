import { LemanError, lostConnection } from "./errors.js";
import type { RetryPolicy } from "./policy.js";
import type { Scope } from "./scope.js";
import { withinScope, type Tokens } from "./tokens.js";
import { ending } from "./wire.js";

/** How many connections a call may lose while it runs: it may be what ends the services. */
const MOST_LOSSES = 2;

/** Decides whether a call that failed is made again, and waits until then. */
export class Retrying {
  readonly #policy: RetryPolicy | undefined;
  readonly #tokens: Tokens;
  readonly #patience: number;
  readonly #away: () => void;
  #attempts = 1;
  #backoff: number;
  #since: number | undefined;
  #renewed = false;
  #losses = 0;

  /** `patience`: milliseconds that services may be away; `away`: told when an endpoint cannot be reached. */
  constructor(policy: RetryPolicy | undefined, tokens: Tokens, patience: number, away: () => void) {
    this.#policy = policy;
    this.#tokens = tokens;
    this.#patience = patience;
    this.#away = away;
    this.#backoff = policy?.initialBackoff ?? 0;
  }

  /** Something went forward: what failed before does not count any more. */
  reset(): void {
    this.#attempts = 1;
    this.#backoff = this.#policy?.initialBackoff ?? 0;
    this.#since = undefined;
    this.#renewed = false;
    this.#losses = 0;
  }

  /** Return true when another attempt is worth it, after a pause where one is needed. */
  async again(failed: LemanError, token: string | undefined, scope: Scope): Promise<boolean> {
    if (scope.ended() !== undefined) {
      return false;
    }
    if (failed.code === "UNAUTHENTICATED" && token !== undefined && !this.#renewed) {
      this.#renewed = true;
      return withinScope(this.#tokens.renew(token), scope, failed.method);
    }
    if (this.#policy === undefined) {
      return false;
    }
    this.#losses += lostConnection(failed) ? 1 : 0;
    if (this.#losses >= MOST_LOSSES) {
      return false;
    }
    if (isAway(failed)) {
      if (failed.reason === undefined) {
        this.#away();
      }
      return this.#pause(this.#policy, failed.retryDelay ?? 0, scope);
    }
    if (this.#policy.standsInLine === true && failed.code === "RESOURCE_EXHAUSTED" && failed.retryDelay !== undefined) {
      return this.#pause(this.#policy, failed.retryDelay, scope);
    }
    const listed = this.#policy.codes.has(failed.code) && this.#attempts < this.#policy.maxAttempts;
    const asked = failed.reason === undefined || failed.retryDelay !== undefined; // others say what else to do
    return listed && asked && this.#pause(this.#policy, failed.retryDelay ?? 0, scope);
  }

  /** Wait until one of the endpoints answers, by `settle`, as long as patience lasts. */
  async settled(settle: () => Promise<boolean>, method: string, scope: Scope): Promise<void> {
    while ((await scope.within(settle())) === false) {
      const none = new LemanError({ code: "UNAVAILABLE", message: "none of the endpoints answers", method });
      if (!(await this.again(none, undefined, scope))) {
        throw ending(none, scope);
      }
    }
  }

  async #pause(policy: RetryPolicy, atLeast: number, scope: Scope): Promise<boolean> {
    this.#since ??= Date.now();
    const pause = Math.max(atLeast, this.#backoff * (0.5 + Math.random() / 2));
    if (Date.now() + pause > this.#since + this.#patience) {
      return false;
    }
    this.#attempts += 1;
    this.#backoff = Math.min(this.#backoff * policy.backoffMultiplier, policy.maxBackoff);
    return scope.sleep(pause);
  }
}

/** Return whether a service is away; a function server that is, is for the caller to start. */
function isAway(failed: LemanError): boolean {
  return failed.code === "UNAVAILABLE" && failed.reason !== "FUNCTION_UNAVAILABLE";
}
