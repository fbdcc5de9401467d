import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

import { collect, failureOf, kindOf, type JobUpdate } from "leman";
import { Job_State, JobEvent_Kind } from "leman/v1";

import { refusal, serve, withServices, type Request } from "./fake.js";

const EVENTS = Array.from({ length: 6 }, (_, i) => ({ sequence: BigInt(i + 1), kind: JobEvent_Kind.COMMIT }));

/** A job that tells an event with each message, and says after how many a stream of it is cut. */
function job(
  cuts: number[],
  asked: bigint[],
  end = Job_State.DONE,
): { streams: Record<string, (call: Request) => void> } {
  const WatchJob = (call: Request): void => {
    asked.push(call.request.afterSequence as bigint);
    const after = Number(call.request.afterSequence);
    const most = after + (cuts.shift() ?? EVENTS.length);
    for (const event of EVENTS.slice(after, most)) {
      const last = event.sequence === BigInt(EVENTS.length);
      const state = last ? end : Job_State.RUNNING;
      const told = { jobId: "j", state, progress: { rowsCommitted: event.sequence } };
      const again = EVENTS.slice(Math.max(0, Number(event.sequence) - 2), Number(event.sequence)); // some twice
      call.write({ sequence: event.sequence, job: told, events: again });
    }
    if (most < EVENTS.length) {
      setTimeout(() => call.emit("error", refusal("UNAVAILABLE", { reason: "DRAINING" })), 20);
    } else {
      call.end();
    }
  };
  return { streams: { WatchJob } };
}

describe("a watch", () => {
  it("goes on where it was cut, and tells each event once", async () => {
    const asked: bigint[] = [];
    await withServices(job([2, 1, 0], asked), async (client) => {
      const updates: JobUpdate[] = [];
      for await (const update of client.database("lake").job("j").watch()) {
        updates.push(update);
      }
      const told = updates.flatMap(({ events }) => events.map(({ sequence }) => sequence));
      assert.deepEqual(told, [1n, 2n, 3n, 4n, 5n, 6n]);
      assert.equal(updates.at(-1)?.state, "DONE");
      assert.equal(kindOf(updates[0]?.events[0] ?? assert.fail()), "COMMIT");
    });
    assert.deepEqual(asked, [0n, 2n, 3n, 3n]);
  });

  it("begins behind what was seen before, and ends its call where it is left", async () => {
    let cancelled = false;
    const WatchJob = (call: Request): void => {
      call.on("cancelled", () => (cancelled = true));
      call.write({
        sequence: (call.request.afterSequence as bigint) + 1n,
        job: { jobId: "j", state: Job_State.RUNNING },
      });
    };
    await withServices({ streams: { WatchJob } }, async (client) => {
      for await (const { sequence } of client.database("lake").job("j").watch({ after: 41n })) {
        assert.equal(sequence, 42n);
        break;
      }
      while (!cancelled) {
        await pause(5);
      }
    });
  });

  it("ends with its signal, after its time, and with the client", async () => {
    const WatchJob = (call: Request): void => {
      call.write({ sequence: 1n, job: { jobId: "j", state: Job_State.RUNNING } });
    };
    const drain = async (updates: AsyncIterable<JobUpdate>): Promise<void> => {
      for await (const update of updates) {
        assert.equal(update.state, "RUNNING");
      }
    };
    await withServices({ streams: { WatchJob } }, async (client) => {
      const watched = client.database("lake").job("j");
      await assert.rejects(drain(watched.watch({ timeout: 100 })), { code: "DEADLINE_EXCEEDED" });
      await assert.rejects(watched.wait({ signal: AbortSignal.timeout(100) }), { code: "DEADLINE_EXCEEDED" });
      const controller = new AbortController();
      setTimeout(() => {
        controller.abort();
      }, 50);
      await assert.rejects(drain(watched.watch({ signal: controller.signal })), { code: "CANCELLED" });
      setTimeout(() => {
        client.close();
      }, 50);
      await assert.rejects(drain(watched.watch()), { code: "CANCELLED", reason: "CLOSED" });
    });
  });

  it("of which a proxy cut the stream goes on, and not where the services give a reason", async () => {
    const cut = "Received RST_STREAM with code 2 (Internal server error)";
    const done = { sequence: 1n, job: { jobId: "j1", state: Job_State.DONE } };
    const failures = [refusal("INTERNAL", {}, cut), refusal("UNKNOWN", {}, cut)];
    const WatchJob = (call: Request): void => {
      const failure = failures.shift();
      if (failure !== undefined) {
        call.emit("error", failure);
        return;
      }
      call.write(done);
      call.end();
    };
    await withServices({ streams: { WatchJob } }, async (client) => {
      const job = client.database("lake").job("j1");
      assert.equal((await job.wait()).state, Job_State.DONE);
      assert.equal(failures.length, 0);
      for (const last of [
        refusal("INTERNAL", { reason: "INTERNAL_BUG" }, cut),
        refusal("INTERNAL", {}, "no message"),
      ]) {
        failures.push(last);
        await assert.rejects(job.wait(), { code: "INTERNAL", message: last.message });
      }
    });
  });

  it("and a call that the services cancel without a reason go on, where it was not their caller", async () => {
    const ended = refusal("CANCELLED", {}, "");
    const watches = [ended, ended];
    const lists = [ended];
    const WatchJob = (call: Request): void => {
      const failure = watches.shift();
      if (failure !== undefined) {
        call.write({ sequence: 1n, job: { jobId: "j", state: Job_State.RUNNING } });
        setTimeout(() => call.emit("error", failure), 20);
        return;
      }
      call.write({ sequence: 2n, job: { jobId: "j", state: Job_State.DONE } });
      call.end();
    };
    const ListTables = (): object => {
      const failure = lists.shift();
      if (failure !== undefined) {
        throw failure;
      }
      return { tables: ["docs"] };
    };
    await withServices(
      { streams: { WatchJob }, unary: { ListTables } },
      async (client) => {
        const db = client.database("lake");
        assert.equal((await db.job("j").wait()).state, Job_State.DONE);
        assert.deepEqual(await collect(db.tables()), ["docs"]);
        lists.push(...Array.from({ length: 50 }, () => ended));
        await assert.rejects(collect(db.tables()), { code: "UNAVAILABLE", message: /ended the call by themselves/ });
        lists.length = 0;
        const because = refusal("CANCELLED", { reason: "JOB_CANCELLED" }, "somebody did");
        lists.push(because);
        await assert.rejects(collect(db.tables()), { code: "CANCELLED", message: "somebody did" });
      },
      { patience: 1000 },
    );
  });

  it("gives up on services that stay away, and on jobs that are not there", async () => {
    const away = await serve({});
    away.stop();
    const gone = { streams: { WatchJob: () => Promise.reject(refusal("UNAVAILABLE")) } };
    await withServices(
      gone,
      async (client) => {
        await assert.rejects(client.database("lake").job("j").wait(), { code: "UNAVAILABLE" });
      },
      { patience: 200 },
    );
    const unknown = { streams: { WatchJob: () => Promise.reject(refusal("NOT_FOUND", { reason: "JOB_NOT_FOUND" })) } };
    await withServices(unknown, async (client) => {
      await assert.rejects(client.database("lake").job("j").wait(), { reason: "JOB_NOT_FOUND" });
    });
  });
});

