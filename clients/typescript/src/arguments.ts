import { DataType, RecordBatch, Schema, Table, Vector } from "apache-arrow";

import { invalid } from "./errors.js";
import { nearest } from "./nearest.js";
import { hasHalfPair } from "./texts.js";

/** A kind of argument: which values are allowed. */
export interface Kind {
  readonly told: string;
  readonly admits: (value: unknown) => boolean;
  /** Whether error messages may contain a refused value, because it is not a secret. */
  readonly shows?: boolean;
  /** Check the inside of an allowed value. Throws INVALID_ARGUMENT. */
  readonly inside?: (name: string, value: unknown) => void;
}

/** The kind of each named field. */
export type Fields = Readonly<Record<string, Kind>>;

/** The kind of each option. */
export type Kinds<T> = { readonly [K in keyof Required<T>]: Kind };

export const text: Kind = {
  told: "a string",
  admits: (value) => typeof value === "string",
  inside: (name, value) => {
    checkPairs(name, value as string);
  },
};
export const flag: Kind = { told: "true or false", admits: (value) => typeof value === "boolean" };
export const integer: Kind = { told: "a whole number", admits: Number.isSafeInteger };
export const whole: Kind = {
  told: "a whole number of 64 bits",
  admits: (value) => (typeof value === "bigint" ? value === BigInt.asIntN(64, value) : Number.isSafeInteger(value)),
};
/** The number of a version of a table, which is at least 1. */
export const version: Kind = {
  told: "a version from 1 on",
  admits: (value) => whole.admits(value) && (value as number | bigint) >= 1,
};
export const callback: Kind = { told: "a function", admits: (value) => typeof value === "function" };
/** A duration, in milliseconds. */
export const duration: Kind = {
  told: "a finite number of milliseconds, 0 or more",
  admits: (value) => Number.isFinite(value) && (value as number) >= 0,
};
/** A waiting time, which may be infinite. */
export const wait: Kind = {
  told: "a number of milliseconds, 0 or more",
  admits: (value) => typeof value === "number" && value >= 0,
};
export const signal: Kind = {
  told: "an AbortSignal, such as the signal of an AbortController",
  admits: (value) =>
    isObject(value) && typeof value.aborted === "boolean" && typeof value.addEventListener === "function",
};
export const record: Kind = { told: "an object", admits: isObject };
export const names: Kind = {
  told: "an array of strings",
  admits: (value) => Array.isArray(value) && value.every((name) => typeof name === "string"),
  inside: (name, value) => {
    (value as string[]).forEach((each, at) => {
      checkPairs(`${name}[${String(at)}]`, each);
    });
  },
};
export const bytes: Kind = { told: "a Uint8Array", admits: (value) => value instanceof Uint8Array };
export const strings: Kind = {
  told: "an object whose values are strings",
  admits: (value) => isObject(value) && Object.values(value).every((each) => typeof each === "string"),
  inside: (name, value) => {
    for (const [key, each] of Object.entries(value as Record<string, string>)) {
      checkPairs(name, key);
      checkPairs(`${name}.${key}`, each);
    }
  },
};
export const schema: Kind = { told: "an Arrow schema", admits: (value) => value instanceof Schema };

/** Allow only certain strings. */
export function choice(...known: readonly string[]): Kind {
  return { told: `one of ${known.join(", ")}`, shows: true, admits: (value) => known.includes(value as string) };
}

/** Allow arrays whose items are of a kind. */
export function list(kind: Kind): Kind {
  return {
    told: "an array",
    admits: Array.isArray,
    inside: (name, value) => {
      (value as unknown[]).forEach((each, at) => {
        check(`${name}[${String(at)}]`, each, kind);
      });
    },
  };
}

/** Allow objects with only these fields, of which those in `required` must be set. */
export function object<T>(kinds: Kinds<T>, ...required: readonly (keyof T & string)[]): Kind {
  return {
    ...record,
    inside: (name, value) => {
      checkFields(value as object, kinds, `${name}.`);
      for (const field of required) {
        check(`${name}.${field}`, (value as Record<string, unknown>)[field], kinds[field]);
      }
    },
  };
}

/** Allow values of any of several kinds. */
export function either(...kinds: readonly Kind[]): Kind {
  return {
    told: kinds.map(({ told }) => told).join(", or "),
    admits: (value) => kinds.some((kind) => kind.admits(value)),
    inside: (name, value) => kinds.find((kind) => kind.admits(value))?.inside?.(name, value),
  };
}

