import { DataType, makeBuilder, makeVector, Precision, Vector, type Data } from "apache-arrow";

import { typeText, type Answer } from "./functions.js";

/** Make a column of what a function gave. Raises TypeError or RangeError where that is no column of its rows. */
export function columnOf(answer: Answer, type: DataType, rows: number): Data {
  const isVector = answer instanceof Vector;
  if (!isVector && !Array.isArray(answer) && !ArrayBuffer.isView(answer)) {
    throw new TypeError(`the function gave ${describe(answer)}, not a Vector or an array`);
  }
  if (answer.length !== rows) {
    throw new RangeError(`the function gave ${String(answer.length)} values for ${String(rows)} rows`);
  }
  if (isVector) {
    return ofVector(answer, type);
  }
  if (ArrayBuffer.isView(answer) && isPlain(type) && answer.constructor === type.ArrayType) {
    return ofVector(makeVector(answer as Int32Array), type);
  }
  return built(Array.isArray(answer) ? answer : Array.from(answer as Iterable<unknown>), type);
}

/** Make a column without rows. */
export function emptyColumn(type: DataType): Data {
  return built([], type);
}

function ofVector(vector: Vector, type: DataType): Data {
  if (typeText(vector.type as DataType) !== typeText(type)) {
    throw new TypeError(
      `the function gave a Vector of ${typeText(vector.type as DataType)}, and its output is ${typeText(type)}`,
    );
  }
  const [only, ...others] = vector.data;
  return only !== undefined && others.length === 0 ? (only as Data) : built([...(vector as Iterable<unknown>)], type);
}

/** Types whose values a typed array holds as they are. */
function isPlain(type: DataType): boolean {
  return DataType.isInt(type) || (DataType.isFloat(type) && type.precision !== Precision.HALF);
}

function built(values: readonly unknown[], type: DataType): Data {
  const builder = makeBuilder({ type, nullValues: [null, undefined] });
  const convert = converter(type);
  values.forEach((value, row) => {
    if (value === null || value === undefined) {
      builder.append(null);
      return;
    }
    const converted = convert(value);
    if (converted === undefined) {
      throw new TypeError(`row ${String(row)}: ${describe(value)} is no ${typeText(type)}`);
    }
    builder.append(converted);
  });
  return builder.finish().flush() as Data;
}

/** What makes values fit; undefined: they are none of the type. Of types that are not simple arrow is believed. */
function converter(type: DataType): (value: unknown) => unknown {
  if (DataType.isInt(type)) {
    return whole(type.bitWidth, type.isSigned);
  }
  if (DataType.isFloat(type)) {
    return only("number");
  }
  if (DataType.isUtf8(type) || DataType.isLargeUtf8(type)) {
    return only("string");
  }
  if (DataType.isBool(type)) {
    return only("boolean");
  }
  if (DataType.isBinary(type) || DataType.isLargeBinary(type)) {
    return (value) => (value instanceof Uint8Array ? value : undefined);
  }
  return (value) => value;
}

function only(kind: "number" | "string" | "boolean"): (value: unknown) => unknown {
  return (value) => (typeof value === kind ? value : undefined);
}

function whole(bits: number, signed: boolean): (value: unknown) => number | bigint | undefined {
  const least = signed ? -(2n ** BigInt(bits - 1)) : 0n;
  const most = 2n ** BigInt(signed ? bits - 1 : bits) - 1n;
  const [from, to] = [Number(least), Number(most)];
  if (bits < 64) {
    const fits = (value: number): boolean => Number.isInteger(value) && value >= from && value <= to;
    return (value) => (typeof value === "number" && fits(value) ? value : undefined);
  }
  return (value) => {
    const found = Number.isSafeInteger(value) ? BigInt(value as number) : value;
    return typeof found === "bigint" && found >= least && found <= most ? found : undefined;
  };
}

function describe(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
