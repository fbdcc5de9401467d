import type { MessageInitShape } from "@bufbuild/protobuf";

import { integer, object, strings, text, type Kinds } from "./arguments.js";
import { FORCE, MUTATION, requestIdOf, type Context, type ForceOptions, type MutationOptions } from "./context.js";
import type { Database as DatabaseInfo, DatabaseSchema, ListDatabasesResponse } from "./gen/leman/v1/databases_pb.js";
import { LIST, listed, type ListOptions } from "./paging.js";
import { CALL, type CallOptions } from "./scope.js";
import { takes } from "./takes.js";
import { given } from "./values.js";

/** Attributes of a registered database. */
export interface DatabaseAttributes {
  description?: string | undefined;
  /** All labels. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** The largest numbers of its jobs that run and that wait. */
  limits?: { maxRunningJobs?: number; maxWaitingJobs?: number } | undefined;
}

const ATTRIBUTES: Kinds<DatabaseAttributes> = {
  description: text,
  labels: strings,
  limits: object({ maxRunningJobs: integer, maxWaitingJobs: integer }),
};

/** The registered databases. */
export class Databases {
  readonly #context: Context;

  /** @internal */
  constructor(context: Context) {
    this.#context = context;
  }

  /** List all of them, by name. */
  @takes({}, LIST)
  list(options?: ListOptions): AsyncGenerator<DatabaseInfo, void, undefined> {
    const { databases } = this.#context.stubs;
    const itemsOf = ({ databases, warnings }: ListDatabasesResponse): DatabaseInfo[] => {
      warnings.forEach(this.#context.warn);
      return databases;
    };
    return listed((page) => databases.listDatabases(page, options), itemsOf, options?.limit);
  }

  /** Return one of them. */
  @takes({ name: text }, CALL)
  async get(name: string, options?: CallOptions): Promise<DatabaseInfo | undefined> {
    return (await this.#context.stubs.databases.getDatabase({ name }, options)).database;
  }

  /** Register a name for a database. `root`: its path or URI, as the services see it. */
  @takes({ name: text, root: text }, { ...ATTRIBUTES, ...MUTATION })
  async register(
    name: string,
    root: string,
    options: DatabaseAttributes & MutationOptions = {},
  ): Promise<DatabaseInfo | undefined> {
    const request = { database: { name, root, ...attributes(options) }, requestId: requestIdOf(options) };
    return (await this.#context.stubs.databases.registerDatabase(request, options)).database;
  }

  /** Change attributes of a database; those that are left out stay. */
  @takes({ name: text, changes: object(ATTRIBUTES) }, CALL)
  async update(name: string, changes: DatabaseAttributes, options?: CallOptions): Promise<DatabaseInfo | undefined> {
    const changed = attributes(changes);
    const request = { database: { name, ...changed }, updateMask: { paths: Object.keys(changed) } };
    return (await this.#context.stubs.databases.updateDatabase(request, options)).database;
  }

  /** Remove a registered name; the database itself stays. With `force` also if jobs of it have not ended. */
  @takes({ name: text }, FORCE)
  async unregister(name: string, options?: ForceOptions): Promise<void> {
    const request = { name, force: options?.force ?? false, requestId: requestIdOf(options) };
    await this.#context.stubs.databases.unregisterDatabase(request, options);
  }
}

function attributes({ description, labels, limits }: DatabaseAttributes): MessageInitShape<typeof DatabaseSchema> {
  return given({ description, labels: labels && { ...labels }, limits: limits && { ...limits } });
}
