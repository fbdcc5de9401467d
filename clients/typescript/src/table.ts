import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Schema } from "apache-arrow";

import { encodeSchema, Rows, type RowSource } from "./arrow.js";
import { newColumn, newColumns } from "./columns.js";
import { requestIdOf, type MutationOptions } from "./context.js";
import { checkpointOf, type ErrorPolicy } from "./functions.js";
import {
  Reason,
  RowState as RowStateEnum,
  type BackfillSpecSchema,
  type ExplainPlanResponse,
  type GetRowStatesResponse,
} from "./gen/leman/v1/planner_pb.js";
import { TableService, type PlainColumnAlterationSchema } from "./gen/leman/v1/tables_pb.js";
import { Job, type JobOptions } from "./jobs.js";
import { mergedOf, mergeHeader, messages, type Merged, type MergeRules, type Message } from "./merging.js";
import { listed } from "./paging.js";
import { forMutations } from "./policy.js";
import { previewOf, type Preview, type PreviewOptions } from "./preview.js";
import { Query } from "./query.js";
import { Relation } from "./relation.js";
import type { CallOptions } from "./scope.js";
import { given, toDuration, toInt64, udfRef } from "./values.js";

/**
 * What computes a column: a SQL expression over the table's columns, or a registered function, `name` or `name@version`,
 * with the columns that take the place of its inputs.
 */
export type ColumnSource =
  { sql: string; errorPolicy?: ErrorPolicy | undefined } | { function: string; inputs?: readonly string[] | undefined };

/** What a backfill computes, and how; what is left out is chosen by the services. */
export interface PlanOptions {
  /** SQL: only rows for which it is true are computed. */
  where?: string | undefined;
  /** Another registered function than the column's own, `name` or `name@version`. */
  udf?: string | undefined;
  /** Compute from an earlier version of the table, by number or tag. */
  readVersion?: number | bigint | string | undefined;
  /** Worker processes at the most. */
  concurrency?: number | undefined;
  /** Rows between checkpoints. */
  checkpoint?: { size?: number | undefined; min?: number | undefined; max?: number | undefined } | undefined;
  /** Rows in a unit of work. */
  taskSize?: number | undefined;
  /** Fragments between commits. */
  commitGranularity?: number | undefined;
  /** At most so many fragments, for a sample run. */
  numFrags?: number | undefined;
  /** Threads in each worker process that call the function at the same time. */
  intraApplierConcurrency?: number | undefined;
  /** Only rows that are marked as failed. */
  failedOnly?: boolean | undefined;
  /** Units of so many fragments are handed out in turn. */
  taskShuffleDiversity?: number | undefined;
  /** Bring the indexes on the column up to date afterwards. */
  optimizeIndices?: boolean | undefined;
}

/** What a backfill would do, and why. */
export interface Plan {
  readonly rowsTotal: number;
  readonly rowsReused: number;
  readonly rowsToCompute: number;
  /** Rows by reason, such as `MISSING` or `UDF_CHANGED`. */
  readonly reasons: Readonly<Record<string, { fragments: number; rows: number }>>;
  /** One sentence for a person. */
  readonly summary: string;
  /** All that was answered. */
  readonly message: ExplainPlanResponse;
}

/** What became of rows that were added. */
export interface Appended {
  /** The version of the table in which they are. */
  readonly version: number;
  readonly rows: number;
}

/** The state of a row of a computed column. */
export type RowState = "COMPUTED" | "NULL" | "FAILED" | "NOT_COMPUTED";

/** A table of a database. Holds no state: every answer is of now. */
export class Table extends Relation {
  /**
   * Add rows, all or none, in one version of the table. Columns that they do not have become NULL. Holds a batch at a
   * time, and takes the next one when the services have taken it.
   */
  async append(
    rows: RowSource,
    options: MutationOptions & { maxRowsPerFragment?: number | undefined; schema?: Schema | undefined } = {},
  ): Promise<Appended> {
    return this.appendRows(new Rows(rows, options.schema), options.schema, options);
  }

  /** @internal */
  async appendRows(
    rows: Rows,
    schema: Schema | undefined,
    options: MutationOptions & { maxRowsPerFragment?: number | undefined },
  ): Promise<Appended> {
    const header = {
      table: this.ref,
      requestId: requestIdOf(options),
      maxRowsPerFragment: toInt64("maxRowsPerFragment", options.maxRowsPerFragment ?? 0),
    };
    const { calls } = this.context;
    const open = (): AsyncGenerator<Message<typeof header>> => messages(header, rows, schema);
    const retrying = calls.retrying(rows.repeatable ? forMutations : undefined);
    const untilDone = { signal: options.signal, timeout: options.timeout ?? A_DAY };
    const answer = await calls.clientStream(TableService.method.appendRows, open, untilDone, retrying);
    return { version: Number(answer.version), rows: Number(answer.rowsAdded) };
  }

