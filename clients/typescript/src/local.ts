import { readFileSync } from "node:fs";
import { join } from "node:path";

import { connectTo, type Client, type ConnectOptions } from "./client.js";
import type { Database } from "./database.js";
import { LemanError } from "./errors.js";

/** A database in a folder of this machine, and the connections to its services, made by {@link connectLocal}. */
export class LocalDatabase implements AsyncDisposable {
  /** @internal */
  constructor(
    readonly client: Client,
    readonly database: Database,
  ) {}

  /** End all calls that are under way, and close the connections. Jobs go on, and so do the services. */
  close(): void {
    this.client.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    return this.client[Symbol.asyncDispose]();
  }
}

/**
 * Connect to the services that run for a folder of this machine (`leman up`, or a program in Python). They say there where
 * they are, and what their token is, and are found again where they were started anew. None is started: throws a
 * LemanError, UNAVAILABLE, where none runs.
 */
export async function connectLocal(
  folder: string,
  options: Omit<ConnectOptions, "token" | "tls"> = {},
): Promise<LocalDatabase> {
  const file = join(folder, "_leman", "service.json");
  const first = attempt(folder, () => read(file));
  const token = (): string => read(file).token;
  const client = await connectTo(() => addresses(file), { ...options, token }).catch((cause: unknown) => {
    throw away(folder, cause);
  });
  try {
    const { database } = await client.info(options);
    if (database !== first.database) {
      throw away(folder, new Error("others answer at the address of its services now"));
    }
    return new LocalDatabase(client, client.database(database));
  } catch (error) {
    client.close();
    throw error;
  }
}

/** What services of a folder say. */
interface Told {
  token: string;
  database: string;
  addresses: string[];
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

/** Where the services are now; nothing while they are away: they are called where they were. */
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
