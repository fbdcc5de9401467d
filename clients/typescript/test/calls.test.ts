import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import { create } from "@bufbuild/protobuf";
import { collect, connect, LemanError } from "leman";
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

  it("end at the second loss of their connection, as they may be what ends the services", async () => {
    let calls = 0;
    const ListTables = (): object => {
      calls += 1;
      throw refusal("UNAVAILABLE", {}, "Connection dropped");
    };
    await withServices({ unary: { ListTables } }, async (client) => {
      await assert.rejects(collect(client.database("lake").tables()), { code: "UNAVAILABLE" });
    });
    assert.equal(calls, 2);
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
