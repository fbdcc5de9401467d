import assert from "node:assert/strict";
import { describe, it } from "node:test";

import { collect, connect, type Token, type TokenSource } from "leman";

import { refusal, serve, withServices } from "./fake.js";

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
