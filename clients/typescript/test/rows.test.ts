import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import type { RecordBatch } from "apache-arrow";
import { Int32, RecordBatchReader, Table as ArrowTable, tableToIPC, Utf8, vectorFromArray } from "apache-arrow";

import { refusal, withServices, type Request } from "./fake.js";

const numbers = (from: number, count: number): ArrowTable =>
  new ArrowTable({
    n: vectorFromArray(
      Array.from({ length: count }, (_, i) => from + i),
      new Int32(),
    ),
  });

const values = (table: ArrowTable): unknown[] => [...(table.getChild("n") ?? [])];

/** The rows of a table in batches of ten, from an offset on, as an Arrow IPC stream in small pieces. */
function stream(from: number, to: number): Buffer[] {
  const batches: RecordBatch[] = [];
  for (let at = from; at < to; at += 10) {
    batches.push(...numbers(at, Math.min(10, to - at)).batches);
  }
  const whole = Buffer.from(tableToIPC(new ArrowTable(numbers(0, 1).schema, batches), "stream"));
  return Array.from({ length: Math.ceil(whole.length / 100) }, (_, i) => whole.subarray(i * 100, i * 100 + 100));
}

describe("reading", () => {
  it("goes on where it was cut, in the same version, with what is left of the limit", async () => {
    const asked: Request[] = [];
    const ReadRows = (call: Request): void => {
      asked.push(call.request);
      const from = Number(call.request.offset);
      const pieces = stream(from, Math.min(100, from + Number(call.request.limit ?? 1000n)));
      const cut = asked.length < 4 ? Math.ceil(pieces.length / 2) : pieces.length;
      pieces.slice(0, cut).forEach((arrowIpc, i) => call.write({ arrowIpc, version: i === 0 ? 7n : 0n }));
      if (cut < pieces.length) {
        setTimeout(() => call.emit("error", refusal("UNAVAILABLE")), 20);
      } else {
        call.end();
      }
    };
    await withServices({ streams: { ReadRows } }, async (client) => {
      const rows = client.database("lake").table("docs").read({ offset: 5, limit: 80, where: "n > 0" });
      assert.equal(await rows.version(), 7);
      assert.deepEqual(
        values(await rows.toTable()),
        Array.from({ length: 80 }, (_, i) => i + 5),
      );
    });
    assert.ok(asked.length > 1);
    const [first, second] = asked;
    assert.deepEqual(first.at, { case: undefined });
    assert.deepEqual(second.at, { case: "version", value: 7n });
    assert.equal(second.offset + second.limit, 85n);
    assert.equal(second.where, "n > 0");
  });

  it("gives its rows once, and says so the next time", async () => {
    const ReadRows = (call: Request): void => {
      stream(0, 20).forEach((arrowIpc) => call.write({ arrowIpc, version: 1n }));
      call.end();
    };
    const spent = { code: "FAILED_PRECONDITION", message: /they come once, so call read again/ };
    await withServices({ streams: { ReadRows } }, async (client) => {
      const table = client.database("lake").table("docs");
      const rows = table.read();
      assert.equal((await rows.toTable()).numRows, 20);
      await assert.rejects(rows.toTable(), spent);
      await assert.rejects(rows[Symbol.asyncIterator]().next(), spent);
      assert.equal(await rows.version(), 1);
      const left = table.read();
      for await (const batch of left) {
        assert.equal(batch.numRows, 10);
        break;
      }
      await assert.rejects(left.toTable(), spent);
      const closed = table.read();
      await closed.close();
      await assert.rejects(closed.toTable(), spent);
      await assert.rejects(closed.schema(), spent);
    });
  });

  it("gives an empty table its columns", async () => {
    const ReadRows = (call: Request): void => {
      stream(0, 0).forEach((arrowIpc) => call.write({ arrowIpc, version: 1n }));
      call.end();
    };
    await withServices({ streams: { ReadRows } }, async (client) => {
      const table = await client.database("lake").table("docs").toArrow();
      assert.equal(table.numRows, 0);
      assert.deepEqual(table.schema.names, ["n"]);
    });
  });

  it("that is left early ends the call, and takes no more than a little ahead", async () => {
    let written = 0;
    let cancelled = false;
    const ReadRows = async (call: Request): Promise<void> => {
      call.on("cancelled", () => (cancelled = true));
      const [head, ...rest] = [...RecordBatchReader.from(tableToIPC(numbers(0, 250_000), "stream"))];
      assert.equal(rest.length, 0);
      const one = Buffer.from(tableToIPC(new ArrowTable([head as RecordBatch]), "stream")).subarray(0, -8);
      const begin = Buffer.from(tableToIPC(new ArrowTable(numbers(0, 1).schema, []), "stream")).length - 8;
      for (let i = 0; i < 200 && !cancelled; i += 1) {
        written += 1;
        if (!call.write({ arrowIpc: i === 0 ? one : one.subarray(begin), version: 1n })) {
          await Promise.race([once(call, "drain"), once(call, "cancelled")]);
        }
      }
    };
    await withServices({ streams: { ReadRows } }, async (client) => {
      for await (const batch of client.database("lake").table("docs").read()) {
        assert.equal(batch.numRows, 250_000);
        await pause(300); // as slow as its reader: the services wait meanwhile
        break;
      }
      while (!cancelled) {
        await pause(5);
      }
    });
    assert.ok(written < 60, `${String(written)} MB were sent to a reader that took one`);
  });

  it("tells what the services refuse", async () => {
    const ReadRows = (): never => {
      throw refusal("NOT_FOUND", { reason: "TABLE_NOT_FOUND" });
    };
    await withServices({ streams: { ReadRows } }, async (client) => {
      await assert.rejects(client.database("lake").table("docs").toArrow(), {
        code: "NOT_FOUND",
        reason: "TABLE_NOT_FOUND",
      });
    });
  });
});

