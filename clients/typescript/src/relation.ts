import type { Schema, Table as ArrowTable } from "apache-arrow";

import { duration, flag, integer, names } from "./arguments.js";
import { decodeSchema } from "./arrow.js";
import type { Context } from "./context.js";
import type { DescribeTableResponse } from "./gen/leman/v1/catalog_pb.js";
import type { CollectGarbageResponse, Commit } from "./gen/leman/v1/commit_pb.js";
import type { IndexCoverage } from "./gen/leman/v1/planner_pb.js";
import { LIST, listed, type ListOptions } from "./paging.js";
import { READ, RowStream, type ReadOptions } from "./reading.js";
import { CALL, type CallOptions } from "./scope.js";
import { takes } from "./takes.js";
import { given, toDuration } from "./values.js";

/** The state of a table or view. */
export class TableDescription {
  readonly #told: DescribeTableResponse;

  /** @internal */
  constructor(told: DescribeTableResponse) {
    this.#told = told;
  }

  /** The URI of the Lance dataset. */
  get uri(): string {
    return this.#told.uri;
  }

  /** The latest version. */
  get version(): number {
    return Number(this.#told.version);
  }

  /** The number of rows, without deleted ones. */
  get rows(): number {
    return Number(this.#told.rowCount);
  }

  get fragments(): number {
    return this.#told.fragmentCount;
  }

  /** The names of all columns. */
  get columns(): string[] {
    return this.#told.jsonSchema?.fields.map((field) => field.name) ?? [];
  }

  /** The Arrow schema of all columns. Throws TYPE_NOT_READABLE if apache-arrow does not know a type. */
  get schema(): Schema {
    return decodeSchema(this.#told.schema);
  }

  /** The computed columns, with their functions and inputs. */
  get computed(): DescribeTableResponse["computedColumns"] {
    return this.#told.computedColumns;
  }

  /** Whether row ids survive updates and compaction. */
  get stableRowIds(): boolean {
    return this.#told.stableRowIds;
  }
}

const GARBAGE = { ...CALL, olderThan: duration, dryRun: flag, includeKept: flag, maxFiles: integer };

/** What tables and views have in common. It holds no state: each call returns the current state. */
export abstract class Relation {
  /** @internal */
  protected readonly context: Context;

  /** @internal */
  constructor(
    context: Context,
    readonly database: string,
    readonly name: string,
  ) {
    this.context = context;
  }

  /** Return the current version, rows, schema and computed columns. */
  @takes({}, CALL)
  async describe(options?: CallOptions): Promise<TableDescription> {
    return new TableDescription(await this.context.stubs.catalog.describeTable({ table: this.ref }, options));
  }

  /** Read rows, batch by batch: `for await (const batch of table.read({ where: "n > 1" }))`. */
  @takes({}, READ)
  read(options: ReadOptions = {}): RowStream {
    return new RowStream(this.context, this.ref, options);
  }

  /** Read rows into an Arrow table. */
  @takes({}, READ)
  async toArrow(options?: ReadOptions): Promise<ArrowTable> {
    return this.read(options).toTable();
  }

  /** List Leman's commits in the history, newest first. */
  @takes({}, LIST)
  commits(options?: ListOptions): AsyncGenerator<Commit, void, undefined> {
    const { commits } = this.context.stubs;
    const call = (page: object) => commits.listCommits({ table: this.ref, ...page }, options);
    return listed(call, (page) => page.commits, options?.limit);
  }

  /** Update the indexes on any of `columns` (undefined: all indexes), and return which rows they then cover. */
  @takes({}, { ...CALL, columns: names })
  async optimizeIndices(options: CallOptions & { columns?: readonly string[] } = {}): Promise<IndexCoverage[]> {
    const request = { table: this.ref, columns: [...(options.columns ?? [])] };
    const answer = await this.context.stubs.commits.optimizeIndices(request, options);
    return answer.indices;
  }

  /**
   * Delete checkpoints, fragment records and staged files that are no longer needed. `olderThan`: the age in
   * milliseconds up to which files are kept; undefined: 7 days. `dryRun`: only report what would be deleted.
   */
  @takes({}, GARBAGE)
  async collectGarbage(
    options: CallOptions & { olderThan?: number; dryRun?: boolean; includeKept?: boolean; maxFiles?: number } = {},
  ): Promise<CollectGarbageResponse> {
    const { olderThan, dryRun = false, includeKept = false, maxFiles } = options;
    const aged = olderThan === undefined ? undefined : toDuration(olderThan);
    const request = { table: this.ref, dryRun, includeKept, ...given({ olderThan: aged, maxFiles }) };
    return this.context.stubs.commits.collectGarbage(request, options);
  }

  /** The reference to it in messages. */
  get ref(): { database: string; table: string } {
    return { database: this.database, table: this.name };
  }
}
