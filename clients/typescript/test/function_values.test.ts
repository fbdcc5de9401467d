import assert from "node:assert/strict";
import { describe, it } from "node:test";

import {
  Binary,
  DateDay,
  DateMillisecond,
  Decimal,
  Dictionary,
  DurationSecond,
  Field,
  FixedSizeBinary,
  FixedSizeList,
  Float16,
  Float32,
  Int32,
  Int64,
  Int8,
  LargeUtf8,
  List,
  makeVector,
  Map_,
  Null,
  SparseUnion,
  Struct,
  TimeMicrosecond,
  TimeMillisecond,
  TimestampMicrosecond,
  TimestampNanosecond,
  TimestampSecond,
  Uint8,
  Utf8,
  Vector,
  vectorFromArray,
  type DataType,
} from "apache-arrow";
import { LemanError } from "leman";
import { serve, type Answer } from "leman/functions";

import { FlightCaller } from "./flight.js";
import { numbers, of, same, withServer } from "./serving.js";

const field = (name: string, type: DataType, nullable = true): Field => new Field(name, type, nullable);
const listOf = (type: DataType, nullable = true): List => new List(field("item", type, nullable));
const structOf = (...fields: Field[]): Struct => new Struct(fields);
const mapOf = (key: DataType, value: DataType): Map_ =>
  new Map_(field("entries", structOf(field("key", key, false), field("value", value)), false) as never);

/** What a caller reads of an answer, or what is told of a failure. */
async function told(output: DataType, answer: Answer): Promise<unknown> {
  return withServerOf(output, answer, async (caller) => {
    const rows = numbers(...Array.from({ length: answer.length }, (_, i) => i));
    const { columns, failures } = await caller.exchange("f").answers(rows);
    return failures[0] === undefined
      ? plain(columns[0])
      : `${String(failures[0].type)}: ${String(failures[0].message)}`;
  });
}

async function withServerOf<T>(
  output: DataType,
  answer: Answer,
  ask: (caller: FlightCaller) => Promise<T>,
): Promise<T> {
  await using server = await serve([of(() => answer, output)], { port: 0 });
  using caller = new FlightCaller(server.port);
  return await ask(caller);
}

/** A type as messages have it. */
function typeText(type: DataType): string {
  return (type as { toString: () => string }).toString();
}

/** Values of apache-arrow as those of JavaScript. */
function plain(value: any): unknown {
  if (value instanceof Vector || Array.isArray(value)) {
    return Array.from(value as Iterable<unknown>, plain);
  }
  if (ArrayBuffer.isView(value)) {
    return [...(value as Uint8Array)];
  }
  const told = typeof value === "object" && value !== null ? value.toJSON() : value;
  return typeof told === "object" && told !== null
    ? Object.fromEntries(Object.entries(told as object).map(([name, each]) => [name, plain(each)]))
    : told;
}

