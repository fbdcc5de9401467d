import { setTimeout as sleep } from "node:timers/promises";

import {
  Client as Connection,
  connectivityState,
  credentials,
  type ChannelCredentials,
  type ChannelOptions,
} from "@grpc/grpc-js";

import { addressesOf, isLoopback } from "./addresses.js";
import { Certificates, type TlsOptions } from "./certificates.js";
import { LemanError } from "./errors.js";

const MAX_MESSAGE = 64 << 20;
/** Milliseconds for which a replaced connection stays open, so that its running calls can end. */
const LAST_CALLS = 60_000;

/** Milliseconds to wait for an address before the next one is tried as well. */
const HEAD_START = 250;
/** Milliseconds to wait for all addresses together. */
export const SEARCH = 5000;

/** Makes a call to an address; the signal ends it. A refusal counts as an answer, too. */
export type Ask = (connection: Connection, signal: AbortSignal) => Promise<void>;

/**
 * The addresses of the services, each of which accepts the calls of all services. While one address is connected, calls
 * go there. Otherwise the addresses are tried one after the other, and calls go to the first that answers.
 */
export class Endpoints {
  readonly #found: (() => readonly string[]) | undefined;
  #addresses: readonly string[];
  readonly #certificates: Certificates | undefined;
  readonly #options: ChannelOptions;
  readonly #connections = new Map<string, Connection>();
  readonly #leaving = new Set<Connection>();
  #credentials: ChannelCredentials;
  #current = 0;
  #left = false;
  #searching: Promise<boolean> | undefined;
  readonly #closing = new AbortController();

  /**
   * `given` may be a function that looks the addresses up again each time. If it finds none, the previous ones stay in
   * use.
   */
  constructor(given: string | readonly string[] | (() => readonly string[]), tls: TlsOptions | true | undefined) {
    this.#found = typeof given === "function" ? given : undefined;
    this.#addresses = addressesOf(typeof given === "function" ? given() : given);
    this.#certificates = tls === undefined ? undefined : new Certificates(tls === true ? {} : tls);
    this.#credentials = this.#certificates?.current ?? credentials.createInsecure();
    this.#options = channelOptions(tls === true ? undefined : tls?.serverName);
  }

  /** The currently known addresses. */
  get addresses(): readonly string[] {
    return this.#addresses;
  }

  /** The connection to use now. */
  get connection(): Connection {
    return this.#to(this.#addresses[this.#current] ?? "");
  }

  #to(address: string): Connection {
    this.#renew();
    let found = this.#connections.get(address);
    if (found === undefined) {
      const proxied = isLoopback(address) ? { "grpc.enable_http_proxy": 0 } : {};
      found = new Connection(address, this.#credentials, { ...this.#options, ...proxied });
      this.#connections.set(address, found);
    }
    return found;
  }

  /** Wait until an address answers; concurrent callers share one search. Returns false if none answers. */
  async settle(ask: Ask): Promise<boolean> {
    if (this.#isSettled()) {
      return true;
    }
    this.#searching ??= this.#search(ask).finally(() => {
      this.#searching = undefined;
    });
    return this.#searching;
  }

  #isSettled(): boolean {
    return (
      this.#addresses.length === 1 ||
      this.#closing.signal.aborted ||
      (!this.#left && this.connection.getChannel().getConnectivityState(false) === connectivityState.READY)
    );
  }

  async #search(ask: Ask): Promise<boolean> {
    const addresses = this.#addresses;
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, this.#closing.signal]);
    const asked: Promise<number>[] = [];
    try {
      for (let number = 0; number < addresses.length && !this.#closing.signal.aborted; number++) {
        const at = (this.#current + number) % addresses.length;
        const answered = isThere(ask(this.#to(addresses[at] ?? ""), signal)).then(() => at);
        asked.push(answered);
        const any = Promise.any(asked).catch(() => undefined);
        const last = number + 1 === addresses.length;
        const waited = sleep(last ? SEARCH : HEAD_START, undefined, { signal }).catch(() => undefined);
        const found = await Promise.race([any, waited, ...(last ? [] : [answered.catch(() => undefined)])]);
        if (found !== undefined) {
          this.#current = addresses === this.#addresses ? found : this.#current;
          this.#left = false;
          return true;
        }
      }
      return false;
    } finally {
      over.abort();
    }
  }

  /** Switch to the next address, because the current one cannot be reached. */
  next(): void {
    this.#left = true;
    const found = this.#found?.() ?? [];
    if (found.length > 0 && found.join() !== this.#addresses.join()) {
      this.#leave();
      this.#addresses = found;
      this.#current = 0;
      return;
    }
    this.#current = (this.#current + 1) % this.#addresses.length;
  }

  /** Close all connections. */
  close(): void {
    this.#closing.abort();
    for (const connection of [...this.#connections.values(), ...this.#leaving]) {
      connection.close();
    }
    this.#connections.clear();
    this.#leaving.clear();
  }

  /** Reconnect with renewed certificates; running calls keep their connection. */
  #renew(): void {
    const wanted = this.#certificates?.current;
    if (wanted === undefined || wanted === this.#credentials) {
      return;
    }
    this.#credentials = wanted;
    this.#leave();
  }

  /** Let new calls use a new connection; running calls keep theirs. */
  #leave(): void {
    for (const connection of this.#connections.values()) {
      this.#leaving.add(connection);
      const leave = (): void => {
        this.#leaving.delete(connection);
        connection.close();
      };
      setTimeout(leave, LAST_CALLS).unref();
    }
    this.#connections.clear();
  }
}

async function isThere(asked: Promise<void>): Promise<void> {
  try {
    await asked;
  } catch (error) {
    if (!(error instanceof LemanError) || ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"].includes(error.code)) {
      throw error;
    }
  }
}

function channelOptions(serverName: string | undefined): ChannelOptions {
  const named = { "grpc.ssl_target_name_override": serverName, "grpc.default_authority": serverName };
  return {
    "grpc.max_send_message_length": MAX_MESSAGE,
    "grpc.max_receive_message_length": MAX_MESSAGE,
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1_000,
    "grpc.dns_min_time_between_resolutions_ms": 1_000,
    "grpc.use_local_subchannel_pool": 1, // a new client tries at once, independent of the state of others
    "grpc.enable_retries": 0, // only this client retries
    "grpc.service_config_disable_resolution": 1,
    ...(serverName === undefined ? {} : (named as Record<string, string>)),
  };
}
