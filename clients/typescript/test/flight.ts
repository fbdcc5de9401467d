/** A client of function servers, which sends and reads Flight's messages as they are. */
import { create, fromBinary, toBinary, type DescMessage, type DescMethod, type MessageShape } from "@bufbuild/protobuf";
import { Client, credentials, Metadata, type ClientDuplexStream, type ClientReadableStream } from "@grpc/grpc-js";
import {
  Message,
  RecordBatchReader,
  tableToIPC,
  type RecordBatch,
  type Schema,
  type Table,
  type Vector,
} from "apache-arrow";

import {
  ActionSchema,
  EmptySchema,
  FlightDataSchema,
  FlightDescriptor_DescriptorType,
  FlightService,
  type FlightData,
} from "#gen/arrow/flight/protocol/Flight_pb.js";

/** A message of an Arrow stream. */
export interface Sent {
  dataHeader: Uint8Array;
  dataBody?: Uint8Array;
}

/** What a server says of a function. */
export interface Described {
  function: string;
  version: string;
  inputs: string;
  output: string;
  description?: string;
}

const LARGE = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };

/** Give the messages of a table: schema, dictionaries, batches. */
export function messages(table: Table): Sent[] {
  const whole = Buffer.from(tableToIPC(table, "stream"));
  const found = [];
  for (let at = 0; whole.readInt32LE(at + 4) > 0;) {
    const end = at + 8 + whole.readInt32LE(at + 4);
    const dataHeader = whole.subarray(at + 8, end);
    at = end + Message.decode(dataHeader).bodyLength;
    found.push({ dataHeader, dataBody: whole.subarray(end, at) });
  }
  return found;
}

/** Read messages back. */
export function read(parts: readonly FlightData[]): RecordBatch[] & { schema: Schema } {
  const bytes = parts.flatMap(({ dataHeader, dataBody }) => {
    const prefix = Buffer.alloc(8, 0xff);
    prefix.writeInt32LE(dataHeader.byteLength, 4);
    return [prefix, dataHeader, dataBody];
  });
  const reader = RecordBatchReader.from(bytes).open();
  const { schema } = reader;
  return Object.assign([...reader], { schema });
}

/** Calls a function server. */
export class FlightCaller {
  readonly #connection: Client;
  readonly #metadata = new Metadata();

  constructor(port: number, authorization?: string) {
    this.#connection = new Client(`127.0.0.1:${String(port)}`, credentials.createInsecure(), LARGE);
    if (authorization !== undefined) {
      this.#metadata.set("authorization", authorization);
    }
  }

  [Symbol.dispose](): void {
    this.#connection.close();
  }

  async actions(): Promise<string[]> {
    const found = await this.#all(FlightService.method.listActions, create(EmptySchema));
    return found.map(({ type }) => type);
  }

  async describe(type = "leman.function.v1.describe"): Promise<Described[]> {
    const found = await this.#all(FlightService.method.doAction, create(ActionSchema, { type }));
    return found.map(({ body }) => JSON.parse(Buffer.from(body).toString()) as Described);
  }

  /** Call a function whose version is 1; `told`: what else the command says, in place of what it should. */
  exchange(name: string, told: object | string = {}): Exchanged {
    const call = this.#connection.makeBidiStreamRequest(...codec(FlightService.method.doExchange), this.#metadata);
    return new Exchanged(
      call,
      typeof told === "string"
        ? told
        : JSON.stringify({ protocol: "leman.function.v1", function: name, version: "1", ...told }),
    );
  }

  async #all<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
  ): Promise<MessageShape<O>[]> {
    const call: ClientReadableStream<MessageShape<O>> = this.#connection.makeServerStreamRequest(
      ...codec(method),
      request,
      this.#metadata,
    );
    return (await call.toArray()) as MessageShape<O>[];
  }
}

/** A call: what is sent and answered, message by message. */
export class Exchanged {
  readonly call: ClientDuplexStream<FlightData, FlightData>;
  readonly #answers: AsyncIterator<FlightData>;
  readonly #command: string;
  #first = true;

  constructor(call: ClientDuplexStream<FlightData, FlightData>, command: string) {
    this.call = call;
    this.#command = command;
    call.on("error", () => undefined);
    this.#answers = call[Symbol.asyncIterator]() as AsyncIterator<FlightData>;
  }

  /** Send messages; the first one of the call tells which function it is for. `taken`: when the last one has gone out. */
  send(parts: readonly Sent[], taken?: () => void): void {
    for (const part of parts) {
      const type = FlightDescriptor_DescriptorType.CMD;
      const first = { flightDescriptor: { type, cmd: Buffer.from(this.#command) } };
      this.call.write(create(FlightDataSchema, { ...part, ...(this.#first && first) }), taken);
      this.#first = false;
    }
  }

  /** Wait for the next message; undefined: the call ended well. */
  async next(): Promise<FlightData | undefined> {
    const next = await this.#answers.next();
    return next.done === true ? undefined : next.value;
  }

  /** Send a table and give its answers: columns, or what a message says of a failure. */
  async answers(table: Table): Promise<{
    schema: Schema;
    columns: unknown[][];
    vectors: (Vector | null)[];
    failures: Record<string, string>[];
  }> {
    this.send(messages(table));
    this.call.end();
    const parts = [];
    for (let part = await this.next(); part !== undefined; part = await this.next()) {
      parts.push(part);
    }
    const failed = parts.filter(({ appMetadata }) => appMetadata.byteLength > 0);
    const found = read(parts.filter((part) => !failed.includes(part)));
    return {
      schema: found.schema,
      vectors: found.map((batch) => batch.getChild("value")),
      columns: found.map((batch) => [...(batch.getChild("value") ?? [])]),
      failures: failed.map(({ appMetadata }) => failureIn(appMetadata)),
    };
  }
}

/** Read what a message says of a failure. */
export function failureIn(appMetadata: Uint8Array): Record<string, string> {
  return (JSON.parse(Buffer.from(appMetadata).toString()) as { error: Record<string, string> }).error;
}

function codec<I extends DescMessage, O extends DescMessage>(
  method: DescMethod & { input: I; output: O },
): [string, (message: MessageShape<I>) => Buffer, (bytes: Buffer) => MessageShape<O>] {
  const path = `/${method.parent.typeName}/${method.name}`;
  return [path, (message) => Buffer.from(toBinary(method.input, message)), (bytes) => fromBinary(method.output, bytes)];
}
