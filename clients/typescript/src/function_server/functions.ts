import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

import { DataType, Field, Schema, type RecordBatch, type Vector } from "apache-arrow";

import { isOfOtherArrow, OTHER_ARROW } from "../arguments.js";
import { encodeSchema } from "../arrow.js";
import { invalid } from "../errors.js";

/** The parameters of a function by name, in their order. */
export type Inputs = Readonly<Record<string, DataType>>;

/** What a call gives: a value for each row, null for none. Whole numbers of 64 bits may be `number` or `bigint`. */
export type Answer = Vector | readonly unknown[] | Exclude<NodeJS.ArrayBufferView, DataView>;

/** A function that computes a column, a batch of rows at a time. */
export interface ServedFunction {
  name: string;
  inputs: Inputs;
  /** The type of its values. */
  output: DataType;
  /**
   * Compute a batch, whose columns are `inputs`. What it throws is told to Leman, whose error policy decides about the
   * batch; the name of the error is what its rules name. `signal` aborts when no one waits for the answer any more.
   */
  call: (batch: RecordBatch, signal: AbortSignal) => Answer | Promise<Answer>;
  /**
   * Another one whenever what it computes is another: 1 to 128 of `A-Z a-z 0-9 _ . -`. Undefined: made of the program's
   * main file and of the text of `call`. What these import is no part of it: see `versionOf`.
   */
  version?: string | undefined;
  /** For people. */
  description?: string | undefined;
}

/** A function, ready to be served. */
export interface Prepared {
  readonly name: string;
  readonly version: string;
  readonly inputs: Schema;
  /** The schema of the answers, which says whose they are. */
  readonly output: Schema;
  readonly call: ServedFunction["call"];
  /** What the server says of it when it is asked. */
  readonly description: Uint8Array;
}

const VERSION = /^[A-Za-z0-9_.-]{1,128}$/;
const DIGITS = 12;

/** Make a version of the content of files, such as that of a module and of the model that it reads. */
export function versionOf(...files: readonly (string | URL)[]): string {
  return digestOf(files.map((file) => readFileSync(file)));
}

/**
 * Make a function of batches of one that is given the values of a row, in the order of `inputs`, and gives one: `null` is
 * none. Rows are computed one after the other.
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
  return Object.assign(call, { toString: () => compute.toString() }); // versions are made of the text
}

/** Check a function, and work out what is said of it. */
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

/** Tell what is wrong with the types of a client's columns; undefined: nothing. Names of columns are not compared. */
export function mismatch(wanted: Schema, given: Schema): string | undefined {
  const [types, others] = [wanted, given].map(({ fields }) =>
    fields.map((field) => typeText(field.type as DataType)).join(", "),
  );
  return types === others ? undefined : `it takes (${String(types)}), not (${String(others)})`;
}

/** Write a type so that two are the same when their texts are. */
export function typeText(type: DataType): string {
  const { toString: text } = type as { toString: () => string };
  return [text.call(type), ...widths(type)].join(" ");
}

/** Widths of the decimals in a type, which its text lacks. */
function widths(type: DataType): string[] {
  const own = DataType.isDecimal(type) ? [`of ${String(type.bitWidth)} bits`] : [];
  return [...own, ...children(type).flatMap(widths)];
}

/** Throw INVALID_ARGUMENT for a type that others cannot read, or that has no values here. */
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

/** What is wrong with a type itself, whatever is in it; undefined: nothing. */
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
  const fields = type.children as readonly Field[] | null | undefined; // types without any have none, or null
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
