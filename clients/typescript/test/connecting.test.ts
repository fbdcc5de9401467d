import assert from "node:assert/strict";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { describe, it } from "node:test";

import { collect, connect } from "leman";

import { serve, withServices } from "./fake.js";

describe("connections", () => {
  it("go to another address when one cannot be reached, and give up when patience ends", async () => {
    const gone = await serve({});
    gone.stop();
    const here = await serve({ unary: { ListTables: () => ({ tables: ["docs"] }) } });
    await using client = await connect([gone.endpoint, here.endpoint], { patience: 200 });
    assert.deepEqual(await collect(client.database("lake").tables()), ["docs"]);
    here.stop();
    await assert.rejects(collect(client.database("lake").tables()), { code: "UNAVAILABLE", reason: undefined });
  });

  it("take addresses as gRPC writes them", async () => {
    const gone = await serve({});
    gone.stop();
    const here = await serve({});
    for (const endpoints of [[gone.endpoint, `dns:///${here.endpoint}`], `dns:///${gone.endpoint}, ${here.endpoint}`]) {
      await using client = await connect(endpoints);
      assert.equal((await client.info()).service, "");
    }
    here.stop();
  });

  it("are not held up by addresses that hang", async () => {
    await using silent = await listening();
    await using other = await listening();
    const first = await serve({});
    const last = await serve({ unary: { ListTables: () => ({ tables: ["docs"] }) } });
    const begun = Date.now();
    await using client = await connect([silent.endpoint, first.endpoint, other.endpoint, last.endpoint]);
    first.stop();
    assert.deepEqual(await collect(client.database("lake").tables()), ["docs"]);
    last.stop();
    assert.ok(Date.now() - begun < 9000, "they were waited for");
    for (const endpoints of [silent.endpoint, [silent.endpoint, first.endpoint]]) {
      const contact = Date.now();
      await assert.rejects(connect(endpoints, { firstContact: 200 }), {
        code: "UNAVAILABLE",
        message: new RegExp(`^nothing answers at ${String(endpoints)}`),
      });
      assert.ok(Date.now() - contact < 4000, "it took longer");
    }
  });

  it("of a first contact say where nothing answers", async () => {
    const gone = await serve({});
    gone.stop();
    await assert.rejects(connect(gone.endpoint, { firstContact: 100 }), {
      code: "UNAVAILABLE",
      message: /nothing answers/,
    });
    await assert.rejects(connect(gone.endpoint, { tls: { cert: "only.pem" } }), { code: "INVALID_ARGUMENT" });
    await assert.rejects(connect(gone.endpoint, { tls: { ca: "/nowhere/ca.pem" } }), { code: "INVALID_ARGUMENT" });
  });

  it("that take longer than their caller allows say so", async () => {
    const gone = await serve({});
    gone.stop();
    await using silent = await listening();
    for (const endpoint of [gone.endpoint, silent.endpoint]) {
      const message = /^nothing answers at 127/;
      await assert.rejects(connect(endpoint, { timeout: 200 }), { code: "DEADLINE_EXCEEDED", message });
      const signal = AbortSignal.timeout(200);
      await assert.rejects(connect(endpoint, { signal }), { code: "DEADLINE_EXCEEDED", message });
      const controller = new AbortController();
      setTimeout(() => {
        controller.abort();
      }, 50);
      await assert.rejects(connect(endpoint, { signal: controller.signal }), { code: "CANCELLED" });
      await assert.rejects(connect(endpoint, { timeout: 60_000, firstContact: 200 }), { code: "UNAVAILABLE" });
    }
  });

  it("say of what is no address, and no request id, what to do", async () => {
    const wrong: [unknown[], RegExp][] = [
      [["", []], /^there is no endpoint: give host:port/],
      [[" ", "a", "a:", ":1", "::1:7443", "a b:1", "a:1,", ["a:1,b:2"], 5], /is not host:port, such as/],
      [[[null], [undefined], [5]], /is no text like host:port/],
      [["a:0", "localhost:99999", ["a:1", "b:65536"]], /has no possible port: one is from 1 to 65535/],
      [["http://a:1", "https://a:1/"], /leave https?:\/\/ out and give a:1 \(for TLS/],
    ];
    for (const [endpoints, message] of wrong) {
      for (const endpoint of endpoints) {
        await assert.rejects(connect(endpoint as string), { code: "INVALID_ARGUMENT", message }, String(endpoint));
      }
    }
    await withServices({}, async (client) => {
      for (const requestId of ["", 5 as unknown as string]) {
        const deleted = client.database("lake").table("docs").delete("true", { requestId });
        await assert.rejects(deleted, { code: "INVALID_ARGUMENT", message: /requestId/ });
      }
    });
  });
});

/** Take connections, and never answer. */
async function listening(): Promise<{ endpoint: string } & AsyncDisposable> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => sockets.push(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const close = async (): Promise<void> => {
    sockets.forEach((socket) => socket.destroy());
    await new Promise((resolve) => server.close(resolve));
  };
  return { endpoint: `127.0.0.1:${String(port)}`, [Symbol.asyncDispose]: close };
}
