import { create, fromBinary, toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import {
  Server,
  status,
  type ServerCredentials,
  type ServerDuplexStream,
  type ServerWritableStream,
  type ServiceDefinition,
} from "@grpc/grpc-js";

import { callback, checkOptions, duration, either, object, PEM, text, type Kinds } from "../arguments.js";
import { invalid, LemanError } from "../errors.js";
import {
  ActionTypeSchema,
  FlightService,
  ResultSchema,
  type Action,
  type ActionType,
  type FlightData,
  type Result,
} from "../gen/arrow/flight/protocol/Flight_pb.js";
import { methodName } from "../policy.js";
import { takes } from "../takes.js";
import { Admission, type TokenCheck } from "./admission.js";
import { Exchange, PROTOCOL, Refusal } from "./exchange.js";
import { prepared, type Prepared, type ServedFunction } from "./functions.js";
import { ServerCertificates, type ServerTlsOptions } from "./server_certificates.js";

export type { ServerTlsOptions };

/** Options of a function server. */
export interface ServeOptions {
  /** The port; 0: any free port, see `FunctionServer.port`; undefined: 7815. */
  port?: number | undefined;
  /** The address to listen on; undefined: `127.0.0.1`, which only this machine reaches. `0.0.0.0`: all of IPv4. */
  host?: string | undefined;
  /**
   * The token that callers must send (`authorization: Bearer …`), or a function that checks it; undefined: no token is
   * required.
   */
  token?: string | TokenCheck | undefined;
  tls?: ServerTlsOptions | undefined;
}

/**
 * The kinds of a server's options. They are checked because a mistyped `token` option would leave the server open to
 * everyone.
 */
const SERVE: Kinds<ServeOptions> = {
  port: { told: "a whole number from 0 to 65535", admits: (port) => Number.isInteger(port) && isPort(port as number) },
  host: text,
  token: either(text, callback),
  tls: object<ServerTlsOptions>({ cert: PEM, key: PEM, clientCa: PEM }, "cert", "key"),
};

const DEFAULT_PORT = 7815;
const ACTION = `${PROTOCOL}.describe`;
const MAX_MESSAGE = (256 << 20) + (1 << 20);
const CHANNEL = {
  "grpc.max_receive_message_length": MAX_MESSAGE,
  "grpc.max_send_message_length": MAX_MESSAGE,
  "grpc.keepalive_time_ms": 30_000, // closes connections of clients that vanished
  "grpc.keepalive_timeout_ms": 10_000,
};
const GRACE = 30_000;
const LAST_WORDS = 1000;

/**
 * Serve functions until the server is closed. Throws INVALID_ARGUMENT for options that are unknown or of a wrong type.
 */
export async function serve(functions: readonly ServedFunction[], options: ServeOptions = {}): Promise<FunctionServer> {
  checkOptions(options, SERVE);
  const known = new Map<string, Prepared>();
  for (const wanted of functions.map(prepared)) {
    if (known.has(wanted.name)) {
      throw invalid("functions", `there are two functions with the name ${wanted.name}`);
    }
    known.set(wanted.name, wanted);
  }
  if (options.token === "") {
    throw invalid("token", "the token is empty: leave it out where anyone may call");
  }
  const { host = "127.0.0.1", port = DEFAULT_PORT } = options;
  const admission = new Admission(options.token);
  const server = new Server({ ...CHANNEL, interceptors: [admission.interceptor] });
  const address = `${host.includes(":") ? `[${host}]` : host}:${String(port)}`;
  const certificates = new ServerCertificates(options.tls);
  try {
    const found = await bound(server, address, certificates.credentials);
    return new FunctionServer(server, found, known, admission, certificates);
  } catch (failed) {
    certificates.close();
    throw failed;
  }
}

/** A server of functions, made by `serve`; `await using` closes it. */
export class FunctionServer implements AsyncDisposable {
  readonly #server: Server;
  readonly #functions: ReadonlyMap<string, Prepared>;
  readonly #exchanges = new Set<Exchange>();
  readonly #certificates: ServerCertificates;
  #closing: Promise<void> | undefined;

  /** @internal */
  constructor(
    server: Server,
    readonly port: number,
    functions: ReadonlyMap<string, Prepared>,
    admission: Admission,
    certificates: ServerCertificates,
  ) {
    this.#server = server;
    this.#certificates = certificates;
    this.#functions = functions;
    server.addService(definition(), {
      ListActions: (call: ServerWritableStream<object, ActionType>) => {
        call.write(create(ActionTypeSchema, { type: ACTION, description: "what functions there are" }));
        call.end();
      },
      DoAction: (call: ServerWritableStream<Action, Result>) => {
        this.#act(call);
      },
      DoExchange: (call: ServerDuplexStream<FlightData, FlightData>) => {
        void this.#exchange(call, admission);
      },
    });
  }

  /** The version of each function, by name. */
  get versions(): Readonly<Record<string, string>> {
    return Object.fromEntries([...this.#functions.values()].map(({ name, version }) => [name, version]));
  }

  /**
   * Accept no more calls, finish the batches that are being computed, and end. Batches that are not finished after
   * `grace` milliseconds (undefined: half a minute) are aborted.
   */
  @takes({}, { grace: duration })
  async close(options: { grace?: number } = {}): Promise<void> {
    this.#closing ??= this.#closed(options.grace ?? GRACE);
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #closed(grace: number): Promise<void> {
    this.#certificates.close();
    for (const exchange of this.#exchanges) {
      exchange.stop();
    }
    await new Promise<void>((resolve) => {
      const abort = (): void => {
        for (const exchange of this.#exchanges) {
          exchange.abort();
        }
      };
      const cut = (): void => {
        this.#server.forceShutdown();
        resolve();
      };
      const timers = [setTimeout(abort, grace), setTimeout(cut, grace + LAST_WORDS)];
      this.#server.tryShutdown(() => {
        timers.forEach(clearTimeout);
        resolve();
      });
    });
  }

  #act(call: ServerWritableStream<Action, Result>): void {
    if (call.request.type !== ACTION) {
      const message = `there is no action ${JSON.stringify(call.request.type)} here, but: ${ACTION}`;
      call.emit("error", new Refusal(status.UNIMPLEMENTED, message));
      return;
    }
    for (const { description } of this.#functions.values()) {
      call.write(create(ResultSchema, { body: description }));
    }
    call.end();
  }

  async #exchange(call: ServerDuplexStream<FlightData, FlightData>, admission: Admission): Promise<void> {
    const exchange = new Exchange(call, this.#functions, admission.paceOf(call.metadata));
    this.#exchanges.add(exchange);
    if (this.#closing !== undefined) {
      exchange.stop();
    }
    await exchange.run();
    this.#exchanges.delete(exchange);
  }
}

