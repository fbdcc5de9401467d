import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";

import { connect } from "leman";

import { serve } from "./fake.js";

const vectors = new URL("../../../../tests/conformance/vectors/addresses.json", import.meta.url);
const { loopback, elsewhere } = JSON.parse(readFileSync(vectors, "utf8")) as Record<string, string[]>;
const NOT_NOW = { firstContact: 1 };

describe("a token without TLS", () => {
  it("does not go to other machines, nor is a source asked for one", async () => {
    const source = (): string => assert.fail("asked for a token that is not to be shown");
    assert.ok(elsewhere !== undefined && elsewhere.length > 5);
    for (const address of elsewhere) {
      for (const token of ["t", source]) {
        for (const endpoint of [address, ["localhost:1", address]]) {
          const refused = {
            code: "INVALID_ARGUMENT",
            reason: "PLAINTEXT_TOKEN",
            message: new RegExp("tls, or plaintext"),
          };
          await assert.rejects(connect(endpoint, { token }), refused, String(endpoint));
        }
      }
    }
  });

  it("goes to this machine", async () => {
    for (const address of loopback ?? []) {
      await assert.rejects(connect(address, { token: "t", ...NOT_NOW }), { code: "UNAVAILABLE" }, address);
    }
  });

  it("goes elsewhere where that is permitted", async () => {
    const shown: unknown[] = [];
    const info = (_: unknown, metadata: { get: (name: string) => unknown[] }): object => {
      shown.push(...metadata.get("authorization"));
      return {};
    };
    const { endpoint, stop } = await serve({ unary: { GetInfo: info } });
    const elsewhere = endpoint.replace("127.0.0.1", "0.0.0.0");
    try {
      await using permitted = await connect(elsewhere, { token: "t", plaintext: true });
      await permitted.info();
      assert.deepEqual(shown, ["Bearer t", "Bearer t"]);
      await using without = await connect(elsewhere);
      await without.info();
      assert.equal(shown.length, 2);
    } finally {
      stop();
    }
  });

  it("cannot be permitted beside TLS", async () => {
    await assert.rejects(connect("localhost:1", { plaintext: true, tls: true }), { code: "INVALID_ARGUMENT" });
  });
});
