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

/** How {@link connect} connects. */
export interface ConnectOptions extends CallOptions {
  /** What the services ask for: a token that stays, or a source of tokens that are renewed. */
  token?: string | TokenSource | undefined;
  /** TLS, and with `cert` and `key` mTLS; `true`: with the system's certificates. Undefined: plaintext. */
  tls?: TlsOptions | true | undefined;
  /**
   * Whether a token goes to other machines than this one without TLS, for networks that are protected otherwise. Such a
   * token is refused else, before anything is sent: the error's reason is PLAINTEXT_TOKEN.
   */
  plaintext?: boolean | undefined;
  /** Milliseconds that calls, watches and reads wait for services that are away; undefined: a minute. */
  patience?: number | undefined;
  /** Milliseconds in which a service has to answer for the first time; undefined: ten seconds. */
  firstContact?: number | undefined;
  /** Told what people should know, such as what a listing left out; undefined: `process.emitWarning`. */
  onWarning?: ((text: string) => void) | undefined;
}

/** What the options of a connection are. */
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

/** Connections to the services, made by {@link connect}. After `close` nothing of it keeps the process alive. */
export class Client implements AsyncDisposable {
  readonly #context: Context;
  /** The databases that the services know by name. */
  readonly databases: Databases;
  /** The generated calls of all services, over the same connections: for what has no method here. */
  readonly stubs: Stubs;

  /** @internal */
  constructor(context: Context) {
    this.#context = context;
    this.databases = new Databases(context);
    this.stubs = stubs(context.calls, true);
  }

  /** A database: by its registered name, or its path or uri as the services reach it. Nothing is called. */
  @takes({ name: text })
  database(name: string): Database {
    return new Database(this.#context, name);
  }

  /** Tell which service answers, and where the others are. */
  @takes({}, CALL)
  async info(options?: CallOptions): Promise<GetInfoResponse> {
    return this.#context.stubs.info.getInfo({}, options);
  }

  /** End all calls that are under way, and close the connections. Jobs go on. */
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
 * Connect to the services, and wait for a first answer.
 *
 * `endpoint`: host:port of any one service, which answers for all of them; or several, an array or with commas, of which
 * one is called while it answers, then the first that does. Throws a LemanError: INVALID_ARGUMENT for what is no address,
 * and for options that there are not, of another kind, or that do not go together, UNAVAILABLE where nothing answers, UNAUTHENTICATED for a token that does not
 * hold.
 */
export async function connect(endpoint: string | readonly string[], options: ConnectOptions = {}): Promise<Client> {
  return connectTo(endpoint, options);
}

/** As {@link connect}; `endpoint` may also tell where the services are, and is asked again when one cannot be reached. */
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

/** Say of a first contact that failed where it was tried. `code`: of the time in which it did. */
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
