import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import { DataType, Field, Schema, type RecordBatch, type Vector } from "apache-arrow";

import { isOfOtherArrow, OTHER_ARROW } from "../arguments.js";
import { encodeSchema } from "../arrow.js";
import { invalid } from "../errors.js";

/** The parameters of a function by name, in order. */
export type Inputs = Readonly<Record<string, DataType>>;

/** The result of a call: a value for each row; null for NULL. 64-bit integers may be `number` or `bigint`. */
export type Answer = Vector | readonly unknown[] | Exclude<NodeJS.ArrayBufferView, DataView>;

/** A function that computes a column, one batch of rows at a time. */
export interface ServedFunction {
  name: string;
  inputs: Inputs;
  /** The type of its values. */
  output: DataType;
  /**
   * Compute a batch with the columns `inputs`. If it throws, Leman's error policy decides about the batch; rules match
   * the error's name. `signal` aborts when the result is no longer needed.
   */
  call: (batch: RecordBatch, signal: AbortSignal) => Answer | Promise<Answer>;
  /**
   * The version: 1 to 128 characters of `A-Z a-z 0-9 _ . -`. Change it whenever the function computes other values.
   * Undefined: a digest of the program's main file and the text of `call`. It does not cover what these import: see
   * `versionOf`.
   */
  version?: string | undefined;
  /** A description for people. */
  description?: string | undefined;
}

/** A function, ready to be served. */
export interface Prepared {
  readonly name: string;
  readonly version: string;
  readonly inputs: Schema;
  /** The schema of results, which names the function and its version. */
  readonly output: Schema;
  readonly call: ServedFunction["call"];
  /** The description that the server sends to clients. */
  readonly description: Uint8Array;
}

const VERSION = /^[A-Za-z0-9_.-]{1,128}$/;
const DIGITS = 12;

/** Make a version from the content of files, such as a module and the model that it reads. */
export function versionOf(...files: readonly (string | URL)[]): string {
  return digestOf(files.map((file) => readFileSync(file)));
}

/**
 * Make a batch function from a function that takes the values of a row, in the order of `inputs`, and returns one
 * value, or `null`. It computes one row after the other.
 */
export function eachRow(compute: (...values: never[]) => unknown): ServedFunction["call"] {
  const call: ServedFunction["call"] = async (batch, signal) => {
    const columns = batch.schema.fields.map((_, at) => batch.getChildAt(at));
    const answer: unknown[] = [];
    for (let row = 0; row < batch.numRows; row += 1) {
      const values = columns.map((column) => column?.get(row) as never);
      const value = compute(...values);
      if (value instanceof Promise) {
        answer.push(await value);
        signal.throwIfAborted();
      } else {
        answer.push(value);
      }
    }
    return answer;
  };
  return Object.assign(call, { toString: () => compute.toString() }); // the version is a digest of this text
}

/** Check a function, and prepare its schemas and description. */
export function prepared(given: ServedFunction): Prepared {
  if (given.name === "") {
    throw invalid("name", "a function needs a name");
  }
  const { name, version = defaultVersion(given) } = given;
  if (!VERSION.test(version)) {
    throw invalid("version", `version ${JSON.stringify(version)} of ${name} is not 1 to 128 of A-Z a-z 0-9 _ . -`);
  }
  const fields = Object.entries(given.inputs).map(([input, type]) => new Field(input, type, true));
  for (const { name: input, type } of fields) {
    if (hasDictionary(type)) {
      throw invalid(
        "inputs",
        `input ${input} of ${name} is a ${typeText(type)}: it arrives plain, so say what is in it`,
      );
    }
  }
  if (fields.length === 0) {
    throw invalid("inputs", `${name} has no inputs`);
  }
  for (const { name: input, type } of fields) {
    checkType("inputs", `input ${input} of ${name}`, type);
  }
  checkType("output", `the output of ${name}`, given.output);
  const inputs = new Schema(fields);
  const value = new Field("value", given.output, true);
  const identity = new Map([
    ["leman.function", name],
    ["leman.version", version],
  ]);
  const told = {
    function: name,
    version,
    inputs: Buffer.from(encodeSchema(inputs)).toString("base64"),
    output: Buffer.from(encodeSchema(new Schema([value]))).toString("base64"),
    ...(given.description !== undefined && { description: given.description }),
  };
  const description = Buffer.from(JSON.stringify(told));
  return { name, version, inputs, output: new Schema([value], identity), call: given.call, description };
}

