/**
 * Serves a few functions, as docs/remote_functions.md describes: the suite, and the benchmark of remote functions, call
 * them. Prints one line, {"port": n}, and ends with SIGTERM.
 */
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

import { Field, FixedSizeList, Float32, Int64, Struct, Utf8, vectorFromArray, type RecordBatch } from "apache-arrow";
import { eachRow, serve, type ServedFunction } from "leman/functions";

class ValueError extends Error {
  override readonly name = "ValueError";
}

const numbers = (batch: RecordBatch): (bigint | null)[] => [...(batch.getChildAt<Int64>(0) ?? [])];
const whole = { x: new Int64() };

const double: ServedFunction = {
  name: "double",
  description: "Twice the number",
  inputs: whole,
  output: new Int64(),
  call: (batch) => numbers(batch).map((x) => (x === null ? null : 2n * x)),
};

const upper: ServedFunction = {
  name: "upper",
  inputs: { text: new Utf8() },
  output: new Utf8(),
  call: eachRow((given: string | null) => given?.toUpperCase() ?? null),
};

const failOn: ServedFunction = {
  name: "fail_on",
  inputs: whole,
  output: new Int64(),
  call: eachRow((x: bigint | null) => {
    if (x !== null && x < 0n) {
      throw new ValueError(`${String(x)} is negative`);
    }
    return x;
  }),
};

const slow: ServedFunction = {
  name: "slow",
  inputs: { milliseconds: new Int64() },
  output: new Int64(),
  call: async (batch, signal) => {
    const given = numbers(batch);
    for (const millis of given) {
      await pause(Number(millis ?? 0n), undefined, { signal });
    }
    return given;
  },
};

const die: ServedFunction = {
  name: "die",
  inputs: whole,
  output: new Int64(),
  call: (batch) => {
    if (numbers(batch).includes(666n)) {
      process.kill(process.pid, "SIGKILL");
    }
    return numbers(batch);
  },
};

const pairs = new FixedSizeList(2, new Field("item", new Float32(), true));

const vector: ServedFunction = {
  name: "vector",
  description: "The number and its opposite",
  inputs: whole,
  output: pairs,
  call: (batch) =>
    vectorFromArray(
      numbers(batch).map((x) => (x === null ? null : [Number(x), -Number(x)])),
      pairs,
    ),
};

const described: ServedFunction = {
  name: "described",
  description: "The number, and its text where it is even",
  inputs: whole,
  output: new Struct([new Field("n", new Int64(), true), new Field("text", new Utf8(), true)]),
  call: eachRow((x: bigint | null) => (x === null ? null : { n: x, text: x % 2n === 0n ? String(x) : null })),
};

const text = { type: "string" } as const;
const options = {
  port: { type: "string", default: "7815" },
  token: text,
  cert: text,
  key: text,
  "client-ca": text,
  version: text,
} as const;
const { port, token, cert, key, version, "client-ca": clientCa } = parseArgs({ options }).values;
const functions = [double, upper, vector, described, failOn, slow, die].map((one) => ({ ...one, version }));
const tls = cert === undefined || key === undefined ? undefined : { cert, key, clientCa };
const server = await serve(functions, { port: Number(port), token, tls });
process.once("SIGTERM", () => void server.close());
console.log(JSON.stringify({ port: server.port }));
