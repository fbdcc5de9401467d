import { LemanError, lostConnection } from "./errors.js";
import type { RetryPolicy } from "./policy.js";
import type { Scope } from "./scope.js";
import { withinScope, type Tokens } from "./tokens.js";
import { ending } from "./wire.js";

/**
 * How many connections a call may lose while it runs. If it loses more, the call itself may be what crashes the
 * services.
 */
const MOST_LOSSES = 2;

/** Decides whether a failed call is retried, and waits until then. */
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

  /** `patience`: milliseconds to wait for unavailable services; `away`: called when an endpoint cannot be reached. */
  constructor(policy: RetryPolicy | undefined, tokens: Tokens, patience: number, away: () => void) {
    this.#policy = policy;
    this.#tokens = tokens;
    this.#patience = patience;
    this.#away = away;
    this.#backoff = policy?.initialBackoff ?? 0;
  }

  /** Forget earlier failures after progress. */
  reset(): void {
    this.#attempts = 1;
    this.#backoff = this.#policy?.initialBackoff ?? 0;
    this.#since = undefined;
    this.#renewed = false;
    this.#losses = 0;
  }

  /** Return whether to retry, after a pause if one is needed. */
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
    const asked = failed.reason === undefined || failed.retryDelay !== undefined; // otherwise the error says what to do
    return listed && asked && this.#pause(this.#policy, failed.retryDelay ?? 0, scope);
  }

  /** Wait with `settle` until an endpoint answers, or the patience ends. */
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

/**
 * Return whether the error means that a service is unavailable. An unavailable function server does not count: the
 * caller has to start it.
 */
function isAway(failed: LemanError): boolean {
  return failed.code === "UNAVAILABLE" && failed.reason !== "FUNCTION_UNAVAILABLE";
}
