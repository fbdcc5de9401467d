import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Schema } from "apache-arrow";

import { appendRows, type Appended } from "./appending.js";
import { choice, either, flag, integer, list, names, record, schema, strings, text, whole } from "./arguments.js";
import { encodeSchema, ROWS, Rows, type RowSource } from "./arrow.js";
import { newColumn, newColumns } from "./columns.js";
import { FORCE, MUTATION, requestIdOf, type ForceOptions, type MutationOptions } from "./context.js";
import type { ErrorPolicy } from "./functions.js";
import { RowState as RowStateEnum, type GetRowStatesResponse } from "./gen/leman/v1/planner_pb.js";
import { TableService, type PlainColumnAlterationSchema } from "./gen/leman/v1/tables_pb.js";
import { JOB, type JobOptions } from "./job_options.js";
import { Job } from "./jobs.js";
import { MERGE_RULES, mergedOf, mergeHeader, messages, type Merged, type MergeRules, type Message } from "./merging.js";
import { LIST, listed, type ListOptions } from "./paging.js";
import { backfillSpec, PLAN, planOf, readFromOf, type Plan, type PlanOptions } from "./planning.js";
import { forUploads } from "./policy.js";
import { PREVIEW, previewOf, type Preview, type PreviewOptions } from "./preview.js";
import { Query } from "./query.js";
import { Relation } from "./relation.js";
import { CALL, type CallOptions } from "./scope.js";
import { takes } from "./takes.js";
import { given, toDuration } from "./values.js";

/**
 * What computes a column: a SQL expression over the table's columns, or a registered function, `name` or
 * `name@version`, with the columns to use as its inputs.
 */
export type ColumnSource =
  { sql: string; errorPolicy?: ErrorPolicy | undefined } | { function: string; inputs?: readonly string[] | undefined };

/** The state of a row of a computed column. */
export type RowState = (typeof STATES)[number];

const STATES = ["COMPUTED", "NULL", "FAILED", "NOT_COMPUTED"] as const;

const COLUMNS = { columns: record };
const COLUMN = { column: text };

/** A handle for a table of a database. It holds no state: each call returns the current state. */
export class Table extends Relation {
  /**
   * Add rows in one new version of the table: all of them or, after an error, none. Columns that are missing from the
   * rows become NULL. Holds one batch at a time, and takes the next one when the services have received it.
   */
  @takes({ rows: ROWS }, { ...MUTATION, maxRowsPerFragment: whole, schema })
  async append(
    rows: RowSource,
    options: MutationOptions & { maxRowsPerFragment?: number | undefined; schema?: Schema | undefined } = {},
  ): Promise<Appended> {
    return appendRows(this.context, this.ref, new Rows(rows, options.schema), options.schema, options);
  }

