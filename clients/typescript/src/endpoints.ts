import { isIPv4, isIPv6 } from "node:net";

import { Client as Connection, credentials, type ChannelCredentials, type ChannelOptions } from "@grpc/grpc-js";

import { Certificates, type TlsOptions } from "./certificates.js";
import { invalid } from "./errors.js";

const MAX_MESSAGE = 64 << 20;
/** What a call that is being made needs to get through. */
const LAST_CALLS = 60_000;

/** The addresses of the services: each answers for all of them, one is called until it cannot be reached. */
export class Endpoints {
  readonly #found: (() => readonly string[]) | undefined;
  #addresses: readonly string[];
  readonly #certificates: Certificates | undefined;
  readonly #options: ChannelOptions;
  readonly #connections = new Map<string, Connection>();
  readonly #leaving = new Set<Connection>();
  #credentials: ChannelCredentials;
  #current = 0;

  /** `given` may be where to look for them, again and again: nothing found leaves those of before. */
  constructor(given: string | readonly string[] | (() => readonly string[]), tls: TlsOptions | true | undefined) {
    this.#found = typeof given === "function" ? given : undefined;
    const told = typeof given === "function" ? given() : given;
    this.#addresses = (typeof told === "string" ? told.split(",") : told).map((text) => text.trim());
    for (const address of this.#addresses) {
      if (!/^.+:\d+$/.test(address)) {
        throw invalid("endpoint", `endpoint ${JSON.stringify(address)} is not host:port, such as leman.internal:7443`);
      }
    }
    this.#certificates = tls === undefined ? undefined : new Certificates(tls === true ? {} : tls);
    this.#credentials = this.#certificates?.current ?? credentials.createInsecure();
    this.#options = channelOptions(tls === true ? undefined : tls?.serverName);
  }

  /** The connection to be used now. */
  get connection(): Connection {
    this.#renew();
    const address = this.#addresses[this.#current] ?? "";
    let found = this.#connections.get(address);
    if (found === undefined) {
      const host = address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, "");
      const proxied = isLoopback(host) ? { "grpc.enable_http_proxy": 0 } : {};
      found = new Connection(address, this.#credentials, { ...this.#options, ...proxied });
      this.#connections.set(address, found);
    }
    return found;
  }

  /** Take the next address, as the one that is called now cannot be reached. */
  next(): void {
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
    for (const connection of [...this.#connections.values(), ...this.#leaving]) {
      connection.close();
    }
    this.#connections.clear();
    this.#leaving.clear();
  }

  /** Connect anew with certificates that were renewed; calls that are under way stay where they are. */
  #renew(): void {
    const wanted = this.#certificates?.current;
    if (wanted === undefined || wanted === this.#credentials) {
      return;
    }
    this.#credentials = wanted;
    this.#leave();
  }

  /** Have calls that begin from now on connect anew; those that are under way stay where they are. */
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

function isLoopback(host: string): boolean {
  return host === "localhost" || (isIPv4(host) && host.startsWith("127.")) || (isIPv6(host) && host === "::1");
}
