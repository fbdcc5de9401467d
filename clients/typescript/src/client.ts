import { emitWarning } from "node:process";

import { checkWay } from "./addresses.js";
import { callback, checkOptions, duration, either, flag, object, PEM, text, wait, type Kinds } from "./arguments.js";
import { Calls } from "./calls.js";
import type { TlsOptions } from "./certificates.js";
import type { Context } from "./context.js";
import { Database } from "./database.js";
import { Databases } from "./databases.js";
import { Endpoints } from "./endpoints.js";
import { invalid, LemanError, type Code } from "./errors.js";
import { InfoService, type GetInfoResponse } from "./gen/leman/v1/info_pb.js";
import { CALL, type CallOptions } from "./scope.js";
import { stubs, type Stubs } from "./stubs.js";
import { takes } from "./takes.js";
import { NoToken, Tokens, type TokenSource } from "./tokens.js";

/** Options of {@link connect}. */
export interface ConnectOptions extends CallOptions {
  /** A fixed token, or a source of tokens that are renewed. */
  token?: string | TokenSource | undefined;
  /**
   * Use TLS, and mutual TLS if `cert` and `key` are set; `true`: with the system's certificates. Undefined: plaintext.
   */
  tls?: TlsOptions | true | undefined;
  /**
   * Send a token to other machines without TLS, in networks that are protected otherwise. Without this, `connect`
   * throws before it sends such a token; the reason is PLAINTEXT_TOKEN.
   */
  plaintext?: boolean | undefined;
  /** Milliseconds that calls, watches and reads wait for unavailable services; undefined: a minute. */
  patience?: number | undefined;
  /** Milliseconds to wait for the first response of a service; undefined: ten seconds. */
  firstContact?: number | undefined;
  /** Called with warnings for people, such as what a listing left out; undefined: `process.emitWarning`. */
  onWarning?: ((text: string) => void) | undefined;
}

/** The kinds of a connection's options. */
export const CONNECT: Kinds<ConnectOptions> = {
  ...CALL,
  token: either(text, callback),
  tls: either(object<TlsOptions>({ ca: PEM, cert: PEM, key: PEM, serverName: text }), {
    told: "true",
    admits: (value) => value === true,
  }),
  plaintext: flag,
  patience: wait,
  firstContact: duration,
  onWarning: callback,
};

const PATIENCE = 60_000;
const FIRST_CONTACT = 10_000;

/** Connections to the services, made by {@link connect}. After `close`, the client does not keep the process alive. */
export class Client implements AsyncDisposable {
  readonly #context: Context;
  /** The registered databases. */
  readonly databases: Databases;
  /** The generated calls of all services, over the same connections, for calls that have no method here. */
  readonly stubs: Stubs;

  /** @internal */
  constructor(context: Context) {
    this.#context = context;
    this.databases = new Databases(context);
    this.stubs = stubs(context.calls, true);
  }

  /**
   * Return a handle for a database, by its registered name, or by its path or URI as the services see it. Makes no
   * call.
   */
  @takes({ name: text })
  database(name: string): Database {
    return new Database(this.#context, name);
  }

  /** Return which service answers at the endpoint, and the addresses of the others. */
  @takes({}, CALL)
  async info(options?: CallOptions): Promise<GetInfoResponse> {
    return this.#context.stubs.info.getInfo({}, options);
  }

  /** End all running calls and close the connections. Jobs continue. */
  @takes()
  close(): void {
    this.#context.calls.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }
}

/**
 * Connect to the services, and wait for the first response.
 *
 * `endpoint` is the host:port of any one service, which accepts the calls of all of them. It may also be several
 * addresses, as an array or separated by commas: the client uses one as long as it answers, and then the first other
 * one that does.
 *
 * Throws a LemanError: INVALID_ARGUMENT for an invalid address, and for options that are unknown, of a wrong type or
 * contradict each other; UNAVAILABLE if no address answers; UNAUTHENTICATED for an invalid token.
 */
export async function connect(endpoint: string | readonly string[], options: ConnectOptions = {}): Promise<Client> {
  return connectTo(endpoint, options);
}

/**
 * Like {@link connect}, but `endpoint` may also be a function that returns the addresses, and is called again when one
 * cannot be reached.
 */
export async function connectTo(
  endpoint: string | readonly string[] | (() => readonly string[]),
  options: ConnectOptions,
): Promise<Client> {
  checkOptions(options, CONNECT);
  if (options.token === "" && typeof endpoint !== "function") {
    throw invalid("token", "the token is empty: leave it out where the services ask for none");
  }
  const endpoints = new Endpoints(endpoint, options.tls);
  const tokens = new Tokens(options.token);
  const { tls, plaintext = false } = options;
  if (plaintext && tls !== undefined) {
    throw invalid("plaintext", "the options tls and plaintext contradict each other: leave one of them out");
  }
  if (tls === undefined && !plaintext && tokens.given && typeof endpoint !== "function") {
    checkWay(endpoints.addresses);
  }
  const calls = new Calls(endpoints, tokens, options.patience ?? PATIENCE);
  const warn =
    options.onWarning ??
    ((text: string) => {
      emitWarning(text, "LemanWarning");
    });
  const client = new Client({ calls, stubs: stubs(calls, false), warn });
  const patience = options.firstContact ?? FIRST_CONTACT;
  try {
    const contact = { signal: options.signal, timeout: Math.min(options.timeout ?? patience, patience), patience };
    await calls.unary(InfoService.method.getInfo, {}, contact);
    return client;
  } catch (error) {
    client.close();
    const isLimit = options.timeout !== undefined && options.timeout <= patience;
    const code = isLimit || options.signal?.aborted === true ? "DEADLINE_EXCEEDED" : "UNAVAILABLE";
    throw unreachable(typeof endpoint === "function" ? endpoint() : endpoint, error, code);
  }
}

/** Add the address to the error of a failed first contact. `code` is the code to use if it timed out. */
function unreachable(endpoint: string | readonly string[], error: unknown, code: Code): unknown {
  const failed = error instanceof LemanError && error.reason === undefined ? error : undefined;
  const isOther =
    failed?.cause instanceof NoToken || !["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(failed?.code ?? "");
  if (failed === undefined || isOther) {
    return error;
  }
  const message = `nothing answers at ${String(endpoint)}: check the address, and TLS (${failed.message})`;
  return new LemanError({ code, message, method: failed.method, cause: failed });
}
