/** Does the cases of a run with the public surface of the client; see tests/conformance/cases/README.md. */
import { readFileSync } from "node:fs";
import { inspect } from "node:util";

import { connect, LemanError, type Client, type TokenSource } from "leman";

import { operations, type Step } from "./operations.js";
import { rpc } from "./stub_calls.js";

interface Connection {
  name: string;
  endpoint: string;
  token?: string;
  tokens?: string[];
  plaintext?: boolean;
  ca?: string;
  cert?: string;
  key?: string;
}

interface Told {
  step?: Step & { do: string; database: string; connection: Connection };
  outcome?: string;
  detail?: string;
}

/** The clients of one case, by the name of the connection. */
class Connections {
  readonly #open = new Map<string, Client>();

  async client(told: Connection): Promise<Client> {
    let found = this.#open.get(told.name);
    if (found === undefined) {
      const { endpoint, ca, cert, key, plaintext } = told;
      const tls = ca === undefined ? undefined : { ca, cert, key };
      found = await connect(endpoint, { token: tokenOf(told), tls, plaintext, onWarning: () => undefined });
      this.#open.set(told.name, found);
    }
    return found;
  }

  close(): void {
    for (const client of this.#open.values()) {
      client.close();
    }
  }
}

function tokenOf({ token, tokens }: Connection): string | TokenSource | undefined {
  if (tokens === undefined) {
    return token;
  }
  let asked = 0;
  return () => tokens[Math.min(asked++, tokens.length - 1)] ?? "";
}

async function result(step: NonNullable<Told["step"]>, connections: Connections): Promise<object> {
  try {
    const client = await connections.client(step.connection);
    if (step.do === "rpc") {
      return { value: await rpc(client, step) };
    }
    const operation = operations[step.do];
    if (operation === undefined) {
      throw new Error(`there is no operation ${step.do}`);
    }
    return { value: await operation(client.database(step.database), step) };
  } catch (error) {
    if (error instanceof LemanError && error.reason === "TYPE_NOT_READABLE") {
      return { skip: error.message };
    }
    return error instanceof LemanError ? { error: toldOf(error) } : { crash: inspect(error) };
  }
}

function toldOf(error: LemanError): object {
  const { code, reason, message, metadata, fields, retryDelay, jobId } = error;
  const told = { code, reason, message, metadata, fields, job: jobId };
  return retryDelay === undefined ? told : { ...told, retry_delay: retryDelay / 1000 };
}

async function run(control: string, name: string): Promise<object> {
  const connections = new Connections();
  const next = async (asked: object): Promise<Told> => {
    const body = JSON.stringify({ case: name, ...asked });
    const answer = await fetch(`${control}/next`, {
      method: "POST",
      body,
      headers: { "content-type": "application/json" },
    });
    return (await answer.json()) as Told;
  };
  try {
    let told = await next({});
    while (told.step !== undefined) {
      told = await next({ result: await result(told.step, connections) });
    }
    return { case: name, outcome: told.outcome, detail: told.detail ?? "" };
  } finally {
    connections.close();
  }
}

const [path] = process.argv.slice(2);
const { control, cases } = JSON.parse(readFileSync(path ?? "", "utf8")) as { control: string; cases: string[] };
for (const name of cases) {
  process.stdout.write(`${JSON.stringify(await run(control, name))}\n`);
}