async function bound(server: Server, address: string, credentials: ServerCredentials): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(address, credentials, (cause, port) => {
      if (cause === null) {
        resolve(port);
      } else {
        const message = `cannot listen on ${address}: ${cause.message}`;
        reject(new LemanError({ code: "UNAVAILABLE", message, cause }));
      }
    });
  });
}

function isPort(port: number): boolean {
  return port >= 0 && port <= 65_535;
}

/** Arrow Flight as a gRPC service. Methods without a handler return UNIMPLEMENTED. */
function definition(): ServiceDefinition {
  const methods = FlightService.methods.map((method) => [
    method.name,
    {
      path: `/${methodName(method)}`,
      requestStream: method.methodKind === "bidi_streaming",
      responseStream: method.methodKind !== "unary",
      requestSerialize: encoder(method.input),
      requestDeserialize: (bytes: Buffer) => fromBinary(method.input, bytes),
      responseSerialize: encoder(method.output),
      responseDeserialize: (bytes: Buffer) => fromBinary(method.output, bytes),
    },
  ]);
  return Object.fromEntries(methods) as ServiceDefinition;
}

function encoder<S extends DescMessage>(schema: S): (message: MessageShape<S>) => Buffer {
  return (message) => {
    const bytes = toBinary(schema, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}