describe("a value that its type cannot hold", () => {
  const vectors = new FixedSizeList(3, field("item", new Float32()));
  const bytes = new FixedSizeBinary(4);
  const money = new Decimal(2, 20, 128);
  const point = structOf(field("a", new Int8()), field("b", new Utf8()));
  const wrong: [type: DataType, value: unknown, message: string][] = [
    [listOf(new Int32()), ["x", "7"], '[0]: "x" is no Int32'],
    [listOf(new Int32()), [2, 1.5], "[1]: 1.5 is no Int32"],
    [listOf(new Int32()), [2 ** 40], "[0]: 1099511627776 is no Int32"],
    [listOf(new Int8()), [1, null, 300], "[2]: 300 is no Int8"],
    [listOf(new Int32()), 5, "5 is no List<Int32>"],
    [listOf(new Utf8()), "abc", '"abc" is no List<Utf8>'],
    [listOf(new Utf8()), [5, { a: 1 }], "[0]: 5 is no Utf8"],
    [listOf(new Utf8()), ["a", { a: 1 }], "[1]: [object Object] is no Utf8"],
    [listOf(listOf(new Int8())), [[1], [2, 300]], "[1][1]: 300 is no Int8"],
    [listOf(new Int8(), false), [1, null], "[1]: null is no Int8, and its field is not nullable"],
    [point, { a: "x" }, 'a: "x" is no Int8'],
    [point, { a: 300 }, "a: 300 is no Int8"],
    [point, 5, "5 is no Struct<{a:Int8, b:Utf8}>"],
    [point, new Date(0), `${String(new Date(0))} is no Struct<{a:Int8, b:Utf8}>`],
    [point, { a: 1, z: 2 }, '[object Object] is no Struct<{a:Int8, b:Utf8}>, which has no field "z"'],
    [listOf(point), [{}, { a: 300 }], "[1].a: 300 is no Int8"],
    [structOf(field("p", point)), { p: { b: 1 } }, "p.b: 1 is no Utf8"],
    [vectors, [1, 2], "an array of 2 is no FixedSizeList[3]<Float32>"],
    [vectors, [1, 2, 3, 4, 5], "an array of 5 is no FixedSizeList[3]<Float32>"],
    [vectors, [], "an array of 0 is no FixedSizeList[3]<Float32>"],
    [vectors, [1, 2, "3"], '[2]: "3" is no Float32'],
    [vectors, [1, 2, 1e300], "[2]: 1e+300 is too large for Float32"],
    [bytes, Uint8Array.of(1, 2), "1,2 is no FixedSizeBinary[4], but 2 bytes"],
    [bytes, Uint8Array.of(1, 2, 3, 4, 5, 6), "1,2,3,4,5,6 is no FixedSizeBinary[4], but 6 bytes"],
    [bytes, "abcd", '"abcd" is no FixedSizeBinary[4]'],
    [new Dictionary(new Int8(), new Int8()), 300, "300 is no Int8"],
    [new Dictionary(new Utf8(), new Int8()), 5, "5 is no Utf8"],
    [new Dictionary(new Binary(), new Int8()), "x", '"x" is no Binary'],
    [new Float16(), 70_000, "70000 is too large for Float16"],
    [new Float16(), "1", '"1" is no Float16'],
    [new Float32(), -1e300, "-1e+300 is too large for Float32"],
    [mapOf(new Utf8(), new Int32()), new Map([["a", 1.5]]), '["a"]: 1.5 is no Int32'],
    [mapOf(new Utf8(), new Int32()), { a: "x" }, '["a"]: "x" is no Int32'],
    [mapOf(new Utf8(), new Int32()), [1], "an array of 1 is no Map<{key:Utf8, value:Int32}>"],
    [mapOf(new Int32(), new Utf8()), { a: "x" }, '["a"].key: "a" is no Int32'],
    [money, 1.5, '1.5 is no Decimal[20e+2] of 128 bits: give an exact text, such as "1.50"'],
    [money, 150n, '150 is no Decimal[20e+2] of 128 bits: give an exact text, such as "1.50"'],
    [money, "1.505", '"1.505" is no Decimal[20e+2] of 128 bits'],
    [money, "1e5", '"1e5" is no Decimal[20e+2] of 128 bits'],
    [money, "1".repeat(19), `"${"1".repeat(19)}" is no Decimal[20e+2] of 128 bits`],
    [new DateDay(), new Date("1960-06-01T12:00Z"), /is no Date32<DAY>$/.source],
    [new TimestampSecond(), -1500, "-1500 is no Timestamp<SECOND>"],
    [new TimestampNanosecond(), 2n ** 63n, "9223372036854775808 is no Timestamp<NANOSECOND>"],
    [new TimestampNanosecond(), "2024-01-01", '"2024-01-01" is no Timestamp<NANOSECOND>'],
    [new TimestampSecond(), new Date(Number.NaN), "Invalid Date is no Timestamp<SECOND>"],
    [new TimeMillisecond(), 90_000_000, "90000000 is no Time32<MILLISECOND>"],
    [new DurationSecond(), 1.5, "1.5 is no Duration<SECOND>"],
    [new Utf8(), "a\ud800", /is no Utf8: it has half of a surrogate pair$/.source],
    [new Null(), 5, "5 is no Null"],
  ];

  it("is a failed row, however deep it lies", async () => {
    for (const [type, value, message] of wrong) {
      const found = String(await told(type, [null, value]));
      if (message.endsWith("$")) {
        assert.match(found, new RegExp(`^TypeError: row 1: .*${message}`));
      } else {
        assert.equal(found, `TypeError: row 1: ${message}`);
      }
    }
  });

  it("is one of more than a dictionary has room for", async () => {
    const values = Array.from({ length: 200 }, (_, i) => `v${String(i)}`);
    const failed = await told(new Dictionary(new Utf8(), new Int8()), values);
    assert.equal(failed, "RangeError: Dictionary<Int8, Utf8> has 128 values at the most, and these rows have 200");
    assert.deepEqual(await told(new Dictionary(new Utf8(), new Uint8()), values), values);
  });
});