describe("waiting", () => {
  it("calls back with progress, over cuts", async () => {
    const told: bigint[] = [];
    await withServices(job([3], []), async (client) => {
      const onProgress = ({ rowsCommitted }: { rowsCommitted: bigint }): void => {
        told.push(rowsCommitted);
      };
      const ended = await client.database("lake").job("j").wait({ onProgress });
      assert.equal(ended.state, Job_State.DONE);
    });
    assert.deepEqual(told, [1n, 2n, 3n, 4n, 5n, 6n]);
  });

  it("throws for a job that was cancelled, or failed", async () => {
    await withServices(job([], [], Job_State.CANCELLED), async (client) => {
      const failed = { code: "CANCELLED", reason: "JOB_CANCELLED", jobId: "j" };
      await assert.rejects(client.database("lake").job("j").wait(), failed);
    });
    await withServices(job([], [], Job_State.FAILED), async (client) => {
      await assert.rejects(client.database("lake").job("j").wait(), { reason: "JOB_FAILED", jobId: "j" });
    });
    await withServices(
      { unary: { GetJob: () => ({ job: { jobId: "j", state: Job_State.DONE } }) } },
      async (client) => {
        assert.equal(failureOf(await client.database("lake").job("j").info()), undefined);
      },
    );
  });
});

describe("a job that is begun", () => {
  it("has the labels, the priority and the environment that are given", async () => {
    const said: Request[] = [];
    const take = (request: Request): object => {
      said.push(request);
      return { job: { jobId: "j" } };
    };
    const options = { labels: { team: "search" }, priority: 5, env: { API_KEY: "k" } };
    await withServices(
      { unary: { CreateJob: take, RetryJob: take, PreviewFunction: (r) => (said.push(r), {}) } },
      async (client) => {
        const table = client.database("lake").table("docs");
        const begun = await table.backfill("words", options);
        await client.database("lake").view("adults").refresh(options);
        await begun.retry(options);
        await table.preview("words", { env: options.env });
        await table.backfill("words");
      },
    );
    const environments = said.map(({ env }) => env as Record<string, string>);
    assert.deepEqual(environments, [options.env, options.env, options.env, options.env, {}]);
    assert.deepEqual([said[0]?.priority, said[0]?.labels], [5, options.labels]);
  });
});

describe("a closed client", () => {
  it("leaves nothing that keeps the process alive", async () => {
    const { endpoint, stop } = await serve(job([1, 1, 1, 1], []));
    const program = fileURLToPath(new URL("./leaving.js", import.meta.url));
    const child = spawn(process.execPath, [program, endpoint], { stdio: ["ignore", "pipe", "inherit"] });
    let told = "";
    child.stdout.on("data", (text: Buffer) => (told += text.toString()));
    const late = setTimeout(() => child.kill("SIGKILL"), 20_000);
    const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
    clearTimeout(late);
    stop();
    assert.deepEqual({ code, signal, told }, { code: 0, signal: null, told: "closed\n" });
  });
});
