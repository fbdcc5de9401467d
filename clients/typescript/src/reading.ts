import type { MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import { RecordBatchReader, Table, type RecordBatch, type Schema } from "apache-arrow";

import { either, flag, integer, names, text, version, type Kinds } from "./arguments.js";
import { unreadable } from "./arrow.js";
import type { Context } from "./context.js";
import { LemanError } from "./errors.js";
import { TableService, type ReadRowsRequestSchema, type ReadRowsResponseSchema } from "./gen/leman/v1/tables_pb.js";
import { policyOf } from "./policy.js";
import type { Retrying } from "./retrying.js";
import { CALL, type CallOptions, type Scope } from "./scope.js";
import { takes } from "./takes.js";
import { toInt64 } from "./values.js";
import { ending } from "./wire.js";

/** Options of reading rows. */
export interface ReadOptions extends CallOptions {
  /** The columns, in this order; a field of a struct is written with dots. Undefined: all columns that queries show. */
  columns?: readonly string[] | undefined;
  /** A SQL condition: only rows for which it is true. */
  where?: string | undefined;
  limit?: number | undefined;
  /** Skip this number of rows, counted after `where`. */
  offset?: number | undefined;
  /** The version, by number or tag; undefined: the latest. */
  version?: number | bigint | string | undefined;
  /** The largest number of rows in a batch; undefined: 8,192. */
  batchSize?: number | undefined;
  /** Add a last column `_rowid` with row ids. */
  withRowId?: boolean | undefined;
  /** Add a last column `_rowaddr` with row addresses. */
  withRowAddress?: boolean | undefined;
}

/** The kinds of a read's options. */
export const READ: Kinds<ReadOptions> = {
  ...CALL,
  columns: names,
  where: text,
  limit: integer,
  offset: integer,
  version: either(version, text),
  batchSize: integer,
  withRowId: flag,
  withRowAddress: flag,
};

type Answers = AsyncIterator<MessageShape<typeof ReadRowsResponseSchema>>;

/** One attempt: its bytes, and the batches in them. */
class Attempt {
  /** The error that interrupted the call. apache-arrow would take the interruption for the end of the rows. */
  failed: LemanError | undefined;
  version = 0n;
  readonly #answers: Answers;
  #batches: AsyncIterator<RecordBatch> | undefined;

  constructor(answers: Answers) {
    this.#answers = answers;
  }

  /** Wait for the schema; undefined if the call was interrupted first. */
  async open(): Promise<Schema | undefined> {
    return this.#unlessCut(async () => {
      const reader = await RecordBatchReader.from(this.#bytes());
      await reader.open();
      this.#batches = reader[Symbol.asyncIterator]() as AsyncIterator<RecordBatch>;
      return this.failed === undefined ? reader.schema : undefined;
    });
  }

  /** Return the next batch; undefined after the last one, or if the call was interrupted. */
  async next(): Promise<RecordBatch | undefined> {
    return this.#unlessCut(async () => {
      const next = await this.#batches?.next();
      return next === undefined || next.done === true ? undefined : next.value;
    });
  }

  async end(): Promise<void> {
    await this.#answers.return?.();
  }

  async #unlessCut<T>(read: () => Promise<T | undefined>): Promise<T | undefined> {
    try {
      return await read();
    } catch (error) {
      if (this.failed !== undefined) {
        return undefined;
      }
      throw error instanceof LemanError ? error : unreadable(error);
    }
  }

  async *#bytes(): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for (;;) {
        const next = await this.#answers.next();
        if (next.done === true) {
          return;
        }
        this.version ||= next.value.version;
        yield next.value.arrowIpc;
      }
    } catch (error) {
      this.failed = error instanceof LemanError ? error : unreadable(error);
    }
  }
}

/**
 * The rows of one version of a table or view, one batch at a time. Iterate over them once; a second iteration throws
 * FAILED_PRECONDITION. The stream holds a few megabytes in memory, whatever the size of the table and however slowly
 * you read. If the call is interrupted, it continues after the last row. Leaving the iteration ends the call, and so
 * does `close`.
 */
export class RowStream implements AsyncIterable<RecordBatch> {
  readonly #context: Context;
  readonly #request: MessageInitShape<typeof ReadRowsRequestSchema> & { offset: bigint };
  readonly #scope: Scope;
  readonly #retrying: Retrying;
  #limit: bigint | undefined;
  #attempt: Attempt | undefined;
  #opening: Promise<{ schema: Schema; version: bigint }> | undefined;
  #begun = false;
  #closed = false;

