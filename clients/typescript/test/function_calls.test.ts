import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { describe, it } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Decimal, Dictionary, Int32, makeVector, Table, Utf8, vectorFromArray } from "apache-arrow";
import { serve, type ServedFunction } from "leman/functions";

import { FlightCaller, messages } from "./flight.js";
import { column, numbers, of, same, withServer } from "./serving.js";

describe("a call of a function is refused", () => {
  const refused = async (exchange: ReturnType<FlightCaller["exchange"]>, table = numbers(1)): Promise<unknown[]> => {
    exchange.send(messages(table));
    const told: unknown[] = await exchange.next().then(
      () => [],
      (error: unknown) => {
        const { code, details } = error as { code: number; details: string };
        return [code, details];
      },
    );
    return told;
  };

  it("where there is no such function, or another version", async () => {
    await withServer([same, { ...same, name: "g" }], async (caller) => {
      assert.deepEqual(await refused(caller.exchange("h")), [5, 'there is no function "h" here, but: f, g']);
      const other = await refused(caller.exchange("f", { version: "2" }));
      assert.deepEqual(other, [9, 'f has version 1 here, and "2" is asked for']);
    });
  });

  it("where its command is none, or its columns are others", async () => {
    await withServer(same, async (caller) => {
      for (const told of ["{", "null", { protocol: "v2" }, { function: 1 }, { version: undefined }]) {
        const [code, details] = await refused(caller.exchange("f", told));
        assert.equal(code, 3);
        assert.match(String(details), /a call begins with a command/);
      }
      const texts = new Table({ t: vectorFromArray(["a"], new Utf8()) });
      const [code, details] = await refused(caller.exchange("f"), texts);
      assert.deepEqual([code, details], [3, "f cannot be called with these columns: it takes (Int32), not (Utf8)"]);
      const two = new Table({ a: vectorFromArray([1], new Int32()), b: vectorFromArray([1], new Int32()) });
      assert.match(String(await refused(caller.exchange("f"), two)), /takes \(Int32\), not \(Int32, Int32\)/);
    });
    const money = { ...same, inputs: { x: new Decimal(2, 10, 128) } };
    await withServer(money, async (caller) => {
      const wider = new Table({ x: vectorFromArray([], new Decimal(2, 10, 256)) });
      assert.equal((await refused(caller.exchange("f"), wider))[0], 3);
    });
  });

  it("where a batch cannot be read", async () => {
    await withServer(same, async (caller) => {
      const [schema, batch] = messages(numbers(1, 2, 3));
      assert.ok(schema !== undefined && batch !== undefined);
      const dictionary = messages(new Table({ t: vectorFromArray(["a"], new Dictionary(new Utf8(), new Int32())) }))[1];
      const broken: [string, typeof batch | undefined][] = [
        ["it is shorter than it says", { ...batch, dataBody: batch.dataBody?.subarray(0, 8) ?? new Uint8Array() }],
        ["it has no rows", schema],
        ["it has no rows", { dataHeader: new Uint8Array() }],
        ["dictionaries are not read: send plain columns", dictionary],
      ];
      for (const [told, message] of broken) {
        const exchange = caller.exchange("f");
        exchange.send([schema, message ?? schema]);
        await exchange.next();
        const details = `a batch for f cannot be read: ${told}`;
        await assert.rejects(exchange.next(), { code: 3, details });
      }
      const exchange = caller.exchange("f");
      exchange.send([schema, { dataHeader: Buffer.from("none") }]);
      await exchange.next();
      await assert.rejects(exchange.next(), { code: 3 });
    });
  });

  it("without the token", async () => {
    const options = { port: 0, token: "sesame-sesame-12" };
    await using server = await serve([same], options);
    for (const shown of [undefined, "Bearer sesame", "Bearer ", "Basic sesame-sesame-12"]) {
      using caller = new FlightCaller(server.port, shown);
      await assert.rejects(caller.describe(), { code: 16 });
      await assert.rejects(caller.actions(), { code: 16 });
      assert.equal((await refused(caller.exchange("f")))[0], 16);
    }
    using caller = new FlightCaller(server.port, "Bearer sesame-sesame-12");
    assert.deepEqual((await caller.exchange("f").answers(numbers(7))).columns, [[7]]);
  });

  it("where the check of the token says so, or fails", async () => {
    const asked: string[] = [];
    const check = async (token: string): Promise<boolean> => {
      asked.push(token);
      await pause(1);
      if (token === "broken") {
        throw new Error("the directory is away");
      }
      return token === "mine";
    };
    await using server = await serve([same], { port: 0, token: check });
    for (const shown of ["broken", "yours"]) {
      using caller = new FlightCaller(server.port, `Bearer ${shown}`);
      await assert.rejects(caller.describe(), { code: 16 });
    }
    using caller = new FlightCaller(server.port, "bearer mine");
    assert.equal((await caller.describe()).length, 1);
    assert.deepEqual(asked, ["broken", "yours", "mine"]);
  });
});

