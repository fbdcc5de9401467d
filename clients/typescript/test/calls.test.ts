import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import { create } from "@bufbuild/protobuf";
import { collect, connect, LemanError, type Token, type TokenSource } from "leman";
import { DropTableRequestSchema, UdfDefinition_Kind } from "leman/v1";

import { serviceConfig } from "#gen/service_config.js";
import { refusal, serve, withServices, type Request } from "./fake.js";

describe("calls", () => {
  it("register a function of a server with what is known of it, and give it as it is stored", async () => {
    const asked: Request[] = [];
    const RegisterUdf = (request: Request): object => {
      asked.push(request.definition);
      return asked.length === 1 ? { created: true, definition: { name: "size", version: "3f9c" } } : {};
    };
    await withServices({ unary: { RegisterUdf } }, async (client) => {
      const db = client.database("lake");
      const wanted = { name: "size", addresses: ["grpc://a:7815", "grpc+tls://b:7815"], function: "length" };
      const rules = [{ action: "skip" as const, exceptions: ["PriceMissing"] }];
      const stored = await db.registerRemote({ ...wanted, inputs: ["text"], batchSize: 500, errorPolicy: { rules } });
      assert.equal(`${stored.name}@${stored.version}`, "size@3f9c");
      await assert.rejects(db.registerRemote(wanted), { code: "UNIMPLEMENTED" });
    });
    const [{ name, version, kind, inputColumns, code, batchSize, errorPolicy, outputSchema }] = asked;
    assert.deepEqual([name, version, kind, inputColumns], ["size", "", UdfDefinition_Kind.REMOTE, ["text"]]);
    assert.deepEqual([code.case, code.value.addresses.length, code.value.function], ["remoteFunction", 2, "length"]);
    assert.deepEqual([batchSize, errorPolicy.rules[0].exceptionTypes], [500n, ["PriceMissing"]]);
    assert.equal(outputSchema.length, 0);
    assert.deepEqual([asked[1].inputColumns, asked[1].version], [[], ""]);
  });

  it("have the published retry policy", () => {
    const path = new URL("../../../../protos/leman/v1/service_config.json", import.meta.url);
    assert.deepEqual(serviceConfig, JSON.parse(readFileSync(path, "utf8")));
  });

  it("that change nothing are made again after UNAVAILABLE, beyond the policy's attempts as long as patience lasts", async () => {
    let calls = 0;
    const ListTables = (): object => {
      calls += 1;
      if (calls < 6) {
        throw refusal("UNAVAILABLE", { reason: "DRAINING", retryDelayMs: 1 });
      }
      return { tables: ["docs"] };
    };
    await withServices({ unary: { ListTables } }, async (client) => {
      assert.deepEqual(await collect(client.database("lake").tables()), ["docs"]);
    });
    assert.equal(calls, 6);
  });

  it("wait for the delay that the services ask for", async () => {
    const at: number[] = [];
    const ListTables = (): object => {
      at.push(performance.now());
      if (at.length === 1) {
        throw refusal("RESOURCE_EXHAUSTED", { reason: "CALLER_RATE", retryDelayMs: 300 });
      }
      return {};
    };
    await withServices({ unary: { ListTables } }, async (client) => {
      await collect(client.database("lake").tables());
    });
    assert.ok((at[1] ?? 0) - (at[0] ?? 0) >= 290);
  });

  it("that another attempt would not mend are made once, and told with all that the services say", async () => {
    let calls = 0;
    const fields = [{ field: "page_size", description: "is negative" }];
    const details = { reason: "MESSAGE_TOO_LARGE", fields, metadata: { most: "4" } };
    const ListTables = (): object => {
      calls += 1;
      throw refusal("RESOURCE_EXHAUSTED", details, "too large: ask for less");
    };
    await withServices({ unary: { ListTables } }, async (client) => {
      const failed = await collect(client.database("lake").tables()).catch((error: unknown) => error);
      assert.ok(failed instanceof LemanError);
      const { code, reason, message, metadata, method } = failed;
      assert.deepEqual(
        { code, reason, message, metadata, method, fields: failed.fields },
        {
          code: "RESOURCE_EXHAUSTED",
          reason: "MESSAGE_TOO_LARGE",
          message: "too large: ask for less",
          metadata: { most: "4" },
          method: "leman.v1.CatalogService/ListTables",
          fields,
        },
      );
      assert.match(failed.requestId ?? "", /^[0-9a-f]{32}$/);
    });
    assert.equal(calls, 1);
  });

  it("that change something are made again under one request id, so that a lost reply does nothing twice", async () => {
    const ids: string[] = [];
    const DeleteRows = ({ requestId }: Request): object => {
      ids.push(requestId as string);
      if (ids.length < 3) {
        throw refusal("UNAVAILABLE");
      }
      return { rowsDeleted: 2n };
    };
    await withServices({ unary: { DeleteRows } }, async (client) => {
      assert.equal(await client.database("lake").table("docs").delete("n > 1"), 2);
      assert.equal(await client.database("lake").table("docs").delete("n > 1", { requestId: "mine" }), 2);
    });
    assert.equal(new Set(ids.slice(0, 3)).size, 1);
    assert.match(ids[0] ?? "", /^[0-9a-f]{32}$/);
    assert.equal(ids[3], "mine");
  });

  it("by the stubs have a request id too, unless they say one or are no mutations", async () => {
    const ids: unknown[] = [];
    const DropTable = ({ requestId }: Request): object => {
      ids.push(requestId);
      if (ids.length < 3) {
        throw refusal("UNAVAILABLE");
      }
      return {};
    };
    const ListTables = (request: Request): object => (ids.push("requestId" in request), {});
    await withServices({ unary: { DropTable, ListTables } }, async (client) => {
      const table = { database: "lake", table: "docs" };
      await client.stubs.tables.dropTable({ table });
      await client.stubs.tables.dropTable(create(DropTableRequestSchema, { table, requestId: "mine" }));
      await client.stubs.tables.dropTable(create(DropTableRequestSchema, { table }));
      await client.stubs.catalog.listTables({ database: "lake" });
    });
    assert.equal(new Set(ids.slice(0, 3)).size, 1);
    assert.match(String(ids[0]), /^[0-9a-f]{32}$/);
    assert.equal(ids[3], "mine");
    assert.match(String(ids[4]), /^[0-9a-f]{32}$/);
    assert.notEqual(ids[4], ids[0]);
    assert.equal(ids[5], false);
  });

  it("end after their time, and when their signal says so", async () => {
    const ListTables = (): Promise<object> => new Promise(() => undefined);
    await withServices({ unary: { ListTables } }, async (client) => {
      const list = client.stubs.catalog.listTables;
      await assert.rejects(list({}, { timeout: 50 }), { code: "DEADLINE_EXCEEDED" });
      await assert.rejects(list({}, { signal: AbortSignal.timeout(50) }), { code: "DEADLINE_EXCEEDED" });
      const controller = new AbortController();
      const listing = list({}, { signal: controller.signal });
      setImmediate(() => {
        controller.abort();
      });
      await assert.rejects(listing, { code: "CANCELLED" });
      await assert.rejects(list({}, { signal: controller.signal }), { code: "CANCELLED" });
    });
  });

  it("outlast a restart of the services", async () => {
    const behaviour = { unary: { ListTables: () => ({ tables: ["docs"] }) } };
    const first = await serve(behaviour);
    await using client = await connect(first.endpoint);
    first.stop();
    const listing = collect(client.database("lake").tables());
    const second = await serve(behaviour, Number(first.endpoint.split(":")[1]));
    assert.deepEqual(await listing, ["docs"]);
    second.stop();
  });

  it("end with the client", async () => {
    const ListTables = (): Promise<object> => new Promise(() => undefined);
    await withServices({ unary: { ListTables } }, async (client) => {
      const listing = client.stubs.catalog.listTables({});
      setImmediate(() => {
        client.close();
      });
      await assert.rejects(listing, { code: "CANCELLED", reason: "CLOSED" });
      await assert.rejects(client.stubs.catalog.listTables({}), { code: "CANCELLED", reason: "CLOSED" });
    });
  });
});

