import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";

import {
  Bool,
  Dictionary,
  Field,
  FixedSizeList,
  Float32,
  Float64,
  Int16,
  Int32,
  Int64,
  List,
  Message,
  RecordBatchReader,
  Table,
  Uint64,
  Utf8,
  vectorFromArray,
  type DataType,
  type Vector,
} from "apache-arrow";
import { LemanError } from "leman";
import { eachRow, serve, versionOf, type Answer, type ServedFunction, type ServeOptions } from "leman/functions";

import { messages } from "./flight.js";
import { column, numbers, of, same, withServer } from "./serving.js";

class PriceMissing extends Error {}

/** What a function that gives something answers for rows. */
async function answered(output: DataType, answer: Answer, rows = answer.length): Promise<unknown[] | string> {
  let found: unknown[] | string = [];
  await withServer(
    of(() => answer, output),
    async (caller) => {
      const table = numbers(...Array.from({ length: rows }, (_, i) => i));
      const { columns, failures } = await caller.exchange("f").answers(table);
      const [failed] = failures;
      found = failed === undefined ? (columns[0] ?? []) : `${String(failed.type)}: ${String(failed.message)}`;
    },
  );
  return found;
}

describe("a function server", () => {
  it("says which functions it has", async () => {
    const length = { name: "length", inputs: { text: new Utf8() }, output: new Int64(), call: () => [] };
    await withServer([{ ...same, description: "The number" }, length], async (caller, server) => {
      assert.deepEqual(await caller.actions(), ["leman.function.v1.describe"]);
      const [first, second] = await caller.describe();
      assert.deepEqual([first?.function, first?.version, first?.description], ["f", "1", "The number"]);
      assert.match(second?.version ?? "", /^[0-9a-f]{12}$/);
      assert.deepEqual(server.versions, { f: "1", length: second?.version });
      const schemaIn = (text = ""): string => String(RecordBatchReader.from(Buffer.from(text, "base64")).open().schema);
      assert.equal(schemaIn(second?.inputs), "Schema<{ 0: text: Utf8 }>");
      assert.equal(schemaIn(second?.output), "Schema<{ 0: value: Int64 }>");
      await assert.rejects(caller.describe("drop"), {
        code: 12,
        details: /no action "drop".*leman.function.v1.describe/,
      });
    });
  });

  it("answers each batch in its order, whatever the client calls its columns", async () => {
    const seen: string[][] = [];
    const twice = of((batch) => {
      seen.push(batch.schema.names as string[]);
      return column(batch).map((x) => (x === null ? null : 2 * (x as number)));
    });
    await withServer(twice, async (caller) => {
      const rows = numbers(1, null, 3).concat(numbers(), numbers(...Array.from({ length: 9999 }, (_, i) => i)));
      const { schema, columns, failures } = await caller.exchange("f").answers(rows);
      assert.deepEqual(Object.fromEntries(schema.metadata), { "leman.function": "f", "leman.version": "1" });
      assert.deepEqual(columns[0], [2, null, 6]);
      assert.deepEqual([columns[1]?.length, columns[2]?.length, columns[2]?.at(-1)], [0, 9999, 19996]);
      assert.deepEqual(failures, []);
    });
    assert.deepEqual(seen, [["x"], ["x"]]); // not asked about the batch without rows
  });

  it("answers with the schema before the first batch", async () => {
    await withServer(same, async (caller) => {
      const exchange = caller.exchange("f");
      exchange.send([{ dataHeader: new Uint8Array() }]); // as pyarrow begins: a command alone
      exchange.send(messages(numbers()).slice(0, 1));
      const first = await exchange.next();
      assert.ok(first !== undefined && Message.decode(first.dataHeader).isSchema());
      exchange.call.end();
      assert.equal(await exchange.next(), undefined);
    });
  });

  it("tells of a failure with a batch, and goes on with the next", async () => {
    const thrown: unknown[] = [new RangeError("too large"), new PriceMissing("no price"), "a text"];
    const failing = of((batch) => {
      const at = column(batch)[0] as number;
      if (at < thrown.length) {
        throw thrown[at];
      }
      return Promise.reject(Object.assign(new Error("später"), { name: "ValueError" }));
    });
    await withServer(failing, async (caller) => {
      const rows = numbers(0).concat(numbers(1), numbers(2), numbers(3), numbers());
      const { columns, failures } = await caller.exchange("f").answers(rows);
      const told = failures.map(({ type, message }) => [type, message]);
      assert.deepEqual(told.slice(0, 2), [
        ["RangeError", "too large"],
        ["PriceMissing", "no price"],
      ]);
      assert.deepEqual(told.slice(2), [
        ["Error", "a text"],
        ["ValueError", "später"],
      ]);
      assert.match(failures[0]?.traceback ?? "", /functions\.test\.js/);
      assert.deepEqual(columns, [[]]);
    });
  });

  it("takes arrays, typed arrays and vectors", async () => {
    assert.deepEqual(await answered(new Int32(), Int32Array.of(1, 2)), [1, 2]);
    assert.deepEqual(await answered(new Float64(), Int32Array.of(1, 2)), [1, 2]);
    assert.deepEqual(await answered(new Int64(), [1, 2n, undefined]), [1n, 2n, null]);
    assert.deepEqual(await answered(new Float32(), [0.5, Number.NaN, null]), [0.5, Number.NaN, null]);
    assert.deepEqual(await answered(new Bool(), [true, false]), [true, false]);
    assert.deepEqual(await answered(new Uint64(), [2n ** 64n - 1n]), [2n ** 64n - 1n]);
    const texts = vectorFromArray(["ä", null, "c"], new Utf8());
    assert.deepEqual(await answered(new Utf8(), texts), ["ä", null, "c"]);
    assert.deepEqual(await answered(new Utf8(), texts.slice(1).concat(texts)), [null, "c", "ä", null, "c"]);
    const coded = new Dictionary(new Utf8(), new Int32());
    assert.deepEqual(await answered(coded, ["a", "b", "a"]), ["a", "b", "a"]);
    const list = new FixedSizeList(2, new Field("item", new Float32(), true));
    const pairs = (await answered(list, [[1, 2], null, [3, 4]])) as (Vector | null)[];
    assert.deepEqual(
      pairs.map((pair) => pair && [...pair]),
      [[1, 2], null, [3, 4]],
    );
  });

  it("calls a function of rows with the values of each", async () => {
    const inputs = { a: new Int32(), b: new Utf8() };
    const joined = eachRow((a: number | null, b: string) => (a === null ? null : `${String(a)}${b}`));
    const later = eachRow(async (a: number, b: string) => Promise.resolve(b.repeat(a)));
    const f = { name: "f", version: "1", inputs, output: new Utf8(), call: joined };
    await withServer([f, { ...f, name: "g", call: later }], async (caller) => {
      const rows = new Table({
        x: vectorFromArray([1, null, 3], new Int32()),
        y: vectorFromArray(["a", "b", "c"], new Utf8()),
      });
      assert.deepEqual((await caller.exchange("f").answers(rows)).columns, [["1a", null, "3c"]]);
      assert.deepEqual((await caller.exchange("g").answers(rows)).columns, [["a", "", "ccc"]]);
    });
    assert.notEqual(String(joined), String(later)); // which versions are made of
  });

  it("tells what is wrong with what a function gave", async () => {
    assert.equal(await answered(new Int32(), [1], 2), "RangeError: the function gave 1 values for 2 rows");
    const none = undefined as unknown as Answer;
    assert.equal(
      await answered(new Int32(), none, 1),
      "TypeError: the function gave undefined, not a Vector or an array",
    );
    const vector = vectorFromArray([1], new Float64());
    assert.match(String(await answered(new Int32(), vector)), /gave a Vector of Float64, and its output is Int32/);
    const wrong: [DataType, unknown, string][] = [
      [new Int32(), 1.5, "1.5 is no Int32"],
      [new Int16(), 40_000, "40000 is no Int16"],
      [new Int64(), 2 ** 60, "1152921504606847000 is no Int64"],
      [new Int64(), 2n ** 63n, "9223372036854775808 is no Int64"],
      [new Float64(), "1", '"1" is no Float64'],
      [new Utf8(), 1, "1 is no Utf8"],
      [new Bool(), 1, "1 is no Bool"],
    ];
    for (const [type, value, told] of wrong) {
      assert.equal(await answered(type, [null, value]), `TypeError: row 1: ${told}`);
    }
  });
});

