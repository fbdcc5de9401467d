import {
  fromJson,
  toJson,
  type DescMessage,
  type DescMethod,
  type DescService,
  type JsonValue,
  type Message,
} from "@bufbuild/protobuf";
import type { CallOptions, Client, Stubs } from "leman";
import {
  CatalogService,
  CommitService,
  DatabaseService,
  InfoService,
  JobService,
  PlannerService,
  TableService,
} from "leman/v1";

import type { Step } from "./operations.js";

const services: Record<string, [DescService, keyof Stubs]> = {
  CatalogService: [CatalogService, "catalog"],
  CommitService: [CommitService, "commits"],
  DatabaseService: [DatabaseService, "databases"],
  InfoService: [InfoService, "info"],
  JobService: [JobService, "jobs"],
  PlannerService: [PlannerService, "planner"],
  TableService: [TableService, "tables"],
};

type Call = (request: unknown, options: CallOptions) => Promise<Message> | AsyncGenerator<Message>;

interface Given {
  method: string;
  request?: JsonValue;
  requests?: JsonValue[];
  take?: number;
  cancel_after?: number;
}

/** Make a call by the stubs, and take its answers. */
export async function rpc(client: Client, step: Step): Promise<{ responses: JsonValue[] }> {
  const given = step.with as unknown as Given;
  const [method, call] = found(client, given.method);
  const cancelling = new AbortController();
  const seconds = given.cancel_after;
  const timer =
    seconds === undefined
      ? undefined
      : setTimeout(() => {
          cancelling.abort();
        }, seconds * 1000);
  const timeout = step.timeout === undefined ? undefined : step.timeout * 1000;
  try {
    const answers = call(requestOf(method, given), { signal: cancelling.signal, timeout });
    const taken = answers instanceof Promise ? [await answers] : await takenOf(answers, given.take);
    return { responses: taken.map((answer) => toJson(method.output, answer)) };
  } finally {
    clearTimeout(timer);
  }
}

function found(client: Client, name: string): [DescMethod & { output: DescMessage }, Call] {
  const [serviceName = "", methodName = ""] = name.split("/");
  const [service, stub] = services[serviceName] ?? [];
  const method = service?.methods.find((known) => known.name === methodName);
  if (method === undefined || stub === undefined) {
    throw new Error(`there is no method ${name}`);
  }
  const calls = client.stubs[stub] as unknown as Record<string, Call>;
  return [method, calls[method.localName] as Call];
}

function requestOf(method: DescMethod, given: Given): unknown {
  const parse = (json: JsonValue): Message => fromJson(method.input, json);
  return given.requests === undefined ? parse(given.request ?? {}) : given.requests.map(parse);
}

async function takenOf(answers: AsyncGenerator<Message>, most = Number.POSITIVE_INFINITY): Promise<Message[]> {
  const taken: Message[] = [];
  for await (const answer of answers) {
    taken.push(answer);
    if (taken.length >= most) {
      break;
    }
  }
  return taken;
}