describe("listings", () => {
  const ListTables = ({ pageToken, pageSize }: Request): object => {
    const at = pageToken === "" ? 0 : Number(pageToken);
    const tables = ["a", "b", "c", "d", "e"].slice(at, at + Math.min(2, pageSize as number));
    return { tables, nextPageToken: at + tables.length < 5 ? String(at + tables.length) : "" };
  };

  it("go over all pages, as far as they are taken", async () => {
    let calls = 0;
    const counted = (request: Request): object => ((calls += 1), ListTables(request));
    await withServices({ unary: { ListTables: counted } }, async (client) => {
      assert.deepEqual(await collect(client.database("lake").tables()), ["a", "b", "c", "d", "e"]);
      assert.equal(calls, 3);
      assert.deepEqual(await collect(client.database("lake").tables({ limit: 3 })), ["a", "b", "c"]);
      calls = 0;
      for await (const table of client.database("lake").tables()) {
        assert.equal(table, "a");
        break;
      }
      assert.equal(calls, 1);
    });
  });

  it("tell what they left out", async () => {
    const told: string[] = [];
    const ListMaterializedViews = (): object => ({ views: [{ name: "v" }], warnings: ["view w is damaged"] });
    const onWarning = (text: string): void => {
      told.push(text);
    };
    await withServices(
      { unary: { ListMaterializedViews } },
      async (client) => {
        assert.deepEqual(
          (await collect(client.database("lake").views())).map(({ name }) => name),
          ["v"],
        );
      },
      { onWarning },
    );
    assert.deepEqual(told, ["view w is damaged"]);
  });
});

