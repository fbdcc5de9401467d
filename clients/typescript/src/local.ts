import { readFileSync } from "node:fs";
import { join } from "node:path";

import { check, checkOptions, text, type Kinds } from "./arguments.js";
import { CONNECT, connectTo, type Client, type ConnectOptions } from "./client.js";
import type { Database } from "./database.js";
import { LemanError } from "./errors.js";
import type { GetInfoResponse } from "./gen/leman/v1/info_pb.js";
import { takes } from "./takes.js";

/**
 * A handle for a database in a folder of this machine, with the connections to its services; made by
 * {@link connectLocal}.
 */
export class LocalDatabase implements AsyncDisposable {
  /** @internal */
  constructor(
    readonly client: Client,
    readonly database: Database,
  ) {}

  /** End all running calls and close the connections. Jobs and services continue. */
  @takes()
  close(): void {
    this.client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    return this.client[Symbol.asyncDispose]();
  }
}

type LocalOptions = Omit<ConnectOptions, "token" | "tls" | "plaintext">;

const { signal, timeout, patience, firstContact, onWarning } = CONNECT;
const LOCAL: Kinds<LocalOptions> = { signal, timeout, patience, firstContact, onWarning };

/**
 * Connect to the running services of a folder of this machine, which `leman up` or a Python program started. The client
 * reads their addresses and token from the folder, and follows them when they restart. It starts no services: if none
 * run, it throws a LemanError, UNAVAILABLE.
 */
export async function connectLocal(folder: string, options: LocalOptions = {}): Promise<LocalDatabase> {
  check("folder", folder, text);
  checkOptions(options, LOCAL);
  const file = join(folder, "_leman", "service.json");
  const first = attempt(folder, () => read(file));
  const token = (): string => read(file).token;
  const client = await connectTo(() => addresses(file), { ...options, token }).catch((cause: unknown) => {
    throw away(folder, cause);
  });
  try {
    if (!isOf(await client.info({ signal: options.signal, timeout: options.timeout }), first)) {
      throw away(folder, new Error("others answer at the address of its services now"));
    }
    return new LocalDatabase(client, client.database(first.database));
  } catch (error) {
    client.close();
    throw error;
  }
}

/** The content of the file that the services of a folder write. */
interface Told {
  token: string;
  database: string;
  addresses: string[];
}

/**
 * Whether the answer comes from the services that wrote this file. If they serve several databases, the file has no
 * identity, and their addresses are compared instead.
 */
function isOf(info: GetInfoResponse, told: Told): boolean {
  if (info.database !== "") {
    return info.database === told.database;
  }
  const each = new Set([info.plannerAddress, info.executorAddress, info.commitCoordinatorAddress]);
  return [...each].join() === told.addresses.join();
}

function read(file: string): Told {
  const told = JSON.parse(readFileSync(file, "utf8")) as Record<string, unknown>;
  const text = (name: string): string => {
    const value = told[name];
    if (typeof value !== "string") {
      throw new Error(`${file} has no ${name}`);
    }
    return value;
  };
  const each = [text("planner"), text("executor"), text("commit_coordinator")];
  return { token: text("token"), database: text("database"), addresses: [...new Set(each)] };
}

/** The current addresses of the services. Empty while they are down: then the previous addresses stay in use. */
function addresses(file: string): string[] {
  try {
    return read(file).addresses;
  } catch {
    return [];
  }
}

function attempt<T>(folder: string, does: () => T): T {
  try {
    return does();
  } catch (cause) {
    throw away(folder, cause);
  }
}

function away(folder: string, cause: unknown): unknown {
  if (cause instanceof LemanError && cause.code !== "UNAVAILABLE") {
    return cause;
  }
  const why = cause instanceof Error ? cause.message : String(cause);
  const message = `no services run for ${folder}: start them with leman up ${folder} (${why})`;
  return new LemanError({ code: "UNAVAILABLE", message, cause });
}
