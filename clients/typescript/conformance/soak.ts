/**
 * Works with services that restart again and again, by the public surface of the client: see "Restarts" in
 * tests/conformance/cases/README.md. It is given the path of a file, and told on its standard input what to do.
 */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { inspect } from "node:util";

import { Int64, Table as ArrowTable, vectorFromArray } from "apache-arrow";
import { collect, connect, stateOf, type Client, type Job, type Table } from "leman";

interface Told {
  endpoints: string[];
  token: string;
  database: string;
  rows: number;
}

interface Watch {
  sequences: number[];
  events: number[];
  missing: boolean;
  end: string;
}

const say = (what: object): void => {
  process.stdout.write(`${JSON.stringify(what)}\n`);
};

/** Rounds of work, each over another service. */
class Soak {
  readonly #told: Told;
  readonly #clients: readonly Client[];
  #rounds = 0;
  #stopping = false;
  #working: Promise<void> | undefined;

  constructor(told: Told, clients: readonly Client[]) {
    this.#told = told;
    this.#clients = clients;
  }

  /** Begin round after round, until it is told to rest. */
  work(): void {
    this.#stopping = false;
    this.#working = this.#roundAfterRound().catch((error: unknown) => {
      process.stdout.write(`${JSON.stringify({ failed: `round ${String(this.#rounds)}: ${inspect(error)}` })}\n`, () =>
        process.exit(1),
      );
    });
  }

  async #roundAfterRound(): Promise<void> {
    do {
      say({ round: await this.#round() });
      this.#rounds += 1;
    } while (!this.#stopping);
  }

  /** End with the round at hand, and use each connection. */
  async rest(): Promise<void> {
    this.#stopping = true;
    await this.#working;
    for (const client of this.#clients) {
      await client.info();
    }
  }

  /**
   * Append rows, have columns of them computed, by one job that is made in the usual way and by one that is asked for
   * twice, cancel a third job, watch all three, list them, and read all rows.
   */
  async #round(): Promise<object> {
    const number = this.#rounds;
    const database = this.#clients[number % this.#clients.length]?.database(this.#told.database);
    if (database === undefined) {
      throw new Error("no endpoint was given");
    }
    const lines = database.table("lines");
    const first = number * this.#told.rows;
    const ids = Array.from({ length: this.#told.rows }, (_, row) => BigInt(first + row));
    await lines.append(new ArrowTable({ id: vectorFromArray(ids, new Int64()) }));
    const labels = { round: String(number) };
    const usual = await lines.backfill("a", { labels });
    const requestId = `twice-${String(number)}`;
    const twice = await lines.backfill("b", { labels, requestId });
    const again = await lines.backfill("b", { labels, requestId });
    const cancelled = await database.table("endless").backfill("c", { labels });
    const jobs = await Promise.all([
      watched("usual", usual),
      watched("twice", twice),
      watched("cancelled", cancelled, async () => cancelled.cancel()),
    ]);
    const listed = (await collect(database.jobs({ labels }))).map(({ jobId }) => jobId);
    jobs[1] = { ...jobs[1], again: again.id };
    return { number, jobs, listed, sums: await sums(lines) };
  }
}

/** Watch a job to its end, and again. */
async function watched(name: string, job: Job, whenRunning?: () => Promise<unknown>): Promise<object> {
  const first = await watch(job, whenRunning);
  const second = await watch(job);
  const ended = await job.info();
  return { name, job: job.id, state: stateOf(ended), attempt: ended.attempt, first, second };
}

async function watch(job: Job, whenRunning?: () => Promise<unknown>): Promise<Watch> {
  const found: Watch = { sequences: [], events: [], missing: false, end: "" };
  let waited = whenRunning === undefined;
  for await (const { state, events, sequence, eventsMissing } of job.watch()) {
    found.sequences.push(Number(sequence));
    found.events.push(...events.map((event) => Number(event.sequence)));
    found.missing ||= eventsMissing;
    found.end = state;
    if (!waited && state === "RUNNING") {
      waited = true;
      await whenRunning?.();
    }
  }
  return found;
}

/** Read all rows, and add up each column. */
async function sums(table: Table): Promise<Record<string, number>> {
  const found: Record<string, number> = { rows: 0, id: 0, a: 0, b: 0 };
  for await (const batch of table.read({ columns: ["id", "a", "b"] })) {
    found.rows = (found.rows ?? 0) + batch.numRows;
    for (const { name } of batch.schema.fields) {
      for (const value of (batch.getChild(name) ?? []) as Iterable<bigint | null>) {
        found[name] = (found[name] ?? 0) + Number(value ?? 0n);
      }
    }
  }
  return found;
}

const [path] = process.argv.slice(2);
const told = JSON.parse(readFileSync(path ?? "", "utf8")) as Told;
const clients = await Promise.all(told.endpoints.map(async (endpoint) => connect(endpoint, { token: told.token })));
const soak = new Soak(told, clients);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "work") {
    soak.work();
  } else if (line === "rest") {
    await soak.rest();
    say({ resting: { resources: process.getActiveResourcesInfo().length } });
  } else {
    throw new Error(`it is not known what ${line} means`);
  }
}
for (const client of clients) {
  client.close();
}
say({ closed: {} }); // and nothing that it left keeps the process alive