describe("a function server in time", () => {
  /** A function that waits until it is let go, and tells when it begins. */
  const held = (): {
    served: ServedFunction;
    begun: Promise<AbortSignal>;
    release: () => void;
    calls: () => number;
  } => {
    const events = new EventEmitter();
    const begun = once(events, "begun").then(([signal]) => signal as AbortSignal);
    const going = once(events, "release");
    let calls = 0;
    const served = of(async (batch, signal) => {
      calls += 1;
      events.emit("begun", signal);
      await going;
      return column(batch);
    });
    return { served, begun, release: () => void events.emit("release"), calls: () => calls };
  };

  it("reads one batch ahead, whatever the client sends", async () => {
    const { served, begun, release, calls } = held();
    await withServer(served, async (caller) => {
      const exchange = caller.exchange("f");
      const [schema, batch] = messages(new Table({ n: makeVector(new Int32Array(250_000)) })); // a megabyte
      assert.ok(schema !== undefined && batch !== undefined);
      exchange.send([schema]);
      let taken = 0;
      for (let i = 0; i < 40; i += 1) {
        exchange.send([batch], () => (taken += 1));
      }
      exchange.call.end();
      await begun;
      await pause(300);
      assert.ok(taken < 8, `${String(taken)} batches have gone out, of which one is being computed`);
      assert.equal(calls(), 1);
      release();
      let answers = 0;
      while ((await exchange.next()) !== undefined) {
        answers += 1;
      }
      assert.equal(answers, 41);
    });
  });

  it("works on many calls at once", async () => {
    const { served, release, calls } = held();
    await withServer(served, async (caller) => {
      const all = Array.from({ length: 8 }, (_, i) => caller.exchange("f").answers(numbers(i)));
      while (calls() < 8) {
        await pause(5);
      }
      release();
      assert.deepEqual(
        (await Promise.all(all)).map(({ columns }) => columns[0]),
        Array.from({ length: 8 }, (_, i) => [i]),
      );
    });
  });

  it("tells a function that its caller has gone", async () => {
    const { served, begun, release } = held();
    await withServer(served, async (caller, server) => {
      const exchange = caller.exchange("f");
      exchange.send(messages(numbers(1)));
      const signal = await begun;
      exchange.call.cancel();
      while (!signal.aborted) {
        await pause(5);
      }
      release();
      assert.deepEqual((await caller.exchange("f").answers(numbers(2))).columns, [[2]]);
      assert.equal(server.versions.f, "1");
    });
  });

  it("answers what it works on before it stops, and sends its callers elsewhere", async () => {
    const { served, begun, release } = held();
    const server = await serve([served], { port: 0 });
    using caller = new FlightCaller(server.port);
    const [busy, idle] = [caller.exchange("f"), caller.exchange("f")];
    idle.send(messages(numbers(1)).slice(0, 1));
    await idle.next();
    busy.send([...messages(numbers(1)), ...messages(numbers(2)).slice(1)]);
    await busy.next();
    await begun;
    const closed = server.close();
    await assert.rejects(idle.next(), { code: 14, details: "the function server stops" });
    release();
    assert.ok(((await busy.next())?.dataBody.byteLength ?? 0) > 0);
    await assert.rejects(busy.next(), { code: 14, details: "the function server stops" });
    await Promise.all([closed, server.close()]);
    await assert.rejects(caller.describe(), { code: 14 });
  });

  it("cuts off what is not done in the time it has to stop", async () => {
    const { served, begun, release } = held();
    const server = await serve([served], { port: 0 });
    using caller = new FlightCaller(server.port);
    const exchange = caller.exchange("f");
    exchange.send(messages(numbers(1)));
    await exchange.next();
    const signal = await begun;
    await Promise.all([server.close({ grace: 20 }), assert.rejects(exchange.next(), { code: 14 })]);
    assert.equal(signal.aborted, true);
    release();
  });
});
