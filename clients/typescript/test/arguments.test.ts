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

describe("what no message can carry", () => {
  const huge = 2n ** 70n;
  const half = "a\ud83d";
  const calls: [name: string, call: (table: Loose, database: Loose, client: Loose) => unknown][] = [
    ...[huge, -huge, 0, 0n, -1].flatMap((version): typeof calls => [
      ["version", (table) => table.read({ version })],
      ["version", (table) => table.toArrow({ version })],
      ["readVersion", (table) => table.plan("q", { readVersion: version })],
      ["readVersion", (table) => table.backfill("q", { readVersion: version })],
      ["readVersion", (table) => table.preview("q", { readVersion: version })],
    ]),
    ["version", (table) => table.read({ version: half })],
    ["where", (table) => table.read({ where: half })],
    ["columns[1]", (table) => table.read({ columns: ["a", half] })],
    ["batchSize", (table) => table.read({ batchSize: 2 ** 40 }).toTable()],
    ["taskSize", (table) => table.plan("q", { taskSize: huge })],
    ["maxRowsPerFragment", (_, db) => db.view("v").refresh({ maxRowsPerFragment: huge })],
    ["sourceVersion", (_, db) => db.view("v").plan({ sourceVersion: huge })],
    ["seed", (table) => table.query().shuffle(huge)],
    ["after", (_, db) => db.job("j").watch({ after: huge })],
    ["after", (_, db) => db.job("j").wait({ after: -1n })],
    ["priority", (table) => table.backfill("q", { priority: 2 ** 40 })],
    ["labels.team", (table) => table.backfill("q", { labels: { team: half } })],
    ["set.n", (table) => table.update("true", { n: half })],
    ["where", (table) => table.delete(half)],
    ["requestId", (table) => table.delete("true", { requestId: half })],
    ["name", (_, db) => db.table(half)],
    ["newName", (_, db) => db.renameTable("a", half)],
    ["name", (_, __, client) => client.database(half)],
    [
      "name",
      (_, db) => db.registerFunction({ name: half, version: "1", code: { sql: "1" }, inputs: [], output: "int64" }),
    ],
    [
      "table.table",
      (_, __, client) => client.stubs.catalog.describeTable({ table: { database: "lake", table: half } }),
    ],
    ["offset", (_, __, client) => client.stubs.tables.readRows({ offset: huge }).next()],
    ["pageSize", (_, __, client) => client.stubs.catalog.listTables({ pageSize: 1.5 })],
    [
      "header.sha256",
      (_, __, client) => client.stubs.catalog.uploadBundle([{ part: { case: "header", value: { sha256: half } } }]),
    ],
  ];

  it("is refused by the name of the argument or the path of the field, before it is sent", async () => {
    await withServices({}, async (client) => {
      const database = client.database("lake") as Loose;
      for (const [name, call] of calls) {
        const message = { test: (told: string) => told.startsWith(`${name} is `) };
        await refuses(() => call(database.table("docs"), database, client), name, message, `${name}: ${String(call)}`);
      }
    });
  });

  it("is not what can be sent", async () => {
    const sent: unknown[] = [];
    const ListJobs = (request: unknown): object => (sent.push(request), {});
    await withServices({ unary: { ListJobs } }, async (client) => {
      const database = client.database("lake");
      await collect(database.jobs({ states: ["DONE"], labels: { "größe 😀": "漢字" } }));
      await refuses(
        () => collect(database.jobs({ states: ["DONEX" as "DONE"] })),
        "states[0]",
        /^states\[0\] is one of PENDING, .*, not "DONEX"$/,
      );
      await refuses(
        () => collect(database.jobs({ states: ["UNSPECIFIED" as "DONE"] })),
        "states[0]",
        /not "UNSPECIFIED"$/,
      );
    });
    assert.equal(sent.length, 1);
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
