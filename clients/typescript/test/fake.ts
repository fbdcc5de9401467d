/** Services in the test's own process, which do what a test says. */
import {
  create,
  fromBinary,
  toBinary,
  type DescMessage,
  type DescService,
  type MessageInitShape,
} from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import {
  Metadata,
  Server,
  ServerCredentials,
  status,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { connect, type Client, type Code, type ConnectOptions } from "leman";
import {
  CatalogService,
  CommitService,
  DatabaseService,
  InfoService,
  JobService,
  PlannerService,
  TableService,
} from "leman/v1";

import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "#gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "#gen/google/rpc/status_pb.js";

const SERVICES = [
  CatalogService,
  CommitService,
  DatabaseService,
  InfoService,
  JobService,
  PlannerService,
  TableService,
];

/** A request as the generated code has it; tests look at what they sent. */

export type Request = any;
type Metas = Metadata;

/** What is done with calls, by method. A unary one gives its answer or throws a `refusal`. */
export interface Behaviour {
  unary?: Record<string, (request: Request, metadata: Metas) => object | Promise<object>>;
  streams?: Record<string, (call: ServerWritableStream<Request, object>) => void | Promise<void>>;
  uploads?: Record<string, (call: ServerReadableStream<Request, object>) => Promise<object>>;
}

/** Details of a refusal. */
export interface Details {
  reason?: string;
  retryDelayMs?: number;
  fields?: { field: string; description: string }[];
  metadata?: Record<string, string>;
}

/** Make the error that a service answers with. */
export function refusal(code: Code, details: Details = {}, message = "the fake says no"): Error {
  const packed = [];
  if (details.reason !== undefined) {
    const info = { reason: details.reason, domain: "leman", metadata: details.metadata ?? {} };
    packed.push(anyPack(ErrorInfoSchema, create(ErrorInfoSchema, info)));
  }
  if (details.retryDelayMs !== undefined) {
    const retryDelay = { seconds: 0n, nanos: details.retryDelayMs * 1e6 };
    packed.push(anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay })));
  }
  if (details.fields !== undefined) {
    packed.push(anyPack(BadRequestSchema, create(BadRequestSchema, { fieldViolations: details.fields })));
  }
  const metadata = new Metadata();
  if (packed.length > 0) {
    const told = create(StatusSchema, { code: status[code], message, details: packed });
    metadata.set("grpc-status-details-bin", Buffer.from(toBinary(StatusSchema, told)));
  }
  return Object.assign(new Error(message), { code: status[code], details: message, metadata });
}

function definition(service: DescService): ServiceDefinition {
  const methods = service.methods.map((method) => [
    method.name,
    {
      path: `/${service.typeName}/${method.name}`,
      requestStream: method.methodKind === "client_streaming",
      responseStream: method.methodKind === "server_streaming",
      requestSerialize: encoder(method.input),
      requestDeserialize: (bytes: Buffer) => fromBinary(method.input, bytes),
      responseSerialize: encoder(method.output),
      responseDeserialize: (bytes: Buffer) => fromBinary(method.output, bytes),
    },
  ]);
  return Object.fromEntries(methods) as ServiceDefinition;
}

function encoder(schema: DescMessage): (message: MessageInitShape<DescMessage>) => Buffer {
  return (message) => Buffer.from(toBinary(schema, create(schema, message)));
}

type Answer = (error: Error | null, value?: object) => void;

function implementation(service: DescService, behaviour: Behaviour): UntypedServiceImplementation {
  const made: UntypedServiceImplementation = {};
  for (const { name, methodKind } of service.methods) {
    if (methodKind === "unary") {
      made[name] = (call: ServerUnaryCall<Request, object>, answer: Answer) => {
        const known = behaviour.unary?.[name] ?? (name === "GetInfo" ? () => ({}) : notHere);
        answered(async () => Promise.resolve(known(call.request, call.metadata)), answer);
      };
    } else if (methodKind === "server_streaming") {
      made[name] = (call: ServerWritableStream<Request, object>) => {
        const known = behaviour.streams?.[name] ?? notHere;
        answered(
          async () => Promise.resolve(known(call)),
          (error) => error !== null && call.emit("error", error),
        );
      };
    } else {
      made[name] = (call: ServerReadableStream<Request, object>, answer: Answer) => {
        const known = behaviour.uploads?.[name] ?? notHere;
        answered(async () => known(call), answer);
      };
    }
  }
  return made;
}

function notHere(): never {
  throw refusal("UNIMPLEMENTED", {}, "the test did not say what is done here");
}

function answered(work: () => Promise<unknown>, answer: Answer): void {
  work().then(
    (value) => {
      answer(null, value ?? {});
    },
    (error: unknown) => {
      answer(error as Error);
    },
  );
}

/** Serve until the returned function is called; `port` 0: any. */
export async function serve(
  behaviour: Behaviour,
  port = 0,
  credentials = ServerCredentials.createInsecure(),
): Promise<{ endpoint: string; stop: () => void }> {
  const server = new Server();
  for (const service of SERVICES) {
    server.addService(definition(service), implementation(service, behaviour));
  }
  const bound = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${String(port)}`, credentials, (error, found) => {
      if (error === null) {
        resolve(found);
      } else {
        reject(error);
      }
    });
  });
  return {
    endpoint: `127.0.0.1:${String(bound)}`,
    stop: () => {
      server.forceShutdown();
    },
  };
}

/** Run a test with a client of services that behave so. */
export async function withServices(
  behaviour: Behaviour,
  test: (client: Client) => Promise<void>,
  options: ConnectOptions = {},
): Promise<void> {
  const { endpoint, stop } = await serve(behaviour);
  try {
    await using client = await connect(endpoint, options);
    await test(client);
  } finally {
    stop();
  }
}
