import { create } from "@bufbuild/protobuf";
import { status, type ServerDuplexStream } from "@grpc/grpc-js";
import type { DataType } from "apache-arrow";

import {
  FlightDataSchema,
  FlightDescriptor_DescriptorType,
  type FlightData,
} from "../gen/arrow/flight/protocol/Flight_pb.js";
import type { Pace } from "./admission.js";
import { BatchReader, BatchWriter, schemaOf } from "./frames.js";
import { mismatch, type Prepared } from "./functions.js";
import { columnOf, emptyColumn } from "./values.js";

/** The name of the protocol, which the first message of a call contains. */
export const PROTOCOL = "leman.function.v1";

/** Ends a call with a gRPC status. */
export class Refusal extends Error {
  readonly details: string;

  constructor(
    readonly code: status,
    message: string,
  ) {
    super(message);
    this.details = message;
  }
}

type Call = ServerDuplexStream<FlightData, FlightData>;

/** The called function, with the agreed types. */
interface Agreed {
  readonly served: Prepared;
  readonly reader: BatchReader;
  readonly writer: BatchWriter;
}

/** One call: computes each batch of a client before it reads the next one. */
export class Exchange {
  readonly #call: Call;
  readonly #functions: ReadonlyMap<string, Prepared>;
  readonly #pace: Pace;
  readonly #aborting = new AbortController();
  #called: Prepared | undefined;
  #agreed: Agreed | undefined;
  #work: Promise<void> = Promise.resolve();
  #working = false;
  #stopping = false;
  #ended = false;

  constructor(call: Call, functions: ReadonlyMap<string, Prepared>, pace: Pace) {
    this.#call = call;
    this.#functions = functions;
    this.#pace = pace;
  }

  /** Respond until the client has sent all batches, or has disconnected. */
  async run(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#call.on("close", resolve);
      this.#call.on("cancelled", () => {
        this.#aborting.abort(new Error("nobody waits for the answer any more"));
        resolve();
      });
      this.#call.on("data", (message: FlightData) => {
        this.#work = this.#taken(message);
      });
      this.#call.on("end", () => {
        void this.#work.then(() => {
          this.#end();
        });
      });
    });
    await this.#work;
  }

  /** Finish the batch that is being computed, and no other. */
  stop(): void {
    this.#stopping = true;
    if (!this.#working) {
      this.#end(stopped());
    }
  }

  /** Abort the batch that is being computed. */
  abort(): void {
    this.#aborting.abort(stopped());
    this.#end(stopped());
  }

  async #taken(message: FlightData): Promise<void> {
    if (this.#ended) {
      return;
    }
    this.#working = true;
    try {
      for (const answer of await this.#answers(message)) {
        await this.#send(answer);
      }
    } catch (error) {
      this.#end(error instanceof Refusal ? error : new Refusal(status.INTERNAL, String(error)));
      return;
    } finally {
      this.#working = false;
    }
    if (this.#stopping) {
      this.#end(stopped());
    } else {
      this.#pace.next();
    }
  }

  async #answers(message: FlightData): Promise<FlightData[]> {
    this.#called ??= this.#find(message);
    if (this.#agreed === undefined) {
      this.#agreed = agree(this.#called, message);
      return this.#agreed?.writer.begin() ?? [];
    }
    const { served, reader, writer } = this.#agreed;
    const type = served.output.fields[0]?.type as DataType | undefined;
    if (type === undefined) {
      throw new Refusal(status.INTERNAL, `${served.name} has no output`);
    }
    const batch = refusing(`a batch for ${served.name} cannot be read`, () => reader.read(message));
    if (batch.numRows === 0) {
      return writer.write(emptyColumn(type));
    }
    try {
      const answer = await served.call(batch, this.#aborting.signal);
      return writer.write(columnOf(answer, type, batch.numRows));
    } catch (error) {
      return [failure(error)];
    }
  }

  #find(message: FlightData): Prepared {
    const { name, version } = asked(message);
    const served = this.#functions.get(name);
    if (served === undefined) {
      const known = [...this.#functions.keys()].join(", ");
      throw new Refusal(status.NOT_FOUND, `there is no function ${JSON.stringify(name)} here, but: ${known}`);
    }
    if (served.version !== version) {
      const said = `${name} has version ${served.version} here, and ${JSON.stringify(version)} is asked for`;
      throw new Refusal(status.FAILED_PRECONDITION, said);
    }
    return served;
  }

  async #send(message: FlightData): Promise<void> {
    if (this.#ended || this.#call.cancelled) {
      return;
    }
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#call.off("close", done);
        resolve();
      };
      this.#call.on("close", done);
      this.#call.write(message, done); // waits until the client takes it, so that results do not pile up
    });
  }

  #end(refusal?: Refusal): void {
    if (this.#ended || this.#call.cancelled) {
      return;
    }
    this.#ended = true;
    if (refusal === undefined) {
      this.#call.end();
    } else {
      this.#call.emit("error", refusal);
    }
  }
}

function stopped(): Refusal {
  return new Refusal(status.UNAVAILABLE, "the function server stops");
}

/** Read which function is called. */
function asked({ flightDescriptor }: FlightData): { name: string; version: string } {
  const wanted = `a call begins with a command: {"protocol": "${PROTOCOL}", "function": "…", "version": "…"}`;
  if (flightDescriptor?.type !== FlightDescriptor_DescriptorType.CMD) {
    throw new Refusal(status.INVALID_ARGUMENT, wanted);
  }
  const text = Buffer.from(flightDescriptor.cmd).toString();
  const command = refusing(wanted, () => JSON.parse(text) as Record<string, unknown> | null);
  const { protocol, function: name, version } = command ?? {};
  if (protocol !== PROTOCOL || typeof name !== "string" || typeof version !== "string") {
    throw new Refusal(status.INVALID_ARGUMENT, wanted);
  }
  return { name, version };
}

/** Agree on types; undefined if the schema only comes with the next message, as pyarrow sends it. */
function agree(served: Prepared, message: FlightData): Agreed | undefined {
  if (message.dataHeader.byteLength === 0) {
    return undefined;
  }
  const { name, inputs, output } = served;
  const wrong = refusing(`the schema for ${name} cannot be read`, () => mismatch(inputs, schemaOf(message)));
  if (wrong !== undefined) {
    throw new Refusal(status.INVALID_ARGUMENT, `${name} cannot be called with these columns: ${wrong}`);
  }
  return { served, reader: new BatchReader(inputs), writer: new BatchWriter(output) };
}

function refusing<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Refusal(status.INVALID_ARGUMENT, `${what}: ${why}`);
  }
}

/** Make the message for a batch on which the function failed. */
function failure(thrown: unknown): FlightData {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown));
  const type = error.name === "Error" ? error.constructor.name : error.name;
  const told = { error: { type, message: error.message, traceback: error.stack ?? "" } };
  return create(FlightDataSchema, { appMetadata: Buffer.from(JSON.stringify(told)) });
}
