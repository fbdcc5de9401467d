import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";

import { collect, connectLocal } from "leman";

import { refusal, serve } from "./fake.js";

const LAKE = "/data/lake";

const folders: string[] = [];

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "leman-local-"));
  folders.push(made);
  return made;
}

after(() => {
  for (const made of folders) {
    rmSync(made, { recursive: true });
  }
});

/** Services of a folder, which say there where they are; they take the token alone. */
async function ranFor(place: string, token: string, database = LAKE): Promise<{ shown: string[]; stop: () => void }> {
  const shown: string[] = [];
  const ListTables = (_: unknown, metadata: { get: (name: string) => unknown[] }): object => {
    shown.push(String(metadata.get("authorization")[0]));
    if (shown.at(-1) !== `Bearer ${token}`) {
      throw refusal("UNAUTHENTICATED", { reason: "TOKEN_INVALID" });
    }
    return { tables: ["docs"] };
  };
  let at = "";
  const GetInfo = (): object => ({ database, plannerAddress: at, executorAddress: at, commitCoordinatorAddress: at });
  const { endpoint, stop } = await serve({ unary: { GetInfo, ListTables } });
  at = endpoint;
  mkdirSync(join(place, "_leman"), { recursive: true });
  const told = { token, planner: endpoint, executor: endpoint, commit_coordinator: endpoint, database: LAKE };
  writeFileSync(join(place, "_leman", "service.json"), JSON.stringify(told));
  return { shown, stop };
}

describe("a local database", () => {
  it("says where its services are, and finds them again where they are started anew", async () => {
    const place = folder();
    const first = await ranFor(place, "first");
    await using local = await connectLocal(place);
    assert.equal(local.database.name, LAKE);
    assert.deepEqual(await collect(local.database.tables()), ["docs"]);
    first.stop();
    rmSync(join(place, "_leman", "service.json"));
    const asked = collect(local.database.tables());
    const second = await ranFor(place, "second");
    try {
      assert.deepEqual(await asked, ["docs"]);
      assert.deepEqual(second.shown, ["Bearer first", "Bearer second"]);
    } finally {
      second.stop();
    }
  });

  it("is found where its services have many databases, by their addresses", async () => {
    const place = folder();
    const shared = await ranFor(place, "token", "");
    try {
      await using local = await connectLocal(place);
      assert.equal(local.database.name, LAKE);
      const file = join(place, "_leman", "service.json");
      const told = JSON.parse(readFileSync(file, "utf8")) as object;
      writeFileSync(file, JSON.stringify({ ...told, executor: "127.0.0.1:1" }));
      await assert.rejects(connectLocal(place), { code: "UNAVAILABLE", message: /others answer/ });
    } finally {
      shared.stop();
    }
  });

  it("that nobody serves is told with what to do", async () => {
    const place = folder();
    const away = { code: "UNAVAILABLE", message: /leman up/ };
    await assert.rejects(connectLocal(place), away);
    const others = await ranFor(place, "token", "/data/another");
    await assert.rejects(connectLocal(place), { ...away, message: /others answer/ });
    others.stop();
    await assert.rejects(connectLocal(place, { firstContact: 100 }), away);
    writeFileSync(join(place, "_leman", "service.json"), "{}");
    await assert.rejects(connectLocal(place), { ...away, message: /service\.json has no/ });
  });
});