describe("serving", () => {
  const fails = async (wanted: Partial<ServedFunction>, options: Partial<ServeOptions> = {}): Promise<string> => {
    const error: unknown = await serve([{ ...same, ...wanted }], { port: 0, ...options }).catch((e: unknown) => e);
    assert.ok(error instanceof LemanError, String(error));
    return `${error.code}: ${error.message}`;
  };

  it("tells what is wrong with a function, or with where it should be served", async () => {
    assert.match(await fails({ name: "" }), /INVALID_ARGUMENT: a function needs a name/);
    assert.match(await fails({ inputs: {} }), /INVALID_ARGUMENT: f has no inputs/);
    assert.match(await fails({ version: "a b" }), /INVALID_ARGUMENT: version "a b" of f is not 1 to 128 of/);
    const coded = new Dictionary(new Utf8(), new Int32());
    assert.match(await fails({ inputs: { x: coded } }), /input x of f is a Dictionary<Int32, Utf8>: it arrives plain/);
    const list = new List(new Field("item", coded, true));
    assert.match(await fails({ inputs: { x: list } }), /INVALID_ARGUMENT: input x of f/);
    assert.match(await fails({}, { token: "" }), /INVALID_ARGUMENT: the token is empty/);
    for (const token of [null, 5, false, {}, ["t"]]) {
      assert.match(
        await fails({}, { token: token as never }),
        /INVALID_ARGUMENT: token is a string, or a function, not /,
      );
    }
    assert.match(
      await fails({}, { tokn: "t" } as never),
      /INVALID_ARGUMENT: unknown option 'tokn': do you mean token\?/,
    );
    assert.match(await fails({}, { port: "7815" as never }), /INVALID_ARGUMENT: port is a whole number/);
    assert.match(await fails({}, { tls: null as never }), /INVALID_ARGUMENT: tls is an object, not null/);
    const unchecked = { cert: "/nowhere", key: "/nowhere", clientCA: "/nowhere" };
    assert.match(await fails({}, { tls: unchecked }), /unknown option 'tls.clientCA': do you mean tls.clientCa\?/);
    assert.match(await fails({}, { tls: { cert: "/nowhere", key: "/nowhere" } }), /INVALID_ARGUMENT: tls.cert/);
    await assert.rejects(serve([same, same], { port: 0 }), { message: "there are two functions with the name f" });
    await withServer(same, async (_, { port }) => {
      assert.match(await fails({}, { port }), /UNAVAILABLE: cannot listen on 127.0.0.1:/);
    });
  });

  it("gives other code another version", async (test) => {
    const versionFor = async (call: ServedFunction["call"]): Promise<string | undefined> => {
      await using server = await serve([{ ...same, version: undefined, call }], { port: 0 });
      return server.versions.f;
    };
    const [one, again, other] = [() => [1], () => [1], () => [2]];
    assert.equal(await versionFor(one), await versionFor(again));
    assert.notEqual(await versionFor(one), await versionFor(other));
    const file = join(tmpdir(), `leman-${String(process.pid)}.txt`);
    test.after(() => {
      rmSync(file);
    });
    writeFileSync(file, "weights");
    const before = versionOf(import.meta.filename, file);
    assert.equal(before, versionOf(new URL(import.meta.url), file));
    writeFileSync(file, "other weights");
    assert.notEqual(before, versionOf(import.meta.filename, file));
  });
});
