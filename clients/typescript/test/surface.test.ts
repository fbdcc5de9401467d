/** Each method of each class that is exported is called with what it does not take. */
import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { Int32, Schema, Table as Rows, vectorFromArray } from "apache-arrow";
import * as leman from "leman";
import { connect, type Client } from "leman";
import * as functions from "leman/functions";

import { serve, type Behaviour } from "./fake.js";
import { refuses } from "./refusing.js";

/** A method as programs without types see it. */
type Method = (...given: unknown[]) => unknown;

const NO_OPTIONS = "takes no options";
const ROWS = new Rows({ n: vectorFromArray([1], new Int32()) });
const COLUMNS = { q: { sql: "1" } };

/** The arguments that each method needs, by class; the last one tells which methods take no options. */
const METHODS: Record<string, Record<string, unknown[]>> = {
  Client: { database: ["lake", NO_OPTIONS], info: [], close: [NO_OPTIONS] },
  Databases: {
    list: [],
    get: ["lake"],
    register: ["lake", "/data/lake"],
    update: ["lake", { description: "d" }],
    unregister: ["lake"],
  },
  Database: {
    table: ["docs", NO_OPTIONS],
    view: ["docs", NO_OPTIONS],
    job: ["j", NO_OPTIONS],
    createTable: ["docs", ROWS],
    tables: [],
    dropTable: ["docs"],
    renameTable: ["docs", "other"],
    createView: ["v", "a query"],
    views: [],
    dropView: ["v"],
    functions: [],
    function: ["f"],
    registerFunction: [{ name: "f", version: "1", code: { sql: "1" }, inputs: [], output: "int64" }],
    registerRemote: [{ name: "f", addresses: ["grpc://a:1"] }],
    uploadBundle: [new Uint8Array(3)],
    jobs: [],
    cancelJobs: [{ tables: ["docs"] }],
    verify: [],
  },
  Relation: { describe: [], read: [], toArrow: [], commits: [], optimizeIndices: [], collectGarbage: [] },
  Table: {
    append: [ROWS],
    delete: ["true"],
    update: ["true", { n: "1" }],
    merge: ["n", ROWS, { insertNotMatched: true }],
    addColumns: [COLUMNS],
    alterColumns: [COLUMNS],
    addPlainColumns: [new Schema([])],
    alterPlainColumns: [[{ name: "n", newName: "m" }]],
    renameColumn: ["n", "m"],
    dropColumns: [["n"]],
    plan: ["q"],
    preview: ["q"],
    backfill: ["q"],
    rowStates: ["q"],
    rowsInState: ["q", "FAILED"],
    query: [NO_OPTIONS],
  },
  View: { info: [], refresh: [], plan: [], alterColumns: [{ q: { function: "f" } }], query: [NO_OPTIONS] },
  Job: {
    info: [],
    watch: [],
    wait: [],
    cancel: [],
    pause: [],
    resume: [],
    update: [{ priority: 1 }],
    delete: [],
    retry: [],
    errors: [],
  },
  Query: {
    where: ["true", NO_OPTIONS],
    select: [["n"], NO_OPTIONS],
    addFunction: ["q", { function: "f" }, NO_OPTIONS],
    shuffle: [1, NO_OPTIONS],
    limit: [1, NO_OPTIONS],
    offset: [1, NO_OPTIONS],
  },
  RowStream: { schema: [NO_OPTIONS], version: [NO_OPTIONS], toTable: [NO_OPTIONS], close: [NO_OPTIONS] },
  TableDescription: {},
  LocalDatabase: { close: [NO_OPTIONS] },
  FunctionServer: { close: [] },
  LemanError: {},
};

interface Called {
  at: string;
  call: Method;
  given: unknown[];
  optionless: boolean;
}

/** The methods of all exported classes and of what these extend; fails for one that is not in the table. */
function methods(client: Client): Called[] {
  const database = client.database("lake");
  const table = database.table("docs");
  const objects: Record<string, unknown> = {
    Client: client,
    Databases: client.databases,
    Database: database,
    Table: table,
    View: database.view("v"),
    Job: database.job("j"),
    Query: table.query(),
    RowStream: table.read(),
  };
  const found = new Map<string, Called>();
  for (const each of Object.values({ ...leman, ...functions })) {
    if (!/^class\b/u.test(Function.prototype.toString.call(each))) {
      continue;
    }
    const exported = each as { name: string; prototype: object };
    for (let { prototype } = exported; prototype !== Object.prototype; prototype = Object.getPrototypeOf(prototype)) {
      const { name } = prototype.constructor;
      for (const method of Object.getOwnPropertyNames(prototype)) {
        const value: unknown = Object.getOwnPropertyDescriptor(prototype, method)?.value;
        if (prototype === Error.prototype || method === "constructor" || typeof value !== "function") {
          continue;
        }
        const needed = METHODS[name]?.[method];
        assert.ok(needed, `${name}.${method}: say in METHODS how it is called`);
        const optionless = needed.at(-1) === NO_OPTIONS;
        const given = (optionless ? needed.slice(0, -1) : needed).map((one) =>
          one === "a query" ? table.query() : one,
        );
        const target = objects[exported.name] ?? prototype; // refused before they look at what they belong to
        const call: Method = (...args) => (value as Method).apply(target, args);
        found.set(`${name}.${method}`, { at: `${name}.${method}`, call, given, optionless });
      }
    }
  }
  return [...found.values()];
}

