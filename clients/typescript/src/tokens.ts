import { readFile } from "node:fs/promises";

import { invalid, LemanError } from "./errors.js";
import type { Scope } from "./scope.js";

/** A token with an expiry. */
export interface Token {
  /** What follows `Bearer `. */
  value: string;
  /** When the source must be called for another token; undefined: when the services refuse this one. */
  expiresAt?: Date | undefined;
}

/**
 * Supplies tokens. The client calls it before the first call, shortly before a token expires, and when the services
 * refuse a token (UNAUTHENTICATED). After a refusal the client retries the call with the new token. It never calls a
 * source concurrently.
 */
export type TokenSource = () => string | Token | Promise<string | Token>;

const MARGIN = 10_000;

/**
 * Return a source that reads the token from a file and trims surrounding white space. It reads the file at most once a
 * second.
 */
export function tokenFile(path: string): TokenSource {
  return async () => ({
    value: (await readFile(path, "utf8")).trim(),
    expiresAt: new Date(Date.now() + MARGIN + 1000),
  });
}

/** Check a token. Throws INVALID_ARGUMENT, without the token in its message, if a call cannot carry it. */
function checked(token: string): string {
  if (!/^[\x21-\x7e]*$/u.test(token)) {
    const where = "a blank, a line end or a letter beyond ASCII";
    throw invalid("token", `the token has ${where}: no token of services has; give it without, such as by trim()`);
  }
  return token;
}

/** Throw INVALID_ARGUMENT if a source returned something that is not a token, despite its type. */
function checkAnswer(given: unknown): void {
  const { value, expiresAt } = (typeof given === "object" ? (given ?? {}) : {}) as Readonly<Record<string, unknown>>;
  if (typeof value !== "string") {
    const told = given === null ? "null" : `a value of type ${typeof given}`;
    throw invalid("token", `the source of tokens gave ${told}: give a text, or an object whose value is the text`);
  }
  if (expiresAt !== undefined && !(expiresAt instanceof Date && Number.isFinite(expiresAt.getTime()))) {
    throw invalid("token", "the source of tokens gave an expiresAt that is no valid Date");
  }
}

/** The source supplied no token before the call ended. */
export class NoToken extends Error {}

/** Wait for the token of a source until the scope of the call ends. */
export async function withinScope<T>(asked: Promise<T>, scope: Scope, method?: string): Promise<T> {
  const found = await scope.within(asked.then((answer) => ({ answer })));
  if (found !== undefined) {
    return found.answer;
  }
  const { code, reason, message } = scope.over();
  const cause = new NoToken("the source of tokens has not answered");
  throw new LemanError({ code, reason, message: `${message}: ${cause.message}`, method, cause });
}

/** Holds the current token of a source. */
export class Tokens {
  readonly #source: TokenSource | undefined;
  #current: Token | undefined;
  #asking: Promise<Token> | undefined;

  constructor(given: string | TokenSource | undefined) {
    this.#source = typeof given === "function" ? given : undefined;
    this.#current = typeof given === "string" && given !== "" ? { value: checked(given) } : undefined;
  }

  /** Whether there is a token or a source. */
  get given(): boolean {
    return this.#source !== undefined || this.#current !== undefined;
  }

  /** Return the token for a call; undefined if there is none. */
  async get(): Promise<string | undefined> {
    const { expiresAt } = this.#current ?? {};
    const holds = this.#current !== undefined && (expiresAt === undefined || expiresAt.getTime() > Date.now());
    const fresh = holds && (expiresAt === undefined || expiresAt.getTime() - MARGIN > Date.now());
    if (fresh || this.#source === undefined) {
      return this.#current?.value;
    }
    try {
      return (await this.#ask(this.#source)).value;
    } catch (error) {
      if (holds) {
        return this.#current?.value;
      }
      throw error;
    }
  }

  /** Get another token from the source after the services refused one. Returns false if there is no source. */
  async renew(refused: string): Promise<boolean> {
    if (this.#source === undefined) {
      return false;
    }
    if (this.#current === undefined || this.#current.value === refused) {
      await this.#ask(this.#source);
    }
    return true;
  }

  async #ask(source: TokenSource): Promise<Token> {
    this.#asking ??= this.#asked(source).finally(() => {
      this.#asking = undefined;
    });
    return this.#asking;
  }

  async #asked(source: TokenSource): Promise<Token> {
    let found: string | Token;
    try {
      found = await source();
    } catch (cause) {
      const message = `the source of tokens failed: ${cause instanceof Error ? cause.message : String(cause)}`;
      throw new LemanError({ code: "UNAUTHENTICATED", message, cause });
    }
    const token = typeof found === "string" ? { value: found } : found;
    checkAnswer(token);
    if (token.value === "") {
      throw new LemanError({ code: "UNAUTHENTICATED", message: "the source of tokens gave an empty one" });
    }
    checked(token.value);
    this.#current = token;
    return token;
  }
}
