import { check, duration, signal, type Kinds } from "./arguments.js";
import { LemanError } from "./errors.js";

/** Options of every call. */
export interface CallOptions {
  /** Cancels the call. With `AbortSignal.timeout` the error is DEADLINE_EXCEEDED, otherwise CANCELLED. */
  signal?: AbortSignal | undefined;
  /** Milliseconds that the call may take, including retries. Then the error is DEADLINE_EXCEEDED. */
  timeout?: number | undefined;
}

/** The kinds of every call's options. */
export const CALL: Kinds<CallOptions> = { signal, timeout: duration };

/** The longest time that gRPC and dates can express, about eleven thousand years. */
const LONGEST_TIMEOUT = 99_999_999 * 3_600_000;

const LONGEST_TIMER = 2 ** 31 - 1;

/** Ends a call early: by the caller's signal, by timeout, or when the client is closed. */
export class Scope {
  readonly deadline: number | undefined;
  readonly #signal: AbortSignal | undefined;
  readonly #closing: AbortSignal;

  /** Throws INVALID_ARGUMENT for an invalid signal or timeout. gRPC would throw an error that cannot be caught. */
  constructor(options: CallOptions | undefined, closing: AbortSignal, defaultTimeout?: number) {
    if (options?.signal !== undefined) {
      check("signal", options.signal, signal);
    }
    if (options?.timeout !== undefined) {
      check("timeout", options.timeout, duration);
    }
    const timeout = options?.timeout ?? defaultTimeout;
    this.deadline = timeout === undefined ? undefined : Date.now() + Math.min(timeout, LONGEST_TIMEOUT);
    this.#signal = options?.signal;
    this.#closing = closing;
  }

  /** Return the error with which the scope ended; undefined if it has not ended. */
  ended(): LemanError | undefined {
    if (this.#closing.aborted) {
      return new LemanError({ code: "CANCELLED", reason: "CLOSED", message: "the client was closed" });
    }
    if (this.#signal?.aborted === true) {
      const reason: unknown = this.#signal.reason;
      const late = reason instanceof DOMException && reason.name === "TimeoutError";
      return new LemanError({
        code: late ? "DEADLINE_EXCEEDED" : "CANCELLED",
        message: late ? "the call took longer than its signal allowed" : "the call was cancelled by its caller",
        cause: reason,
      });
    }
    if (this.deadline !== undefined && Date.now() >= this.deadline) {
      return late();
    }
    return undefined;
  }

  /** Return the error of a scope whose timer has fired, even if the clock says that the time is not over yet. */
  over(): LemanError {
    return this.ended() ?? late();
  }

  /**
   * Call a function when the signal ends the scope. Returns a function that unregisters it. Timeouts do not call it.
   */
  onAbort(callback: () => void): () => void {
    const signals = [this.#signal, this.#closing].filter((signal) => signal !== undefined);
    for (const signal of signals) {
      signal.addEventListener("abort", callback, { once: true });
    }
    if (signals.some((signal) => signal.aborted)) {
      callback();
    }
    return () => {
      for (const signal of signals) {
        signal.removeEventListener("abort", callback);
      }
    };
  }

  /** Wait for a promise; returns undefined if the scope ends first. */
  async within<T>(work: Promise<T>): Promise<T | undefined> {
    let timer: NodeJS.Timeout | undefined;
    let release = (): void => undefined;
    const over = new Promise<undefined>((resolve) => {
      const done = (): void => {
        resolve(undefined);
      };
      release = this.onAbort(done);
      if (this.deadline !== undefined) {
        timer = setTimeout(done, Math.min(this.deadline - Date.now(), LONGEST_TIMER));
      }
    });
    try {
      return await Promise.race([work, over]);
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  /** Pause. Returns false if the scope ends meanwhile, or at once if it would. */
  async sleep(millis: number): Promise<boolean> {
    if (this.ended() !== undefined || (this.deadline !== undefined && Date.now() + millis > this.deadline)) {
      return false;
    }
    await new Promise<void>((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        release();
        resolve();
      };
      const timer = setTimeout(done, millis);
      const release = this.onAbort(() => {
        setImmediate(done);
      });
    });
    return this.ended() === undefined;
  }
}

function late(): LemanError {
  return new LemanError({ code: "DEADLINE_EXCEEDED", message: "no answer in the time that was allowed" });
}