describe("a value that fits", () => {
  const points = structOf(field("a", new Int64()), field("constructor", new Utf8()));
  const day = 86_400_000;
  const right: [type: DataType, values: Answer, found?: unknown[]][] = [
    [new Int64(), [1n, , 3n], [1n, null, 3n]], // eslint-disable-line no-sparse-arrays
    [listOf(new Int32()), [[1, , 3], null, []], [[1, null, 3], null, []]], // eslint-disable-line no-sparse-arrays
    [listOf(new Int32()), [Int32Array.of(1, 2), vectorFromArray([3], new Int32())], [[1, 2], [3]]],
    [listOf(listOf(new LargeUtf8())), [[["ä"], null, []], [["", null]]]],
    [
      points,
      [{ a: 1 }, new Map([["a", 2n]]), null],
      [{ a: 1n, constructor: null }, { a: 2n, constructor: null }, null],
    ],
    [
      points,
      [[3, "x"], vectorFromArray([{ a: 4n, constructor: null }], points).get(0)],
      [
        { a: 3n, constructor: "x" },
        { a: 4n, constructor: null },
      ],
    ],
    [mapOf(new Utf8(), new Int32()), [new Map([["a", 1]]), { b: null }, null, {}], [{ a: 1 }, { b: null }, null, {}]],
    [
      new FixedSizeList(2, field("item", new Float16())),
      [[0.5, -2], null, Float32Array.of(1, 0)],
      [[0.5, -2], null, [1, 0]],
    ],
    [new FixedSizeBinary(2), [Uint8Array.of(1, 2), null, Uint8Array.of(3, 4)], [[1, 2], null, [3, 4]]],
    [
      new Float16(),
      [1e-8, 65_504, -65_519, 2 ** -24, 1.0009765, -Infinity, Number.NaN],
      [0, 65_504, -65_504, 2 ** -24, 1.0009765625, -Infinity, Number.NaN],
    ],
    [new Dictionary(new Binary(), new Int8()), [Uint8Array.of(1), null, Uint8Array.of(1)], [[1], null, [1]]],
    [new DateDay(), [new Date(-day), 2 * day, null], [-day, 2 * day, null]],
    [new DateMillisecond(), [new Date(day)], [day]],
    [new TimestampMicrosecond(), [new Date(1_700_000_000_123), 0.5, 7n], [1_700_000_000_123, 0.5, 0.007]],
    [new TimeMicrosecond(), [5, 6n], [5n, 6n]],
    [new DurationSecond(), [-5, 6n], [-5n, 6n]],
    [listOf(new Dictionary(new Utf8(), new Int8())), [["a", "b"], ["a"]], [["a", "b"], ["a"]]],
    [new Null(), [null, undefined], [null, null]],
  ];

  it("comes as it is, one that is left out as NULL", async () => {
    for (const [type, values, found] of right) {
      assert.deepEqual(await told(type, values), found ?? values, typeText(type));
    }
  });

  it("is a decimal by an exact text, or by its words", async () => {
    const money = new Decimal(2, 20, 128);
    const words = [Uint32Array.of(150, 0, 0, 0), Uint32Array.of(2 ** 32 - 150, 2 ** 32 - 1, 2 ** 32 - 1, 2 ** 32 - 1)];
    const texts = ["1.5", "-1.500", "+7", "0.00", "-0.01"];
    const found = (await told(money, [...texts, ...words, null])) as (number[] | null)[];
    const units = found.map(
      (each) =>
        each &&
        BigInt.asIntN(
          128,
          each.reduceRight((high, word) => (high << 32n) | BigInt(word), 0n),
        ),
    );
    assert.deepEqual(units, [150n, -150n, 700n, 0n, -1n, 150n, -150n, null]);
    assert.match(String(await told(new Decimal(2, 3, 128), [Uint32Array.of(1000, 0, 0, 0)])), /is no Decimal\[3e\+2\]/);
  });

  it("is a timestamp to the nanosecond", async () => {
    const exact = new TimestampNanosecond("UTC");
    const units = [1_700_000_000_123_456_789n, -1n];
    const nanoseconds = async (values: Answer): Promise<unknown> => {
      let found: unknown;
      await withServer(
        of(() => values, exact),
        async (caller) => {
          const { vectors } = await caller.exchange("f").answers(numbers(...Array.from(values as never[], () => 1)));
          found = [...(vectors[0]?.data[0]?.values as BigInt64Array)];
        },
      );
      return found;
    };
    assert.deepEqual(await nanoseconds(units), units);
    assert.deepEqual(await nanoseconds([1_700_000_000_123]), [1_700_000_000_123_000_000n]);
    const [one, other] = units.map((unit) => makeVector({ type: exact, data: BigInt64Array.of(unit) } as never));
    assert.deepEqual(await nanoseconds((one as Vector).concat(other as Vector)), units);
  });

  it("may be in a dictionary of the function's own", async () => {
    const [output, own] = [0, 1].map(() => listOf(new Dictionary(new Utf8(), new Int8())));
    const values = [["a"], ["b", "a"]];
    assert.deepEqual(await told(output as List, vectorFromArray(values, own as List)), values);
  });
});

describe("a type that others cannot read", () => {
  const entries = (key: boolean, whole: boolean): DataType =>
    new Map_(field("entries", structOf(field("key", new Utf8(), key), field("value", new Int8())), whole) as never);

  it("is refused with the name of the function", async () => {
    const union = new SparseUnion([0], [field("a", new Int8())]);
    const types = [
      entries(false, true),
      entries(true, false),
      listOf(entries(true, true)),
      union,
      new Decimal(2, 39, 128),
    ];
    for (const type of types) {
      for (const wanted of [{ output: type }, { inputs: { x: type } }]) {
        const error: unknown = await serve([{ ...same, ...wanted }], { port: 0 }).catch((e: unknown) => e);
        assert.ok(error instanceof LemanError, typeText(type));
        assert.match(error.message, /^(input x|the output) of f has the type /);
        assert.equal(error.code, "INVALID_ARGUMENT");
      }
    }
  });
});
