import { emitWarning } from "node:process";

import { Calls } from "./calls.js";
import type { TlsOptions } from "./certificates.js";
import type { Context } from "./context.js";
import { Database } from "./database.js";
import { Databases } from "./databases.js";
import { Endpoints } from "./endpoints.js";
import { LemanError } from "./errors.js";
import { InfoService, type GetInfoResponse } from "./gen/leman/v1/info_pb.js";
import type { CallOptions } from "./scope.js";
import { stubs, type Stubs } from "./stubs.js";
import { Tokens, type TokenSource } from "./tokens.js";

/** How {@link connect} connects. */
export interface ConnectOptions extends CallOptions {
  /** What the services ask for: a token that stays, or a source of tokens that are renewed. */
  token?: string | TokenSource | undefined;
  /** TLS, and with `cert` and `key` mTLS; `true`: with the system's certificates. Undefined: plaintext. */
  tls?: TlsOptions | true | undefined;
  /** Milliseconds that calls, watches and reads wait for services that are away; undefined: a minute. */
  patience?: number | undefined;
  /** Milliseconds in which a service has to answer for the first time; undefined: ten seconds. */
  firstContact?: number | undefined;
  /** Told what people should know, such as what a listing left out; undefined: `process.emitWarning`. */
  onWarning?: ((text: string) => void) | undefined;
}

const PATIENCE = 60_000;
const FIRST_CONTACT = 10_000;

/** Connections to the services, made by {@link connect}. After `close` nothing of it keeps the process alive. */
export class Client implements AsyncDisposable {
  readonly #context: Context;
  /** The databases that the services know by name. */
  readonly databases: Databases;

  /** @internal */
  constructor(context: Context) {
    this.#context = context;
    this.databases = new Databases(context);
  }

  /** A database: by its registered name, or its path or uri as the services reach it. Nothing is called. */
  database(name: string): Database {
    return new Database(this.#context, name);
  }

  /** The generated calls of all services, over the same connections: for what has no method here. */
  get stubs(): Stubs {
    return this.#context.stubs;
  }

  /** Tell which service answers, and where the others are. */
  async info(options?: CallOptions): Promise<GetInfoResponse> {
    return this.stubs.info.getInfo({}, options);
  }

  /** End all calls that are under way, and close the connections. Jobs go on. */
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
 * one is called while it answers, then the first that does. Throws a LemanError: INVALID_ARGUMENT for what is no address
 * and for options that do not go together, UNAVAILABLE where nothing answers, UNAUTHENTICATED for a token that does not
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
  const endpoints = new Endpoints(endpoint, options.tls);
  const calls = new Calls(endpoints, new Tokens(options.token), options.patience ?? PATIENCE);
  const warn =
    options.onWarning ??
    ((text: string) => {
      emitWarning(text, "LemanWarning");
    });
  const client = new Client({ calls, stubs: stubs(calls), warn });
  const patience = options.firstContact ?? FIRST_CONTACT;
  try {
    const contact = { signal: options.signal, timeout: options.timeout ?? patience, patience };
    await calls.unary(InfoService.method.getInfo, {}, contact);
    return client;
  } catch (error) {
    client.close();
    throw unreachable(typeof endpoint === "function" ? endpoint() : endpoint, error);
  }
}

/** Say of a first contact that failed where it was tried. */
function unreachable(endpoint: string | readonly string[], error: unknown): unknown {
  const failed = error instanceof LemanError && error.reason === undefined ? error : undefined;
  if (failed === undefined || !["UNAVAILABLE", "DEADLINE_EXCEEDED"].includes(failed.code)) {
    return error;
  }
  const message = `nothing answers at ${String(endpoint)}: check the address, and TLS (${failed.message})`;
  return new LemanError({ code: "UNAVAILABLE", message, method: failed.method, cause: failed });
}
