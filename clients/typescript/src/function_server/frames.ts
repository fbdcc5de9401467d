/** Rows as Flight carries them: an Arrow message and its body, side by side. */
import { create } from "@bufbuild/protobuf";
import {
  Message,
  RecordBatchReader,
  RecordBatchStreamWriter,
  RecordBatch,
  Struct,
  makeData,
  type Data,
  type Schema,
} from "apache-arrow";

import { decodeSchema, encodeSchema, Sink } from "../arrow.js";
import { FlightDataSchema, type FlightData } from "../gen/arrow/flight/protocol/Flight_pb.js";

const PREFIX_BYTES = 8;

/** Decode the schema in a message. Throws if it is invalid. */
export function schemaOf({ dataHeader }: FlightData): Schema {
  return decodeSchema(encapsulated(dataHeader));
}

/** Reads the batches of a stream. */
export class BatchReader {
  readonly #schema: Uint8Array;

  /** `schema`: that of the function. Its column names replace those of the client. */
  constructor(schema: Schema) {
    this.#schema = encodeSchema(schema);
  }

  /** Decode a batch. Throws an Error that says what is wrong with it. */
  read({ dataHeader, dataBody }: FlightData): RecordBatch {
    if (dataHeader.byteLength === 0) {
      throw new Error("it has no rows");
    }
    const message = Message.decode(dataHeader);
    if (!message.isRecordBatch()) {
      throw new Error(message.isDictionaryBatch() ? "dictionaries are not read: send plain columns" : "it has no rows");
    }
    const { compression, buffers } = message.header();
    if (compression !== null) {
      throw new Error("compressed rows are not read: send them plain");
    }
    if (buffers.some(({ offset, length }) => offset < 0 || length < 0 || offset + length > dataBody.byteLength)) {
      throw new Error("it is shorter than it says");
    }
    const body = dataBody.subarray(0, message.bodyLength);
    const [batch] = RecordBatchReader.from([this.#schema, encapsulated(dataHeader), body]);
    if (batch === undefined) {
      throw new Error("it has no rows");
    }
    return batch;
  }
}

/** Encodes the results of a stream. */
export class BatchWriter {
  readonly #schema: Schema;
  readonly #sink = new Sink();
  readonly #writer = new RecordBatchStreamWriter({ autoDestroy: false });

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  /** Encode the schema, which comes first. */
  begin(): FlightData[] {
    this.#writer.reset(this.#sink, this.#schema);
    return this.#messages();
  }

  /** Encode a column as a batch, with its dictionary if it has one. */
  write(column: Data): FlightData[] {
    const type = new Struct(this.#schema.fields);
    const rows = makeData({ type, length: column.length, nullCount: 0, children: [column] });
    this.#writer.write(new RecordBatch(this.#schema, rows));
    return this.#messages();
  }

  #messages(): FlightData[] {
    const parts = this.#sink.taken();
    const whole = Buffer.concat(parts);
    const found: FlightData[] = [];
    for (let at = 0; at < whole.byteLength;) {
      const begin = at + PREFIX_BYTES;
      const end = begin + whole.readInt32LE(at + PREFIX_BYTES / 2);
      const dataHeader = whole.subarray(begin, end);
      at = end + Message.decode(dataHeader).bodyLength;
      found.push(create(FlightDataSchema, { dataHeader, dataBody: whole.subarray(end, at) }));
    }
    return found;
  }
}

/** Add what precedes an Arrow message in a stream of bytes: a marker, its length, and padding to 8 bytes. */
function encapsulated(header: Uint8Array): Uint8Array {
  const padded = Math.ceil(header.byteLength / PREFIX_BYTES) * PREFIX_BYTES;
  const whole = Buffer.alloc(PREFIX_BYTES + padded);
  whole.writeInt32LE(-1, 0);
  whole.writeInt32LE(padded, PREFIX_BYTES / 2);
  whole.set(header, PREFIX_BYTES);
  return whole;
}