/** Certificates and keys: a path or bytes. */
export const PEM = either(text, bytes);

/** What to do about a value from another copy of apache-arrow. This client's copy would write it unreadably. */
export const OTHER_ARROW =
  "of another copy of apache-arrow than this client's, which imports it as an ES module: import it so, and have one " +
  "release alone installed (npm ls apache-arrow shows which there are), or pass what tableFromIPC of this client's copy " +
  "reads of what tableToIPC of the other one writes";

/** Return whether a value looks like one of apache-arrow, but was made by another copy than this client's. */
export function isOfOtherArrow(value: unknown): boolean {
  if (!isObject(value)) {
    return false;
  }
  if ("numRows" in value && "numCols" in value && "schema" in value) {
    return !(isMadeBy(Table, value) || isMadeBy(RecordBatch, value)) || isOfOtherArrow(value.schema);
  }
  if (Array.isArray(value.fields) && value.metadata instanceof Map) {
    return !isMadeBy(Schema, value) || haveOtherTypes(value.fields as readonly { type: unknown }[]);
  }
  if ("numChildren" in value && Array.isArray(value.data)) {
    return !isMadeBy(Vector, value);
  }
  return typeof value.typeId === "number" && "ArrayType" in value && isOtherType(value);
}

/** `instanceof` does not help here: apache-arrow answers it with true for values of all of its copies. */
function isMadeBy(kind: { prototype: object }, value: object): boolean {
  return Object.prototype.isPrototypeOf.call(kind.prototype, value);
}

function haveOtherTypes(fields: readonly { type: unknown }[]): boolean {
  return fields.some(({ type }) => isObject(type) && isOtherType(type));
}

function isOtherType(type: Readonly<Record<string, unknown>>): boolean {
  const { children, dictionary } = type;
  return (
    !isMadeBy(DataType, type) ||
    (Array.isArray(children) && haveOtherTypes(children as readonly { type: unknown }[])) ||
    (isObject(dictionary) && isOtherType(dictionary))
  );
}

/** Throw INVALID_ARGUMENT with the argument's name if a value is not of its kind. */
export function check(name: string, value: unknown, kind: Kind): void {
  if (isOfOtherArrow(value)) {
    throw invalid(name, `${name} is ${OTHER_ARROW}`);
  }
  if (!kind.admits(value)) {
    throw invalid(
      name,
      `${name} is ${kind.told}, not ${kind.shows === true && typeof value === "string" ? JSON.stringify(value) : shown(value)}`,
    );
  }
  kind.inside?.(name, value);
}

/** Throw INVALID_ARGUMENT if an option is unknown or not of its kind. An undefined option counts as missing. */
export function checkOptions(options: unknown, kinds: Fields): void {
  if (options !== undefined) {
    check("options", options, record);
    checkFields(options as object, kinds, "");
  }
}

/** Throw INVALID_ARGUMENT if a field is unknown or not of its kind. `place` is the prefix of names in messages. */
function checkFields(values: object, kinds: Fields, place: string): void {
  for (const [name, value] of Object.entries(values)) {
    const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
    if (kind === undefined) {
      const known = Object.keys(kinds);
      const meant = nearest(name, known);
      const advice = meant === undefined ? `there are ${known.join(", ")}` : `do you mean ${place}${meant}?`;
      throw invalid(place + name, `unknown option '${place}${name}': ${advice}`);
    }
    if (value !== undefined) {
      check(place + name, value, kind);
    }
  }
}

/** Throw INVALID_ARGUMENT if a string has an unpaired surrogate, which would be sent as another character. */
export function checkPairs(name: string, value: string): void {
  if (hasHalfPair(value)) {
    throw invalid(
      name,
      `${name} is no text that can be sent: it has half of a surrogate pair, as if cut amid a character`,
    );
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Describe a value for a message, without its content if that may be secret. */
function shown(value: unknown): string {
  if (value === null || value === undefined || ["number", "boolean", "bigint"].includes(typeof value)) {
    return String(value);
  }
  if (typeof value === "object") {
    return Array.isArray(value) ? "an array" : `a value of ${constructorOf(value)}`;
  }
  return `a ${typeof value}`;
}

function constructorOf(value: object): string {
  const { constructor } = value as { constructor?: unknown };
  return typeof constructor === "function" ? constructor.name : "Object";
}
