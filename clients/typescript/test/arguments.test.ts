import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Metadata, status } from "@grpc/grpc-js";
import { collect, connect, type CallOptions, type Client, type ConnectOptions } from "leman";

import { serve, withServices } from "./fake.js";
import { refuses } from "./refusing.js";

/** An object as programs without types see it. */
type Loose = any;

/** Each way in which a call is made: answered once, with a stream, sent a stream, and all of a watch. */
const calls: Record<string, (client: Client, options: CallOptions) => unknown> = {
  unary: (client, options) => client.database("lake").table("docs").describe(options),
  listing: (client, options) => collect(client.database("lake").tables(options)),
  stream: (client, options) => client.database("lake").table("docs").read(options).toTable(),
  resumed: (client, options) => client.database("lake").job("j").wait(options),
  upload: (client, options) => client.database("lake").uploadBundle(new Uint8Array(3), options),
  stub: (client, options) => client.stubs.catalog.listTables({}, options),
};

describe("options of calls", () => {
  it("that are of the wrong kind are refused where they are given, and end no process", async () => {
    await withServices({}, async (client) => {
      for (const call of Object.values(calls)) {
        for (const signal of [new AbortController(), 5, null, "x", {}]) {
          await refuses(() => call(client, { signal: signal as never }), "signal");
        }
        for (const timeout of [Number.NaN, Infinity, -1, "5", null, {}, 5n]) {
          await refuses(() => call(client, { timeout: timeout as never }), "timeout");
        }
      }
    });
  });

  it("may allow more time than gRPC can tell", async () => {
    await withServices({ unary: { ListTables: () => ({ tables: ["docs"] }) } }, async (client) => {
      for (const timeout of [Number.MAX_SAFE_INTEGER, Number.MAX_VALUE, 2 ** 31, 1e13]) {
        assert.deepEqual(await collect(client.database("lake").tables({ timeout })), ["docs"]);
      }
    });
  });
});

describe("options of a connection", () => {
  const wrong: [Record<string, unknown[]>, RegExp?][] = [
    [{ plaintext: ["no", "false", "true", 1, 0, null, {}] }, /^plaintext is true or false, not /],
    [{ tls: [null, false, "yes", 1, []] }],
    [{ token: [5, null, {}, false, ["t"]] }],
    [{ token: [""] }, /^the token is empty: leave it out/],
    [{ patience: [-1, "x", Number.NaN, null] }],
    [{ firstContact: [-1, "x", Number.NaN, Infinity, null] }],
    [{ timeout: ["x", -1, Number.NaN] }],
    [{ signal: [new AbortController()] }],
    [{ onWarning: ["x", null] }],
    [{ tokn: ["t", undefined] }, /^unknown option 'tokn': do you mean token\?$/],
  ];

  it("are of their kinds, and no others", async () => {
    const { endpoint, stop } = await serve({});
    try {
      for (const [options, message] of wrong) {
        for (const [name, values] of Object.entries(options)) {
          for (const value of values) {
            await refuses(() => connect(endpoint, { [name]: value }), name, message);
          }
        }
      }
      for (const options of [null, 5, "t", []]) {
        await refuses(() => connect(endpoint, options as unknown as ConnectOptions), "options");
      }
      const taken = { plaintext: false, patience: Infinity, token: undefined, timeout: Number.MAX_SAFE_INTEGER };
      await using client = await connect(endpoint, taken);
      assert.equal((await client.info()).service, "");
    } finally {
      stop();
    }
  });

  it("permit a token without TLS by true alone", async () => {
    const token = (): string => assert.fail("asked for a token that is not to be shown");
    for (const plaintext of ["no", "yes", "true", 1]) {
      await refuses(() => connect("203.0.113.1:1", { token, plaintext } as unknown as ConnectOptions), "plaintext");
    }
  });
});

describe("arguments of methods", () => {
  const wrong: [
    name: string,
    call: (table: Loose, database: Loose, value: unknown) => unknown,
    values: unknown[],
    message?: RegExp,
  ][] = [
    ["rows", (table, _, rows) => table.append(rows), [undefined, null, {}, 5, "x", [{ id: 1 }], [5]]],
    ["rows", (_, db, rows) => db.createTable("x", rows), [undefined, null, {}, 5, [{ id: 1 }]]],
    ["columns", (table, _, columns) => table.addColumns(columns), [undefined, null, 5, "x", []]],
    ["columns.q", (table, _, q) => table.addColumns({ q }), [5, null, {}, { sq: "1" }, { sql: 1 }, { function: 5 }]],
    ["columns.q.inputs", (table, _, inputs) => table.addColumns({ q: { function: "f", inputs } }), ["id", [5], 5]],
    ["source", (table, _, source) => table.preview(source), [5, null, {}]],
    ["wanted", (_, db, wanted) => db.registerRemote(wanted), [undefined, null, 5, "f"]],
    ["addresses", (_, db, addresses) => db.registerRemote({ name: "f", addresses }), [undefined, "grpc://a:1", [5]]],
    ["priority", (table, _, priority) => table.backfill("q", { priority }), ["x", 1.5, {}]],
    ["columns", (table, _, columns) => table.read({ columns }), ["id", [5], null, {}]],
    ["limit", (table, _, limit) => table.read({ limit }), ["a", 1.5, null]],
    ["where", (table, _, where) => table.read({ where }), [5, null]],
    ["withRowId", (table, _, withRowId) => table.read({ withRowId }), ["no", 1]],
    ["wher", (table, _, wher) => table.read({ wher }), ["id < 0"], /^unknown option 'wher': do you mean where\?$/],
  ];

  it("that are of the wrong kind are refused, each by its name", async () => {
    await withServices({}, async (client) => {
      const database = client.database("lake") as Loose;
      const table = client.database("lake").table("docs") as Loose;
      for (const [name, call, values, message] of wrong) {
        for (const value of values) {
          await refuses(() => call(table, database, value), name, message);
        }
      }
    });
  });
});

describe("an answer that is no message of the services", () => {
  it("is an error of its call, and ends no process", async () => {
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", Buffer.from([0xff, 0xff, 0xff]));
    const broken = Object.assign(new Error("no"), { code: status.NOT_FOUND, details: "no", metadata });
    const ListTables = (): never => {
      throw broken;
    };
    await withServices({ unary: { ListTables } }, async (client) => {
      await assert.rejects(collect(client.database("lake").tables()), { code: "NOT_FOUND", message: "no" });
    });
  });
});