/** Return what is wrong with the types of a client's columns; undefined if they match. Names are not compared. */
export function mismatch(wanted: Schema, given: Schema): string | undefined {
  const [types, others] = [wanted, given].map(({ fields }) =>
    fields.map((field) => typeText(field.type as DataType)).join(", "),
  );
  return types === others ? undefined : `it takes (${String(types)}), not (${String(others)})`;
}

/** Write a type as a text that is equal for equal types only. */
export function typeText(type: DataType): string {
  const { toString: text } = type as { toString: () => string };
  return [text.call(type), ...widths(type)].join(" ");
}

/** Return the bit widths of the decimals in a type, which its text does not have. */
function widths(type: DataType): string[] {
  const own = DataType.isDecimal(type) ? [`of ${String(type.bitWidth)} bits`] : [];
  return [...own, ...children(type).flatMap(widths)];
}

/** Throw INVALID_ARGUMENT for a type that other implementations cannot read, or that this server does not support. */
function checkType(field: string, what: string, type: DataType): void {
  if (isOfOtherArrow(type)) {
    throw invalid(field, `the type of ${what} is ${OTHER_ARROW}`);
  }
  const wrong = wrongWith(type);
  if (wrong !== undefined) {
    throw invalid(field, `${what} has the type ${typeText(type)}: ${wrong}`);
  }
  for (const child of children(type)) {
    checkType(field, what, child);
  }
  if (DataType.isDictionary(type)) {
    checkType(field, what, type.dictionary as DataType);
  }
}

/** Return what is wrong with a type itself, ignoring its children; undefined if nothing is. */
function wrongWith(type: DataType): string | undefined {
  if (DataType.isMap(type)) {
    return wrongWithMap(type);
  }
  if (DataType.isDecimal(type)) {
    const most = DIGITS_IN[type.bitWidth];
    const fits = most !== undefined && type.precision >= 1 && type.precision <= most;
    return fits ? undefined : "decimals have 128 bits and 1 to 38 digits, or 256 and 1 to 76";
  }
  if (DataType.isUnion(type) || DataType.isInterval(type)) {
    return "no column of a table has it";
  }
  return undefined;
}

const DIGITS_IN: Readonly<Record<number, number>> = { 128: 38, 256: 76 };

function wrongWithMap(type: DataType): string | undefined {
  const [entries] = (type.children as readonly Field[] | null) ?? [];
  const inside = entries === undefined ? [] : ((entries.type as DataType).children as readonly Field[]);
  if (inside.length !== 2) {
    return "the entries of a map are a struct of its key and its value";
  }
  const nullable = entries?.nullable === true || inside[0]?.nullable === true;
  return nullable ? "the entries and the key of a map are not nullable: say so, `new Field(…, …, false)`" : undefined;
}

function hasDictionary(type: DataType): boolean {
  return DataType.isDictionary(type) || children(type).some(hasDictionary);
}

function children(type: DataType): DataType[] {
  const fields = type.children as readonly Field[] | null | undefined; // may be null without children
  return (fields ?? []).map((field) => field.type as DataType);
}

function defaultVersion({ call }: ServedFunction): string {
  const [, main] = process.argv;
  return digestOf([...(main === undefined ? [] : [readFileSync(main)]), Buffer.from(call.toString())]);
}

function digestOf(parts: readonly Uint8Array[]): string {
  const whole = createHash("sha256");
  for (const part of parts) {
    whole.update(createHash("sha256").update(part).digest());
  }
  return whole.digest("hex").slice(0, DIGITS);
}