describe("appending", () => {
  const received = async (call: AsyncIterable<Request>): Promise<{ header: Request; rows: ArrowTable }> => {
    let header: Request;
    const bytes: Uint8Array[] = [];
    for await (const { part } of call) {
      if (part.case === "header") {
        header = part.value;
      } else {
        bytes.push(part.value as Uint8Array);
      }
    }
    const reader = RecordBatchReader.from(Buffer.concat(bytes)).open();
    return { header, rows: new ArrowTable(reader.schema, [...reader]) };
  };

  it("sends all rows again where the services went away, under the same id", async () => {
    const seen: { header: Request; rows: ArrowTable }[] = [];
    const AppendRows = async (call: Request): Promise<object> => {
      seen.push(await received(call));
      if (seen.length === 1) {
        throw refusal("UNAVAILABLE", { reason: "COMMIT_UNKNOWN" });
      }
      return { version: 3n, rowsAdded: 50n };
    };
    await withServices({ uploads: { AppendRows } }, async (client) => {
      assert.deepEqual(await client.database("lake").table("docs").append(numbers(0, 50)), { version: 3, rows: 50 });
    });
    assert.equal(seen.length, 2);
    assert.equal(seen[0]?.header.requestId, seen[1]?.header.requestId);
    for (const { rows } of seen) {
      assert.deepEqual(values(rows), values(numbers(0, 50)));
    }
  });

  it("sends what an iterable gave once, and what a function gives again", async () => {
    let calls = 0;
    const AppendRows = async (call: Request): Promise<object> => {
      const { rows } = await received(call);
      if ((calls += 1) % 2 === 1) {
        throw refusal("UNAVAILABLE");
      }
      return { version: 3n, rowsAdded: BigInt(rows.numRows) };
    };
    async function* batches(): AsyncGenerator<RecordBatch> {
      yield* numbers(0, 5).batches;
      yield* await Promise.resolve(numbers(5, 5).batches);
    }
    await withServices({ uploads: { AppendRows } }, async (client) => {
      const table = client.database("lake").table("docs");
      await assert.rejects(table.append(batches()), { code: "UNAVAILABLE" });
      calls = 0;
      assert.equal((await table.append(batches)).rows, 10);
    });
  });

  it("takes the next batch when the services have taken the last", async () => {
    let given = 0;
    function* batches(): Generator<RecordBatch> {
      for (; given < 200; given += 1) {
        yield* numbers(0, 250_000).batches; // a megabyte
      }
    }
    const ahead: number[] = [];
    const AppendRows = async (call: Request): Promise<object> => {
      let taken = 0;
      for await (const { part } of call as AsyncIterable<Request>) {
        taken += part.case === "header" ? 0 : 1;
        if (taken === 3) {
          await pause(300);
          ahead.push(given);
          break;
        }
      }
      throw refusal("INVALID_ARGUMENT", { reason: "BAD_STREAM" });
    };
    await withServices({ uploads: { AppendRows } }, async (client) => {
      await assert.rejects(client.database("lake").table("docs").append(batches()), { reason: "BAD_STREAM" });
    });
    assert.ok((ahead[0] ?? 200) < 60, `${String(ahead[0])} batches were taken, of which three had been`);
    assert.ok(given < 200);
  });

  it("fails with what its source throws, and sends no half of it", async () => {
    let ended = "";
    const AppendRows = async (call: Request): Promise<object> => {
      call.on("cancelled", () => (ended = "cancelled"));
      await received(call);
      ended ||= "whole";
      return { version: 2n };
    };
    function* batches(): Generator<RecordBatch> {
      yield* numbers(0, 5).batches;
      throw new RangeError("the source is broken");
    }
    await withServices({ uploads: { AppendRows } }, async (client) => {
      await assert.rejects(client.database("lake").table("docs").append(batches()), RangeError);
      while (ended === "") {
        await pause(5);
      }
    });
    assert.equal(ended, "cancelled");
  });

  it("refuses batches of other columns than the first", async () => {
    const AppendRows = async (call: Request): Promise<object> => (await received(call), {});
    await withServices({ uploads: { AppendRows } }, async (client) => {
      const other = new ArrowTable({ n: vectorFromArray(["a"], new Utf8()) });
      const rows = [...numbers(0, 5).batches, ...other.batches] as RecordBatch[];
      await assert.rejects(client.database("lake").table("docs").append(rows), { code: "INVALID_ARGUMENT" });
    });
  });

  it("makes a table and fills it; one that cannot be filled goes again", async () => {
    const done: string[] = [];
    let refused = false;
    const behaviour = {
      unary: {
        CreateTable: ({ columns }: Request) => {
          done.push(`create ${String(RecordBatchReader.from(columns.value as Uint8Array).open().schema)}`);
          return { version: 1n };
        },
        DropTable: ({ force }: Request) => (done.push(`drop ${String(force)}`), {}),
      },
      uploads: {
        AppendRows: async (call: Request) => {
          const { rows } = await received(call);
          done.push(`append ${String(rows.numRows)}`);
          if (refused) {
            throw refusal("FAILED_PRECONDITION", { reason: "NULL_VALUE" });
          }
          return { version: 2n, rowsAdded: BigInt(rows.numRows) };
        },
      },
    };
    await withServices(behaviour, async (client) => {
      const db = client.database("lake");
      await db.createTable("docs", numbers(0, 5));
      await db.createTable("docs", () => numbers(0, 5).batches);
      await db.createTable("docs", numbers(0, 5).schema);
      refused = true;
      await assert.rejects(db.createTable("docs", numbers(0, 5)), { reason: "NULL_VALUE" });
    });
    const create = `create ${String(numbers(0, 5).schema)}`;
    assert.deepEqual(done, [create, "append 5", create, "append 5", create, create, "append 5", "drop true"]);
  });
});

describe("bundles", () => {
  it("are sent again where the services went away, and not to the end where they are known", async () => {
    let calls = 0;
    const sizes: number[] = [];
    const UploadBundle = async (call: Request): Promise<object> => {
      calls += 1;
      if (calls === 2) {
        return { created: false }; // at once, whatever is still to come
      }
      let size = 0;
      for await (const { part } of call as AsyncIterable<Request>) {
        size += part.case === "data" ? (part.value as Uint8Array).length : 0;
      }
      sizes.push(size);
      throw refusal("UNAVAILABLE");
    };
    await withServices({ uploads: { UploadBundle } }, async (client) => {
      const sha256 = await client.database("lake").uploadBundle(new Uint8Array(3 << 20));
      assert.match(sha256, /^[0-9a-f]{64}$/);
    });
    assert.equal(calls, 2);
    assert.deepEqual(sizes, [3 << 20]);
  });
});