  /** Delete the rows for which a SQL condition is true (`true`: all of them), and tell how many went. */
  async delete(where: string, options?: MutationOptions): Promise<number> {
    const request = { table: this.ref, where, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.deleteRows(request, options)).rowsDeleted);
  }

  /**
   * Give columns of the rows for which a SQL condition is true (`true`: all of them) other values, and tell how many rows
   * that were. `set`: SQL over the row as it was, such as `n + 1`, by column. Computed columns that rest on one of them
   * become NULL in these rows.
   */
  async update(where: string, set: Readonly<Record<string, string>>, options?: MutationOptions): Promise<number> {
    const request = { table: this.ref, where, expressions: set, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.updateRows(request, options)).rowsUpdated);
  }

  /**
   * Bring rows together with those of the table that have the same values in the columns `on`, all of it or nothing, in one
   * version of the table.
   */
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
    const retrying = calls.retrying(source.repeatable ? forMutations : undefined);
    const untilDone = { signal: options.signal, timeout: options.timeout ?? A_DAY };
    const answer = await calls.clientStream(TableService.method.mergeRows, open, untilDone, retrying);
    return mergedOf(answer);
  }

  /** Add computed columns, all NULL, without writing data; `backfill` computes them. Gives the table's version then. */
  async addColumns(columns: Readonly<Record<string, ColumnSource>>, options?: MutationOptions): Promise<number> {
    const request = { table: this.ref, columns: newColumns(columns), requestId: requestIdOf(options) };
    return Number((await this.context.stubs.catalog.addColumns(request, options)).version);
  }

  /**
   * Give computed columns other functions. Their values are stale until the next backfill; with `keepValues` they stay
   * current, and the new function computes only what failed or was never computed.
   */
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
  async addPlainColumns(schema: Schema, options?: MutationOptions): Promise<number> {
    const columns = { case: "schema" as const, value: encodeSchema(schema) };
    const request = { table: this.ref, columns, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.addPlainColumns(request, options)).version);
  }

  /** Give columns other names, types, or the right to be NULL. `force`: although others read them. */
  async alterPlainColumns(
    columns: readonly MessageInitShape<typeof PlainColumnAlterationSchema>[],
    options?: MutationOptions & { force?: boolean | undefined },
  ): Promise<number> {
    const force = options?.force ?? false;
    const request = { table: this.ref, columns: [...columns], force, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.alterPlainColumns(request, options)).version);
  }

  /** Give a column another name. */
  async renameColumn(
    name: string,
    newName: string,
    options?: MutationOptions & { force?: boolean | undefined },
  ): Promise<number> {
    return this.alterPlainColumns([{ name, newName }], options);
  }

  /** Drop columns, computed ones too. `force`: although others read them, or jobs compute them. */
  async dropColumns(
    columns: readonly string[],
    options?: MutationOptions & { force?: boolean | undefined },
  ): Promise<number> {
    const force = options?.force ?? false;
    const request = { table: this.ref, columns: [...columns], force, requestId: requestIdOf(options) };
    return Number((await this.context.stubs.tables.dropColumns(request, options)).version);
  }

  /** Tell what a backfill would do, and why; changes nothing. */
  async plan(column: string, options: PlanOptions & CallOptions & { maxDecisions?: number } = {}): Promise<Plan> {
    const request = { spec: this.#spec(column, options), ...given({ maxDecisions: options.maxDecisions }) };
    const message = await this.context.stubs.planner.explainPlan(request, options);
    const reasons = message.reasons.map(
      ({ reason, fragments, rows }) => [Reason[reason], { fragments, rows: Number(rows) }] as const,
    );
    return {
      rowsTotal: Number(message.rowsTotal),
      rowsReused: Number(message.rowsReused),
      rowsToCompute: Number(message.rowsToCompute),
      reasons: Object.fromEntries(reasons),
      summary: message.summary,
      message,
    };
  }

  /**
   * Try a function on a few rows, and write nothing: that of a computed column, by its name, or another one. What it fails on
   * is said at the rows.
   */
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

  /** Compute the missing and stale values of a column, as a job: returns when that has begun. */
  async backfill(column: string, options: PlanOptions & JobOptions = {}): Promise<Job> {
    const answer = await this.context.stubs.jobs.createJob(
      {
        request: { case: "backfill", value: this.#spec(column, options) },
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
  async rowStates(column: string, options?: CallOptions): Promise<GetRowStatesResponse> {
    return this.context.stubs.planner.getRowStates({ table: this.ref, column }, options);
  }

  /** Addresses (fragment id << 32 | physical offset) of the rows of a computed column that are in a state. */
  rowsInState(
    column: string,
    state: RowState,
    options?: CallOptions & { limit?: number | undefined },
  ): AsyncGenerator<bigint, void, undefined> {
    const { planner } = this.context.stubs;
    const request = { table: this.ref, column, state: RowStateEnum[state] };
    const call = (page: object) => planner.getRowStates({ ...request, ...page }, options);
    return listed(call, ({ rowAddresses }) => rowAddresses, options?.limit);
  }

  /** Begin a query of which a view can be made: `table.query().where("n > 1").select(["n"])`. */
  query(): Query {
    return new Query(this.ref);
  }

  #spec(column: string, options: PlanOptions): MessageInitShape<typeof BackfillSpecSchema> {
    const { concurrency, commitGranularity, numFrags, intraApplierConcurrency, taskShuffleDiversity } = options;
    const { udf, readVersion, taskSize, checkpoint } = options;
    return {
      table: this.ref,
      column,
      where: options.where ?? "",
      failedOnly: options.failedOnly ?? false,
      optimizeIndices: options.optimizeIndices ?? false,
      ...given({ concurrency, commitGranularity, numFrags, intraApplierConcurrency, taskShuffleDiversity }),
      ...(udf !== undefined && { udf: udfRef(udf) }),
      ...(taskSize !== undefined && { taskSize: toInt64("taskSize", taskSize) }),
      ...(checkpoint !== undefined && { checkpoint: checkpointOf(checkpoint) }),
      ...(readVersion !== undefined && { readFrom: readFromOf(readVersion) }),
    };
  }
}

const A_DAY = 86_400_000;

type ReadFrom = { case: "readVersion"; value: bigint } | { case: "readTag"; value: string };

function readFromOf(version: number | bigint | string): ReadFrom {
  return typeof version === "string"
    ? { case: "readTag", value: version }
    : { case: "readVersion", value: toInt64("readVersion", version) };
}
