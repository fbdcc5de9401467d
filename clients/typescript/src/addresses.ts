import { BlockList, isIP } from "node:net";

import { invalid, LemanError } from "./errors.js";

const ADDRESS = /^(?:\[[\w:.%]+\]|[^\s:/,@[\]]+):(\d+)$/;
const AS_GRPC_HAS_IT = /^dns:\/\/\//;
const LARGEST_PORT = 65535;
const SUCH_AS = "such as leman.internal:7443";

/**
 * Return the addresses in the caller's endpoint, without duplicates; a string is split at its commas. Throws
 * INVALID_ARGUMENT.
 */
export function addressesOf(given: unknown): readonly string[] {
  if (typeof given !== "string" && !Array.isArray(given)) {
    throw wrong(given, `is not host:port, ${SUCH_AS}, nor several of these`);
  }
  const told: readonly unknown[] = typeof given === "string" ? given.split(",") : given;
  if (told.length === 0 || given === "") {
    throw invalid("endpoint", `there is no endpoint: give host:port of a service, ${SUCH_AS}`);
  }
  return [...new Set(told.map(checked))];
}

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8, "ipv4");
loopback.addAddress("::1", "ipv6");

/** Return whether host:port is an address of this machine only. */
export function isLoopback(address: string): boolean {
  const host = address.slice(0, address.lastIndexOf(":")).replace(/^\[|\]$/g, "");
  const version = isIP(host);
  return version === 0 ? host.toLowerCase() === "localhost" : loopback.check(host, version === 4 ? "ipv4" : "ipv6");
}

/** Throw before anything is sent if a token would be sent unencrypted to one of the addresses. */
export function checkWay(addresses: readonly string[]): void {
  const exposed = addresses.find((address) => !isLoopback(address));
  if (exposed !== undefined) {
    const message =
      `${exposed} is another machine, and without TLS anyone on the way reads the token: give the option tls, ` +
      "or plaintext: true where the network is protected";
    const fields = [{ field: "endpoint", description: message }];
    throw new LemanError({ code: "INVALID_ARGUMENT", reason: "PLAINTEXT_TOKEN", message, fields });
  }
}

function checked(given: unknown): string {
  if (typeof given !== "string") {
    throw wrong(given, `is no text like host:port, ${SUCH_AS}`);
  }
  const address = given.trim().replace(AS_GRPC_HAS_IT, "");
  const [scheme, rest] = address.split("://");
  if (rest !== undefined) {
    const place = rest.replace(/\/+$/, "");
    throw wrong(address, `is a URL: leave ${String(scheme)}:// out and give ${place} (for TLS with the option tls)`);
  }
  const port = ADDRESS.exec(address)?.[1];
  if (port === undefined) {
    throw wrong(address, `is not host:port, ${SUCH_AS}`);
  }
  if (Number(port) < 1 || Number(port) > LARGEST_PORT) {
    throw wrong(address, `has no possible port: one is from 1 to ${String(LARGEST_PORT)}`);
  }
  return address;
}

function wrong(given: unknown, what: string): Error {
  return invalid("endpoint", `endpoint ${typeof given === "string" ? JSON.stringify(given) : String(given)} ${what}`);
}
