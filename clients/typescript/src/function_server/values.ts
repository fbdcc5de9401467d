import { DataType, makeVector, Precision, Vector, type Data, type Field } from "apache-arrow";

import { isOfOtherArrow, OTHER_ARROW } from "../arguments.js";
import { column, valuesOf } from "./columns.js";
import { typeText, type Answer } from "./functions.js";
import { describe, type Place } from "./leaves.js";

/**
 * Make a column from the result of a function. Throws a TypeError or RangeError if the result is not a column with
 * these rows.
 */
export function columnOf(answer: Answer, type: DataType, rows: number): Data {
  const isVector = answer instanceof Vector;
  if (!isVector && isOfOtherArrow(answer)) {
    throw new TypeError(`the function gave a Vector ${OTHER_ARROW}`);
  }
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
  return column(Array.isArray(answer) ? answer : Array.from(answer as Iterable<unknown>), type, ofRow);
}

/** Make a column without rows. */
export function emptyColumn(type: DataType): Data {
  return column([], type, ofRow);
}

function ofVector(vector: Vector, type: DataType): Data {
  if (typeText(vector.type as DataType) !== typeText(type)) {
    throw new TypeError(
      `the function gave a Vector of ${typeText(vector.type as DataType)}, and its output is ${typeText(type)}`,
    );
  }
  const [only, ...others] = vector.data;
  const isWhole = only !== undefined && others.length === 0;
  return isWhole ? retyped(only as Data, type) : column(valuesOf(vector, type), type, ofRow);
}

/** Give data the exact type objects of the schema: apache-arrow finds dictionaries by the id of theirs. */
function retyped(data: Data, type: DataType): Data {
  const types = (type.children as readonly Field[] | null | undefined) ?? [];
  const children = (data.children as readonly Data[]).map((child, at) => {
    const field = types[at];
    return field === undefined ? child : retyped(child, field.type as DataType);
  });
  return data.clone(type, data.offset, data.length, data.nullCount, undefined, children);
}

/** Return whether a typed array holds the values of a type unchanged. */
function isPlain(type: DataType): boolean {
  return DataType.isInt(type) || (DataType.isFloat(type) && type.precision !== Precision.HALF);
}

function ofRow(row: number): Place {
  return { row, path: "" };
}
