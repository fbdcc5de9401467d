import type {
  DescMessage,
  DescMethod,
  DescMethodClientStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";

import { object, type Fields, type Kind } from "./arguments.js";
import type { Calls } from "./calls.js";
import { requestIdOf } from "./context.js";
import { CatalogService } from "./gen/leman/v1/catalog_pb.js";
import { CommitService } from "./gen/leman/v1/commit_pb.js";
import { DatabaseService } from "./gen/leman/v1/databases_pb.js";
import { InfoService } from "./gen/leman/v1/info_pb.js";
import { JobService } from "./gen/leman/v1/jobs_pb.js";
import { PlannerService } from "./gen/leman/v1/planner_pb.js";
import { TableService } from "./gen/leman/v1/tables_pb.js";
import { policyOf } from "./policy.js";
import { CALL, type CallOptions } from "./scope.js";
import { guarded } from "./takes.js";

/** The generated calls of a service. */
export type Stub<S extends DescService> = {
  [K in keyof S["method"]]: S["method"][K] extends DescMethodUnary<infer I, infer O>
    ? (request: MessageInitShape<I>, options?: CallOptions) => Promise<MessageShape<O>>
    : S["method"][K] extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageInitShape<I>, options?: CallOptions) => AsyncGenerator<MessageShape<O>, void, undefined>
      : S["method"][K] extends DescMethodClientStreaming<infer I, infer O>
        ? (
            requests: Iterable<MessageInitShape<I>> | AsyncIterable<MessageInitShape<I>>,
            options?: CallOptions,
          ) => Promise<MessageShape<O>>
        : never;
};

/** A stub for each service. */
export interface Stubs {
  readonly catalog: Stub<typeof CatalogService>;
  readonly commits: Stub<typeof CommitService>;
  readonly databases: Stub<typeof DatabaseService>;
  readonly info: Stub<typeof InfoService>;
  readonly jobs: Stub<typeof JobService>;
  readonly planner: Stub<typeof PlannerService>;
  readonly tables: Stub<typeof TableService>;
}

/** Make a stub for each service. `strict` stubs refuse unknown options and unknown fields of requests. */
export function stubs(calls: Calls, strict: boolean): Stubs {
  const stub = <S extends DescService>(service: S): Stub<S> => stubOf(service, calls, strict);
  return {
    catalog: stub(CatalogService),
    commits: stub(CommitService),
    databases: stub(DatabaseService),
    info: stub(InfoService),
    jobs: stub(JobService),
    planner: stub(PlannerService),
    tables: stub(TableService),
  };
}

function stubOf<S extends DescService>(service: S, calls: Calls, strict: boolean): Stub<S> {
  const made: Record<string, unknown> = {};
  for (const method of service.methods) {
    const call = invoker(method, calls);
    made[method.localName] = strict ? guarded(method.localName, call, sentBy(method), CALL) : call;
  }
  return made as Stub<S>;
}

type Init = MessageInitShape<DescMessage>;

/** Set a request id in a mutation that has none, so that it is applied once even if it is retried. */
function identified(schema: DescMessage, request: Init): Init {
  const { requestId } = request as { requestId?: string };
  return schema.field.requestId === undefined || (requestId ?? "") !== ""
    ? request
    : { ...request, requestId: requestIdOf(undefined) };
}

const anything: Kind = { told: "anything", admits: () => true };
const requests: Kind = {
  told: "what requests are iterated over",
  admits: (value) =>
    typeof value === "object" && value !== null && (Symbol.iterator in value || Symbol.asyncIterator in value),
};

/** Return the kinds of a call's arguments. */
function sentBy({ methodKind, input }: DescMethod): Fields {
  if (methodKind === "client_streaming") {
    return { requests };
  }
  const names = ["$typeName", "$unknown", ...input.members.map(({ localName }) => localName)];
  return { request: object(Object.fromEntries(names.map((name) => [name, anything]))) };
}

function invoker(method: DescMethod, calls: Calls): (given: never, options?: CallOptions) => unknown {
  switch (method.methodKind) {
    case "unary":
      return async (request: Init, options?: CallOptions) =>
        calls.unary(method as DescMethodUnary, identified(method.input, request), options);
    case "server_streaming":
      return (request: Init, options?: CallOptions) =>
        calls.stream(method as DescMethodServerStreaming, request, calls.scope(options));
    case "client_streaming":
      return async (requests: Iterable<Init> | AsyncIterable<Init>, options?: CallOptions) => {
        const policy = Array.isArray(requests) ? policyOf(method, false) : undefined; // iterables: read only once
        const retrying = calls.retrying(policy);
        return calls.clientStream(method as DescMethodClientStreaming, () => requests, options, retrying);
      };
    case "bidi_streaming":
      throw new Error(`${method.name} streams both ways, which no call of the API does`);
  }
}