describe("tokens", () => {
  const guarded = (good: string, seen: (string | undefined)[]) => {
    const ListTables = (_: Request, metadata: { get: (key: string) => unknown[] }): object => {
      const [shown] = metadata.get("authorization") as string[];
      seen.push(shown);
      if (shown !== `Bearer ${good}`) {
        throw refusal("UNAUTHENTICATED", { reason: "TOKEN_EXPIRED" });
      }
      return { tables: ["docs"] };
    };
    return { unary: { ListTables } };
  };

  it("are asked for again when one was refused, and the call is made once more", async () => {
    const seen: string[] = [];
    let asked = 0;
    const token = (): string => `t${String((asked += 1))}`;
    await withServices(
      guarded("t2", seen),
      async (client) => {
        assert.deepEqual(await collect(client.database("lake").tables()), ["docs"]);
        assert.deepEqual(await collect(client.database("lake").tables()), ["docs"]);
      },
      { token },
    );
    assert.deepEqual(seen, ["Bearer t1", "Bearer t2", "Bearer t2"]);
    assert.equal(asked, 2);
  });

  it("that stay bad are told after the second", async () => {
    const seen: string[] = [];
    let asked = 0;
    await withServices(
      guarded("good", seen),
      async (client) => {
        await assert.rejects(collect(client.database("lake").tables()), {
          code: "UNAUTHENTICATED",
          reason: "TOKEN_EXPIRED",
        });
      },
      { token: () => Promise.resolve(`t${String((asked += 1))}`) },
    );
    assert.deepEqual(seen, ["Bearer t1", "Bearer t2"]);
  });

  it("are renewed before they expire, by one caller for all", async () => {
    const seen: string[] = [];
    let asked = 0;
    const token = async (): Promise<{ value: string; expiresAt: Date }> => {
      asked += 1;
      const lives = asked === 1 ? 5_000 : 3_600_000; // the first is as good as over
      return Promise.resolve({ value: "good", expiresAt: new Date(Date.now() + lives) });
    };
    await withServices(
      guarded("good", seen),
      async (client) => {
        const listings = [1, 2, 3].map(() => collect(client.database("lake").tables()));
        await Promise.all(listings);
      },
      { token },
    );
    assert.equal(asked, 2);
  });

  it("whose source never answers hold up no call, nor the end of the client", async () => {
    const silent = (): Promise<string> => new Promise(() => undefined);
    const { endpoint, stop } = await serve({});
    const other = await serve({});
    const message = /: the source of tokens has not answered$/;
    const late = { code: "DEADLINE_EXCEEDED", message };
    for (const endpoints of [endpoint, [endpoint, other.endpoint]]) {
      for (const options of [{ firstContact: 50 }, { timeout: 50 }, { signal: AbortSignal.timeout(50) }]) {
        await assert.rejects(connect(endpoints, { token: silent, ...options }), late);
      }
    }
    const aborted = { token: silent, signal: AbortSignal.abort() };
    await assert.rejects(connect(endpoint, aborted), { code: "CANCELLED", message });
    let asked = 0;
    const once = (): Promise<string> | Token =>
      (asked += 1) === 1 ? { value: "t", expiresAt: new Date(0) } : silent();
    await using client = await connect(endpoint, { token: once as TokenSource });
    const table = client.database("lake").table("docs");
    await assert.rejects(collect(client.database("lake").tables({ timeout: 50 })), late);
    await assert.rejects(table.describe({ signal: AbortSignal.timeout(50) }), late);
    await assert.rejects(table.toArrow({ timeout: 50 }), late);
    await assert.rejects(client.database("lake").job("j").wait({ timeout: 50 }), late);
    await assert.rejects(client.database("lake").uploadBundle(new Uint8Array(3), { timeout: 50 }), late);
    const described = table.describe();
    setImmediate(() => {
      client.close();
    });
    await assert.rejects(described, { code: "CANCELLED", reason: "CLOSED", message });
    stop();
    other.stop();
  });

  it("whose source does not answer once one was refused are late", async () => {
    const token = (): string | Promise<string> => ((asked += 1) === 1 ? "t1" : new Promise(() => undefined));
    let asked = 0;
    await withServices(
      guarded("t2", []),
      async (client) => {
        const listed = collect(client.database("lake").tables({ timeout: 100 }));
        await assert.rejects(listed, { code: "DEADLINE_EXCEEDED", message: /source of tokens has not answered/ });
      },
      { token },
    );
  });

  it("of a source that gives none are refused, with what it gave", async () => {
    const { endpoint, stop } = await serve({});
    const given: [unknown, RegExp][] = [
      [undefined, /the source of tokens gave a value of type undefined: give a text/],
      [null, /gave null: give a text/],
      [5, /gave a value of type number: give a text/],
      [{}, /gave a value of type object: give a text, or an object whose value is the text/],
      [{ value: 5 }, /an object whose value is the text/],
      [{ value: "t", expiresAt: new Date(Number.NaN) }, /gave an expiresAt that is no valid Date/],
      [{ value: "t", expiresAt: 5 }, /gave an expiresAt that is no valid Date/],
    ];
    for (const [answer, message] of given) {
      const token = (() => answer) as TokenSource;
      await assert.rejects(connect(endpoint, { token }), { code: "INVALID_ARGUMENT", message });
    }
    stop();
  });

  it("whose source fails are an error of that", async () => {
    const { endpoint, stop } = await serve({});
    const token = (): never => {
      throw new Error("the vault is closed");
    };
    await assert.rejects(connect(endpoint, { token }), { code: "UNAUTHENTICATED", message: /the vault is closed/ });
    stop();
  });
});
