import { invalid } from "./errors.js";

const ADDRESS = /^(?:\[[\w:.%]+\]|[^\s:/,@[\]]+):(\d+)$/;
const LARGEST_PORT = 65535;
const SUCH_AS = "such as leman.internal:7443";

/** The addresses that a caller gave, once each: of a text those between its commas. Throws INVALID_ARGUMENT. */
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

function checked(given: unknown): string {
  if (typeof given !== "string") {
    throw wrong(given, `is no text like host:port, ${SUCH_AS}`);
  }
  const address = given.trim();
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