  /** @internal */
  constructor(context: Context, table: { database: string; table: string }, options: ReadOptions) {
    this.#context = context;
    this.#limit = options.limit === undefined ? undefined : toInt64("limit", options.limit);
    this.#request = {
      table,
      columns: [...(options.columns ?? [])],
      where: options.where ?? "",
      offset: toInt64("offset", options.offset ?? 0),
      at: versionOf(options.version),
      batchSize: options.batchSize ?? 0,
      withRowId: options.withRowId ?? false,
      withRowAddress: options.withRowAddress ?? false,
    };
    this.#scope = context.calls.scope(options);
    this.#retrying = context.calls.retrying(policyOf(TableService.method.readRows, false));
  }

  /** Wait for the schema of all batches. */
  @takes()
  async schema(): Promise<Schema> {
    return (await this.#opened()).schema;
  }

  /** Wait for the version of the table that is read. */
  @takes()
  async version(): Promise<number> {
    return Number((await this.#opened()).version);
  }

  /** Read the remaining rows into a table. */
  @takes()
  async toTable(): Promise<Table> {
    const batches: RecordBatch[] = [];
    for await (const batch of this) {
      batches.push(batch);
    }
    return new Table(await this.schema(), batches);
  }

  /** End the call, even before all rows were read. */
  @takes()
  async close(): Promise<void> {
    this.#closed = true;
    await this.#attempt?.end();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<RecordBatch, void, undefined> {
    this.#begin();
    try {
      const { version } = await this.#opened();
      while (!this.#closed) {
        const batch = await this.#next();
        if (batch === undefined) {
          return;
        }
        if (batch.numRows === 0) {
          continue;
        }
        this.#retrying.reset();
        this.#request.offset += BigInt(batch.numRows);
        this.#request.at = { case: "version", value: version };
        this.#limit = this.#limit === undefined ? undefined : this.#limit - BigInt(batch.numRows);
        yield batch;
      }
    } finally {
      await this.close();
    }
  }

  #begin(): void {
    if (this.#begun || this.#closed) {
      throw spent();
    }
    this.#begun = true;
  }

  /** Return the next batch that has rows; undefined after the last one. */
  async #next(): Promise<RecordBatch | undefined> {
    while (this.#limit !== 0n && this.#attempt !== undefined) {
      const batch = await this.#attempt.next();
      if (batch !== undefined && batch.numRows > 0) {
        return batch;
      }
      if (this.#attempt.failed !== undefined) {
        await this.#pause(this.#attempt.failed);
        await this.#open();
      } else if (batch === undefined) {
        return undefined;
      }
    }
    return undefined;
  }

  async #opened(): Promise<{ schema: Schema; version: bigint }> {
    if (this.#opening === undefined && this.#closed) {
      throw spent();
    }
    this.#opening ??= this.#open();
    return this.#opening;
  }

  async #open(): Promise<{ schema: Schema; version: bigint }> {
    for (;;) {
      await this.#attempt?.end();
      const request = this.#limit === undefined ? this.#request : { ...this.#request, limit: this.#limit };
      const answers = this.#context.calls.stream(TableService.method.readRows, request, this.#scope);
      const attempt = new Attempt(answers);
      this.#attempt = attempt;
      const schema = await attempt.open();
      if (schema !== undefined) {
        return { schema, version: attempt.version };
      }
      await this.#pause(attempt.failed ?? new LemanError({ code: "DATA_LOSS", message: "the answer has no rows" }));
    }
  }

  /** Pause before a retry after an interruption. Throws if a retry is not worthwhile. */
  async #pause(failed: LemanError): Promise<void> {
    if (!(await this.#retrying.again(failed, undefined, this.#scope))) {
      throw ending(failed, this.#scope);
    }
  }
}

function spent(): LemanError {
  const message = "these rows were iterated over before, or closed: they come once, so call read again";
  return new LemanError({ code: "FAILED_PRECONDITION", message });
}

type At = { case: "version"; value: bigint } | { case: "tag"; value: string } | { case: undefined };

function versionOf(version: number | bigint | string | undefined): At {
  if (version === undefined) {
    return { case: undefined };
  }
  return typeof version === "string"
    ? { case: "tag", value: version }
    : { case: "version", value: toInt64("version", version) };
}
