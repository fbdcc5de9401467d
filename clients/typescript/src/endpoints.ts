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
/** What a call that is being made needs to get through. */
const LAST_CALLS = 60_000;

/** How long an address is waited for until the next one is asked, too. */
const HEAD_START = 250;
/** How long all of them are waited for. */
export const SEARCH = 5000;

/** Makes a call of an address, which the signal ends; that it is refused is an answer, too. */
export type Ask = (connection: Connection, signal: AbortSignal) => Promise<void>;

/**
 * The addresses of the services: each answers for all of them. One of several is called while it is connected; where it
 * is not, they are asked one after the other, and the first that answers is called.
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

  /** `given` may be where to look for them, again and again: nothing found leaves those of before. */
  constructor(given: string | readonly string[] | (() => readonly string[]), tls: TlsOptions | true | undefined) {
    this.#found = typeof given === "function" ? given : undefined;
    this.#addresses = addressesOf(typeof given === "function" ? given() : given);
    this.#certificates = tls === undefined ? undefined : new Certificates(tls === true ? {} : tls);
    this.#credentials = this.#certificates?.current ?? credentials.createInsecure();
    this.#options = channelOptions(tls === true ? undefined : tls?.serverName);
  }

  /** The addresses as they are known now. */
  get addresses(): readonly string[] {
    return this.#addresses;
  }

  /** The connection to be used now. */
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

  /**
   * Wait until it is known which address answers; anyone who waits at the same time waits for one search. False: none does.
   */
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

  /** Take the next address, as the one that is called now cannot be reached. */
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

  /** Connect again with certificates that were renewed; calls that are under way stay where they are. */
  #renew(): void {
    const wanted = this.#certificates?.current;
    if (wanted === undefined || wanted === this.#credentials) {
      return;
    }
    this.#credentials = wanted;
    this.#leave();
  }

  /** Have calls that begin from now on connect again; those that are under way stay where they are. */
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
    "grpc.use_local_subchannel_pool": 1, // a new client tries at once, whatever others have seen
    "grpc.enable_retries": 0, // one layer of retries: this client's
    "grpc.service_config_disable_resolution": 1,
    ...(serverName === undefined ? {} : (named as Record<string, string>)),
  };
}
