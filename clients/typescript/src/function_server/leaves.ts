import { DataType, makeBuilder, makeData, type Data } from "apache-arrow";

import { hasHalfPair } from "../texts.js";
import { typeText } from "./functions.js";
import { decimalWords, scalar, type Convert } from "./scalars.js";

/** The location of a value: its row, and its path within the row's value, such as `[1].name`. */
export interface Place {
  readonly row: number;
  readonly path: string;
}

/** Returns the location of the value at an index. */
export type Places = (at: number) => Place;

/** Values of a column; null and undefined are NULL. */
export type Values = readonly unknown[];

/** Make a column of a type without child types; undefined for any other type. See `column`. */
export function leaf(values: Values, type: DataType, places: Places): Data | undefined {
  const convert = scalar(type);
  if (convert !== undefined) {
    return made(values, type, { data: numbersIn(values, type, convert, places) });
  }
  if (DataType.isBool(type)) {
    return made(values, type, { data: bitsOf(values, type, places) });
  }
  if (DataType.isDecimal(type) || DataType.isFixedSizeBinary(type)) {
    return made(values, type, { data: wideIn(values, type, places) });
  }
  return isText(type) || isBytes(type) ? variable(values, type, places) : undefined;
}

/** Make the error for a value that does not fit its type. */
export function misfit(value: unknown, type: DataType, { row, path }: Place, why = ""): TypeError {
  const where = path === "" ? `row ${String(row)}` : `row ${String(row)}: ${path}`;
  const tooLarge = DataType.isFloat(type) && typeof value === "number";
  const hint = DataType.isDecimal(type) && typeof value !== "string" ? ': give an exact text, such as "1.50"' : why;
  return new TypeError(`${where}: ${describe(value)} is ${tooLarge ? "too large for" : "no"} ${typeText(type)}${hint}`);
}

/** Return whether a value is null or undefined. */
export function isNone(value: unknown): boolean {
  return value === null || value === undefined;
}

/** Write a value for a message, shortened if it is long. */
export function describe(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : written(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

function written(value: unknown): string {
  if (Array.isArray(value)) {
    return `an array of ${String(value.length)}`;
  }
  try {
    return String(value);
  } catch {
    return "an object"; // such as one without a prototype
  }
}

/** Call a function for each value that is not null. */
export function eachOf(values: Values, each: (value: unknown, at: number) => void): void {
  for (let at = 0; at < values.length; at += 1) {
    const value = values[at]; // forEach would skip a hole, which is NULL
    if (!isNone(value)) {
      each(value, at);
    }
  }
}

/** Make a column from its parts and the NULLs among its values. */
export function made(values: Values, type: DataType, parts: object): Data {
  const nullBitmap = new Uint8Array(Math.ceil(values.length / 8));
  let nullCount = values.length;
  eachOf(values, (_, at) => {
    nullCount -= 1;
    setBit(nullBitmap, at);
  });
  const nulls = nullCount === 0 ? { nullCount } : { nullCount, nullBitmap };
  return makeData({ type, length: values.length, ...nulls, ...parts } as never) as Data;
}

function setBit(bits: Uint8Array, at: number): void {
  bits[at >> 3] = (bits[at >> 3] ?? 0) | (1 << (at & 7));
}

type Numbers = Record<number, number | bigint>;

function numbersIn(values: Values, type: DataType, convert: Convert, places: Places): unknown {
  const data = new (type.ArrayType as new (length: number) => Numbers)(values.length);
  eachOf(values, (value, at) => {
    const found = convert(value);
    if (found === undefined) {
      throw misfit(value, type, places(at));
    }
    data[at] = found;
  });
  return data;
}

function bitsOf(values: Values, type: DataType, places: Places): Uint8Array {
  const bits = new Uint8Array(Math.ceil(values.length / 8));
  eachOf(values, (value, at) => {
    if (typeof value !== "boolean") {
      throw misfit(value, type, places(at));
    }
    if (value) {
      setBit(bits, at);
    }
  });
  return bits;
}

/** Make the data of values with a fixed number of words or bytes. */
function wideIn(values: Values, type: DataType, places: Places): Uint32Array | Uint8Array {
  const isDecimal = DataType.isDecimal(type);
  const stride = isDecimal ? type.bitWidth / 32 : (type as DataType & { byteWidth: number }).byteWidth;
  const data = new (isDecimal ? Uint32Array : Uint8Array)(values.length * stride);
  const convert = (value: unknown): Uint32Array | Uint8Array | undefined =>
    isDecimal ? decimalWords(value, type) : bytesOf(value);
  eachOf(values, (value, at) => {
    const found = convert(value);
    if (found?.length !== stride) {
      throw misfit(value, type, places(at), found && `, but ${String(found.length)} bytes`);
    }
    data.set(found, at * stride);
  });
  return data;
}

function isText(type: DataType): boolean {
  return DataType.isUtf8(type) || DataType.isLargeUtf8(type) || DataType.isUtf8View(type);
}

/** Return whether the values of a type are bytes. */
export function isBytes(type: DataType): boolean {
  return DataType.isBinary(type) || DataType.isLargeBinary(type) || DataType.isBinaryView(type);
}

function bytesOf(value: unknown): Uint8Array | undefined {
  return value instanceof Uint8Array ? value : undefined;
}

/** Encode a text; undefined if it is not a text, or has an unpaired surrogate, which UTF-8 cannot encode. */
function encoded(value: unknown): Uint8Array | undefined {
  return typeof value === "string" && !hasHalfPair(value) ? Buffer.from(value) : undefined;
}

/** Make a column of texts or bytes. */
function variable(values: Values, type: DataType, places: Places): Data {
  const found = Array.from<Uint8Array | undefined>({ length: values.length });
  const convert = isText(type) ? encoded : bytesOf;
  eachOf(values, (value, at) => {
    found[at] = convert(value);
    if (found[at] === undefined) {
      const half = typeof value === "string" && isText(type);
      throw misfit(value, type, places(at), half ? ": it has half of a surrogate pair" : "");
    }
  });
  if (DataType.isUtf8View(type) || DataType.isBinaryView(type)) {
    const builder = makeBuilder<DataType>({ type, nullValues: [null, undefined] });
    for (const value of values) {
      builder.append(value); // a hole is NULL, too
    }
    return builder.finish().flush() as Data;
  }
  const valueOffsets = offsetsOf(
    found.map((each) => each?.length ?? 0),
    DataType.isLargeUtf8(type) || DataType.isLargeBinary(type),
  );
  const data = Buffer.concat(found.filter((each) => each !== undefined));
  return made(values, type, { valueOffsets, data });
}

/** Return the offsets of values with these lengths. */
export function offsetsOf(lengths: readonly number[], large: boolean): Int32Array | BigInt64Array {
  const offsets = [0];
  for (const length of lengths) {
    offsets.push((offsets.at(-1) ?? 0) + length);
  }
  return large ? BigInt64Array.from(offsets, BigInt) : Int32Array.from(offsets);
}