  /** Delete the rows for which a SQL condition is true (`true`: all rows), and return how many were deleted. */
  @takes({ where: text }, MUTATION)
  async delete(where: string, options?: MutationOptions): Promise<number> {
    const request = { table: this.ref, where, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.deleteRows(request, options)).rowsDeleted);
  }

  /**
   * Change values in the rows for which a SQL condition is true (`true`: all rows), and return how many rows these
   * were. `set` has one SQL expression per column, such as `n + 1`, evaluated on the row before the update. In these
   * rows, computed columns that depend on a changed column become NULL.
   */
  @takes({ where: text, set: strings }, MUTATION)
  async update(where: string, set: Readonly<Record<string, string>>, options?: MutationOptions): Promise<number> {
    const request = { table: this.ref, where, expressions: set, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.updateRows(request, options)).rowsUpdated);
  }

  /**
   * Match the sent rows with rows of the table that have the same values in the columns `on`, and apply the rules to
   * them. Makes all changes in one new version of the table or, after an error, none.
   */
  @takes({ on: either(text, names), rows: ROWS, rules: MERGE_RULES }, { ...MUTATION, schema })
  async merge(
    on: string | readonly string[],
    rows: RowSource,
    rules: MergeRules,
    options: MutationOptions & { schema?: Schema | undefined } = {},
  ): Promise<Merged> {
    const header = { ...mergeHeader(on, rules), table: this.ref, requestId: requestIdOf(options) };
    const { calls } = this.context;
    const source = new Rows(rows, options.schema);
    const open = (): AsyncGenerator<Message<typeof header>> => messages(header, source, options.schema);
    const retrying = calls.retrying(source.repeatable ? forUploads : undefined);
    const answer = await calls.clientStream(TableService.method.mergeRows, open, options, retrying, A_DAY);
    return mergedOf(answer);
  }

  /**
   * Add computed columns, all NULL, without writing data; `backfill` computes them. Returns the new version of the
   * table.
   */
  @takes(COLUMNS, MUTATION)
  async addColumns(columns: Readonly<Record<string, ColumnSource>>, options?: MutationOptions): Promise<number> {
    const request = { table: this.ref, columns: newColumns(columns), requestId: requestIdOf(options) };
    return Number((await this.context.stubs.catalog.addColumns(request, options)).version);
  }

  /**
   * Change the functions of computed columns. Their values are stale until the next backfill. With `keepValues` they
   * stay current, and the new function computes only rows that failed or were never computed.
   */
  @takes(COLUMNS, { ...MUTATION, keepValues: flag })
  async alterColumns(
    columns: Readonly<Record<string, ColumnSource>>,
    options?: MutationOptions & { keepValues?: boolean | undefined },
  ): Promise<number> {
    const keepValues = options?.keepValues ?? false;
    const altered = newColumns(columns).map((column) => ({ column, keepValues }));
    const request = { table: this.ref, columns: altered, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.catalog.alterColumns(request, options)).version);
  }

  /** Add columns that no function computes, all NULL. */
  @takes({ schema }, MUTATION)
  async addPlainColumns(schema: Schema, options?: MutationOptions): Promise<number> {
    const columns = { case: "schema" as const, value: encodeSchema(schema) };
    const request = { table: this.ref, columns, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.addPlainColumns(request, options)).version);
  }

  /** Change names, types or nullability of columns. With `force` also if computed columns or views read them. */
  @takes({ columns: list(record) }, FORCE)
  async alterPlainColumns(
    columns: readonly MessageInitShape<typeof PlainColumnAlterationSchema>[],
    options?: ForceOptions,
  ): Promise<number> {
    const force = options?.force ?? false;
    const request = { table: this.ref, columns: [...columns], force, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.alterPlainColumns(request, options)).version);
  }

  /** Rename a column. */
  @takes({ name: text, newName: text }, FORCE)
  async renameColumn(name: string, newName: string, options?: ForceOptions): Promise<number> {
    return this.alterPlainColumns([{ name, newName }], options);
  }

  /**
   * Drop columns, also computed ones. With `force` also if computed columns or views read them, or jobs compute them.
   */
  @takes({ columns: names }, FORCE)
  async dropColumns(columns: readonly string[], options?: ForceOptions): Promise<number> {
    const force = options?.force ?? false;
    const request = { table: this.ref, columns: [...columns], force, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.dropColumns(request, options)).version);
  }

  /** Return what a backfill would do, and why, without running it. */
  @takes(COLUMN, { ...PLAN, ...CALL, maxDecisions: integer })
  async plan(column: string, options: PlanOptions & CallOptions & { maxDecisions?: number } = {}): Promise<Plan> {
    const request = { spec: backfillSpec(this.ref, column, options), ...given({ maxDecisions: options.maxDecisions }) };
    return planOf(await this.context.stubs.planner.explainPlan(request, options));
  }

  /**
   * Compute a column for a few rows and write nothing. The function is that of a computed column, given by its name, or
   * another one. Errors of the function are in the results of their rows.
   */
  @takes({ source: either(text, record) }, { ...PREVIEW, ...CALL })
  async preview(source: string | ColumnSource, options: PreviewOptions & CallOptions = {}): Promise<Preview> {
    const { rows, concurrency, readVersion, timeLimit } = options;
    const told = typeof source === "string" ? { column: source } : newColumn("", source);
    const request = {
      ...told,
      table: this.ref,
      where: options.where ?? "",
      env: { ...options.env },
      ...given({ rows, concurrency }),
      ...(timeLimit !== undefined && { timeout: toDuration(timeLimit) }),
      ...(readVersion !== undefined && { version: readFromOf(readVersion) }),
    };
    return previewOf(await this.context.stubs.jobs.previewFunction(request, options));
  }

  /** Start a job that computes the missing and stale values of a column. Returns when the job has been accepted. */
  @takes(COLUMN, { ...PLAN, ...JOB })
  async backfill(column: string, options: PlanOptions & JobOptions = {}): Promise<Job> {
    const answer = await this.context.stubs.jobs.createJob(
      {
        request: { case: "backfill", value: backfillSpec(this.ref, column, options) },
        requestId: requestIdOf(options),
        labels: { ...options.labels },
        priority: options.priority ?? 0,
        env: { ...options.env },
      },
      options,
    );
    return new Job(this.context, this.database, answer.job?.jobId ?? "");
  }

  /** Count the rows of a computed column by state. */
  @takes(COLUMN, CALL)
  async rowStates(column: string, options?: CallOptions): Promise<GetRowStatesResponse> {
    return this.context.stubs.planner.getRowStates({ table: this.ref, column }, options);
  }

  /** List the addresses (fragment id << 32 | physical offset) of the rows of a computed column that are in a state. */
  @takes({ ...COLUMN, state: choice(...STATES) }, LIST)
  rowsInState(column: string, state: RowState, options?: ListOptions): AsyncGenerator<bigint, void, undefined> {
    const { planner } = this.context.stubs;
    const request = { table: this.ref, column, state: RowStateEnum[state] };
    const call = (page: object) => planner.getRowStates({ ...request, ...page }, options);
    return listed(call, ({ rowAddresses }) => rowAddresses, options?.limit);
  }

  /** Return a query over this table, from which a view can be created: `table.query().where("n > 1").select(["n"])`. */
  @takes()
  query(): Query {
    return new Query(this.ref);
  }
}

const A_DAY = 86_400_000;
