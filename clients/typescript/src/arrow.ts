import type { Schema } from "apache-arrow";
import { AsyncByteQueue, RecordBatch, RecordBatchReader, RecordBatchStreamWriter, Table } from "apache-arrow";

import { check, type Kind } from "./arguments.js";
import { invalid, LemanError } from "./errors.js";
import { asyncIterator, type AnyIterable } from "./iterables.js";

/**
 * Rows of a call: a table, batches, or an iterable or a function that provides batches. If the services become
 * unavailable during the call, rows of a table, an array or a function are sent again. Those of an iterable can be read
 * only once, so the call fails.
 */
export type RowSource =
  | Table
  | RecordBatch
  | readonly RecordBatch[]
  | Iterable<RecordBatch>
  | AsyncIterable<RecordBatch>
  | (() => Iterable<RecordBatch> | AsyncIterable<RecordBatch>);

type Batches = AnyIterable<RecordBatch>;

export const ROWS: Kind = {
  told: "an Arrow table, record batches, or a function that gives them",
  admits: (value) =>
    typeof value === "function" ||
    (typeof value === "object" && value !== null && (Symbol.iterator in value || Symbol.asyncIterator in value)) ||
    value instanceof RecordBatch,
};
const BATCH: Kind = { told: "made of Arrow record batches", admits: (value) => value instanceof RecordBatch };

/** Rows that each attempt of a call opens once. */
export class Rows {
  readonly #open: () => Batches;
  /** Whether the rows can be opened again for another attempt. */
  readonly repeatable: boolean;
  readonly #schema: Schema | undefined;
  #peeked: { schema: Schema; rest: Batches } | undefined;

  /** Throws INVALID_ARGUMENT if the source provides no rows. */
  constructor(source: RowSource, schema?: Schema) {
    check("rows", source, ROWS);
    this.repeatable =
      typeof source === "function" || Array.isArray(source) || source instanceof Table || source instanceof RecordBatch;
    this.#open = typeof source === "function" ? source : () => batchesOf(source);
    const [first] = source instanceof Table || source instanceof RecordBatch ? [source] : [];
    this.#schema = schema ?? first?.schema;
  }

  /** Return the schema: the given one, or else that of the first batch. */
  async schema(): Promise<Schema> {
    if (this.#schema !== undefined) {
      return this.#schema;
    }
    const iterator = asyncIterator(this.#open());
    const first = await iterator.next();
    if (first.done === true) {
      throw invalid("rows", "there is no batch, so no schema: give the option `schema`");
    }
    const batch: RecordBatch = first.value;
    check("rows", batch, BATCH);
    this.#peeked = { schema: batch.schema, rest: following(batch, iterator) };
    return batch.schema;
  }

  /** Open the rows at the first batch. */
  open(): Batches {
    const rest = this.#peeked?.rest;
    this.#peeked = undefined;
    return rest ?? this.#open();
  }
}

function batchesOf(source: Exclude<RowSource, () => Batches>): Batches {
  if (source instanceof Table) {
    return source.batches;
  }
  return source instanceof RecordBatch ? [source] : source;
}

async function* following(
  first: RecordBatch,
  rest: Iterator<RecordBatch> | AsyncIterator<RecordBatch>,
): AsyncGenerator<RecordBatch, void, undefined> {
  try {
    yield first;
    for (;;) {
      const next = await rest.next();
      if (next.done === true) {
        return;
      }
      yield next.value;
    }
  } finally {
    await rest.return?.();
  }
}

/** Buffers what is written until it is taken. */
export class Sink extends AsyncByteQueue {
  #parts: Uint8Array[] = [];

  override write(value: Parameters<AsyncByteQueue["write"]>[0]): void {
    const view = value as ArrayBufferView;
    this.#parts.push(new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
  }

  taken(): Uint8Array[] {
    const parts = this.#parts;
    this.#parts = [];
    return parts;
  }
}

const PIECE_BYTES = 1 << 20;
const BATCH_BYTES = 16 << 20;

/** Encode batches as an Arrow IPC stream, in pieces of one megabyte. Holds one batch at a time. */
export async function* encode(
  batches: Batches,
  schema: Schema | undefined,
): AsyncGenerator<Uint8Array, void, undefined> {
  const sink = new Sink();
  const writer = new RecordBatchStreamWriter({ autoDestroy: false });
  let begun: Schema | undefined;
  const begin = (found: Schema): void => {
    writer.reset(sink, found);
    begun = found;
  };
  if (schema !== undefined) {
    begin(schema);
  }
  for await (const batch of batches) {
    check("rows", batch, BATCH);
    if (begun === undefined) {
      begin(batch.schema);
    } else if (!sameFields(begun, batch.schema)) {
      throw invalid("rows", `a batch has other columns (${String(batch.schema)}) than the first (${String(begun)})`);
    }
    const most = Math.max(1, Math.floor((BATCH_BYTES * batch.numRows) / Math.max(1, batch.data.byteLength)));
    for (let at = 0; at < batch.numRows; at += most) {
      const part = most >= batch.numRows ? batch : batch.slice(at, at + most);
      writer.write(new RecordBatch(begun ?? batch.schema, part.data));
      yield* pieces(sink.taken());
    }
  }
  writer.finish(); // the end-of-stream marker
  yield* pieces(sink.taken());
}

function sameFields(a: Schema, b: Schema): boolean {
  const told = (schema: Schema): string => schema.fields.map(({ name, type }) => `${name}: ${String(type)}`).join("\n");
  return a === b || told(a) === told(b);
}

function* pieces(parts: Uint8Array[]): Generator<Uint8Array, void, undefined> {
  const whole = Buffer.concat(parts);
  for (let at = 0; at < whole.length; at += PIECE_BYTES) {
    yield whole.subarray(at, at + PIECE_BYTES);
  }
}

/** Encode a schema as an Arrow IPC message. */
export function encodeSchema(schema: Schema): Uint8Array {
  const sink = new Sink();
  new RecordBatchStreamWriter({ autoDestroy: false }).reset(sink, schema);
  return Buffer.concat(sink.taken());
}

/** Decode a schema from an Arrow IPC message. */
export function decodeSchema(bytes: Uint8Array): Schema {
  try {
    return RecordBatchReader.from(bytes).open().schema;
  } catch (error) {
    throw unreadable(error);
  }
}

/** Make the error for data that apache-arrow cannot read. */
export function unreadable(cause: unknown): LemanError {
  const message = cause instanceof Error ? cause.message : String(cause);
  const unknownType = /unrecognized|not implemented|unsupported/i.test(message);
  return new LemanError({
    code: unknownType ? "UNIMPLEMENTED" : "DATA_LOSS",
    reason: unknownType ? "TYPE_NOT_READABLE" : undefined,
    message: unknownType
      ? `apache-arrow cannot read these rows: ${message}; leave the column out`
      : `the rows cannot be read: ${message}`,
    cause,
  });
}