/** Check something of a client, and that it sent nothing. */
async function sendsNothing(test: (client: Client) => Promise<void>): Promise<void> {
  const sent: string[] = [];
  const noted = new Proxy({}, { get: (_, name) => void sent.push(String(name)) });
  const behaviour: Behaviour = { unary: noted, streams: noted, uploads: noted };
  const { endpoint, stop } = await serve(behaviour);
  try {
    await using client = await connect(endpoint);
    await test(client);
    assert.deepEqual(sent, ["GetInfo"]);
  } finally {
    stop();
  }
}

describe("every method of every class", () => {
  it("refuses an option that there is not, by its name, and sends nothing", async () => {
    await sendsNothing(async (client) => {
      const all = methods(client);
      const told = Object.values(METHODS).flatMap((each) => Object.keys(each));
      assert.equal(all.length, told.length, "METHODS has one that there is not");
      for (const { at, call, given, optionless } of all) {
        const [name, message] = optionless ? ["arguments", / takes \(/] : ["timout", /^unknown option 'timout': /];
        await refuses(() => call(...given, { timout: 5 }), name, message, at);
      }
    });
  });

  it("refuses more arguments than it takes, and ones of another kind, and sends nothing", async () => {
    await sendsNothing(async (client) => {
      for (const { at, call, given, optionless } of methods(client)) {
        await refuses(() => call(...given, ...(optionless ? [] : [{}]), 5), "arguments", / takes \(/, at);
        if (!optionless) {
          await refuses(() => call(...given, "x"), "options", /^options is an object, not a string$/, at);
        }
        for (const [place] of given.entries()) {
          const wrong = given.with(place, Symbol("wrong"));
          await refuses(() => call(...wrong), /^\w+$/, /^\w+ is .*, not a symbol$/, at);
        }
      }
    });
  });

  it("takes what is left out as undefined", async () => {
    await sendsNothing(async (client) => {
      const table = client.database("lake").table("docs") as unknown as Record<string, Method>;
      table.read?.({ where: undefined }, undefined);
      table.query?.(undefined);
      return Promise.resolve();
    });
  });
});

describe("options that are not there", () => {
  type Loose = any;
  const wrong: [name: string, advice: string, call: (client: Client, table: Loose, database: Loose) => unknown][] = [
    ["request_id", "do you mean requestId?", (_, table) => table.delete("true", { request_id: "r" })],
    ["labels2", "do you mean labels?", (_, table) => table.backfill("q", { labels2: {} })],
    ["xyz", "there are signal, timeout", (_, table) => table.describe({ xyz: 1 })],
    ["checkpoint.sise", "do you mean checkpoint.size?", (_, table) => table.plan("q", { checkpoint: { sise: 1 } })],
    ["filter.tabels", "do you mean filter.tables?", (_, __, db) => db.cancelJobs({ tabels: ["docs"] })],
    ["changes.label", "do you mean changes.labels?", (_, __, db) => db.job("j").update({ label: {} })],
    ["rules.updateMatch", "do you mean rules.updateMatched?", (_, t) => t.merge("n", ROWS, { updateMatch: true })],
    ["columns.q.input", "do you mean", (_, table) => table.addColumns({ q: { function: "f", input: [] } })],
    ["columns.q.input", "do you mean", (_, __, db) => db.view("v").alterColumns({ q: { function: "f", input: [] } })],
    ["source.inptus", "do you mean", (_, table) => table.query().addFunction("q", { function: "f", inptus: [] })],
    ["batchsiz", "do you mean batchSize?", (_, __, db) => db.registerRemote({ name: "f", addresses: [], batchsiz: 1 })],
    ["errorPolicy.rules[0].acton", "do you mean", (_, __, db) => db.registerRemote(REMOTE)],
    ["tls.keys", "do you mean tls.key?", () => connect("localhost:1", { tls: { keys: "k" } } as Loose)],
    ["token", "there are", () => leman.connectLocal("/nowhere", { token: "t" } as Loose)],
    ["timout", "do you mean timeout?", ({ stubs }) => stubs.tables.dropTable({}, { timout: 5 } as Loose)],
    ["timout", "do you mean timeout?", ({ stubs }) => stubs.jobs.watchJob({}, { timout: 5 } as Loose)],
    ["request.tabel", "do you mean request.table?", ({ stubs }) => stubs.tables.dropTable({ tabel: {} } as Loose)],
  ];
  const REMOTE = { name: "f", addresses: [], errorPolicy: { rules: [{ action: "fail", acton: "skip" }] } };

  it("are told with the name that may be meant, inside of others too", async () => {
    await sendsNothing(async (client) => {
      const database: Loose = client.database("lake");
      for (const [name, advice, call] of wrong) {
        const told = (message: string): boolean => message.startsWith(`unknown option '${name}': ${advice}`);
        await refuses(() => call(client, database.table("docs"), database), name, { test: told }, advice);
      }
    });
  });
});
