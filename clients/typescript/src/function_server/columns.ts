import { DataType, makeData, MapRow, StructRow, Vector, type Data, type Field } from "apache-arrow";

import { typeText } from "./functions.js";
import {
  describe,
  eachOf,
  isBytes,
  isNone,
  leaf,
  made,
  misfit,
  offsetsOf,
  type Places,
  type Values,
} from "./leaves.js";

/**
 * Make a column from values; null and undefined become NULL. Throws a TypeError that says where a value does not fit
 * its type, at any depth.
 */
export function column(values: Values, type: DataType, places: Places): Data {
  const found = leaf(values, type, places);
  if (found !== undefined) {
    return found;
  }
  if (DataType.isDictionary(type)) {
    return dictionary(values, type, places);
  }
  if (DataType.isStruct(type)) {
    return struct(values, type, places);
  }
  if (DataType.isMap(type)) {
    return map(values, type, places);
  }
  if (DataType.isFixedSizeList(type)) {
    return fixedSizeList(values, type, places);
  }
  if (DataType.isList(type) || DataType.isLargeList(type)) {
    return list(values, type, places);
  }
  eachOf(values, (value, at) => {
    throw misfit(value, type, places(at)); // of Null
  });
  return makeData({ type, length: values.length } as never) as Data;
}

/**
 * Return the values of a Vector. Timestamps of the wanted type are exact; apache-arrow itself would return
 * milliseconds.
 */
export function valuesOf(vector: Vector, wanted: DataType): unknown[] {
  if (!DataType.isTimestamp(wanted) || typeText(vector.type as DataType) !== typeText(wanted)) {
    return [...(vector as Iterable<unknown>)];
  }
  return vector.data.flatMap((data) =>
    Array.from(data.values as BigInt64Array, (value, at) => (data.getValid(at) ? value : null)).slice(0, data.length),
  );
}

/** Return the items of a list; undefined if the value is not a list. */
function itemsOf(value: unknown, item: DataType): Values | undefined {
  if (value instanceof Vector) {
    return valuesOf(value, item);
  }
  const isTyped = ArrayBuffer.isView(value) && !(value instanceof DataView);
  return isTyped ? Array.from(value as unknown as Iterable<unknown>) : Array.isArray(value) ? value : undefined;
}

/** Throw if a field that is not nullable has no value. */
function checkPresent(values: Values, { type, nullable }: Field, places: Places): void {
  if (nullable) {
    return;
  }
  for (let at = 0; at < values.length; at += 1) {
    if (isNone(values[at])) {
      throw misfit(values[at], type as DataType, places(at), ", and its field is not nullable");
    }
  }
}

function itemOf(type: DataType): Field {
  const [item] = type.children as readonly Field[];
  return item as Field;
}

function list(values: Values, type: DataType, places: Places): Data {
  const item = itemOf(type);
  const items: unknown[] = [];
  const owners: number[] = [];
  const lengths = Array.from<number>({ length: values.length }).fill(0);
  const within: Places = (at) => {
    const owner = owners[at] ?? 0;
    const { row, path } = places(owner);
    return { row, path: `${path}[${String(at - owners.indexOf(owner))}]` };
  };
  eachOf(values, (value, at) => {
    const found = itemsOf(value, item.type as DataType);
    if (found === undefined) {
      throw misfit(value, type, places(at));
    }
    lengths[at] = found.length;
    for (const each of found) {
      items.push(each);
      owners.push(at);
    }
  });
  checkPresent(items, item, within);
  const valueOffsets = offsetsOf(lengths, DataType.isLargeList(type));
  return made(values, type, { valueOffsets, child: column(items, item.type as DataType, within) });
}

function fixedSizeList(values: Values, type: DataType & { listSize: number }, places: Places): Data {
  const item = itemOf(type);
  const size = type.listSize;
  const items: unknown[] = Array.from({ length: values.length * size });
  const within: Places = (at) => {
    const { row, path } = places(Math.floor(at / size));
    return { row, path: `${path}[${String(at % size)}]` };
  };
  eachOf(values, (value, at) => {
    const found = itemsOf(value, item.type as DataType);
    if (found?.length !== size) {
      throw misfit(value, type, places(at));
    }
    for (let each = 0; each < size; each += 1) {
      items[at * size + each] = found[each];
    }
    checkPresent(found, item, (each) => within(at * size + each));
  });
  return made(values, type, { child: column(items, item.type as DataType, within) });
}

/** Reads the fields of a value; `names` are those that the value has. */
interface Fields {
  readonly names: readonly string[];
  readonly get: (name: string) => unknown;
}

/** Return whether a value has a field of that name, other than the properties that every object has. */
function hasField(value: object, name: string): boolean {
  return Object.hasOwn(value, name) || (name in value && !(name in Object.prototype));
}

/** Return the fields of a struct, by name or in order; undefined if the value is not a struct. */
function fieldsOf(value: unknown, known: readonly string[]): Fields | undefined {
  if (value instanceof Map) {
    return { names: [...value.keys()].map(String), get: (name) => value.get(name) as unknown };
  }
  if (Array.isArray(value)) {
    return value.length === known.length
      ? { names: [], get: (name) => value[known.indexOf(name)] as unknown }
      : undefined;
  }
  if (typeof value !== "object" || value === null) {
    return undefined;
  }
  if (value instanceof StructRow) {
    return fieldsOf(StructRow.prototype.toJSON.call(value), known); // an instance also has the names of its class
  }
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === null || prototype === Object.prototype;
  if (!isPlain && !known.some((name) => hasField(value, name))) {
    return undefined; // such as a Date
  }
  const get = (name: string): unknown =>
    hasField(value, name) ? (value as Readonly<Record<string, unknown>>)[name] : undefined;
  return { names: Object.keys(value), get };
}

/** A missing field becomes NULL; a field that the type does not have is refused. */
function struct(values: Values, type: DataType, places: Places): Data {
  const fields = type.children as readonly Field[];
  const known = fields.map(({ name }) => name);
  const columns = fields.map(() => Array.from<unknown>({ length: values.length }));
  const within =
    (name: string): Places =>
    (at) => {
      const { row, path } = places(at);
      return { row, path: path === "" ? name : `${path}.${name}` };
    };
  eachOf(values, (value, at) => {
    const found = fieldsOf(value, known);
    const surplus = found?.names.find((name) => !known.includes(name));
    if (found === undefined || surplus !== undefined) {
      const why = surplus === undefined ? "" : `, which has no field ${JSON.stringify(surplus)}`;
      throw misfit(value, type, places(at), why);
    }
    fields.forEach((field, each) => {
      const inside = found.get(field.name);
      (columns[each] as unknown[])[at] = inside;
      checkPresent([inside], field, () => within(field.name)(at));
    });
  });
  const children = fields.map(({ name, type: child }, each) =>
    column(columns[each] as unknown[], child as DataType, within(name)),
  );
  return made(values, type, { children });
}

/** Return the entries of a map; undefined if the value is not a map. */
function entriesOf(value: unknown): (readonly [unknown, unknown])[] | undefined {
  if (value instanceof Map || value instanceof MapRow) {
    return [...(value as Iterable<readonly [unknown, unknown]>)];
  }
  const prototype: unknown = typeof value === "object" && value !== null ? Object.getPrototypeOf(value) : undefined;
  return prototype === null || prototype === Object.prototype ? Object.entries(value as object) : undefined;
}

/** Accepts a list of keys and values, a Map, or an object. */
function map(values: Values, type: DataType, places: Places): Data {
  const entry = itemOf(type).type as DataType;
  const [keyField, valueField] = entry.children as readonly Field[] as readonly [Field, Field];
  const keys: unknown[] = [];
  const inside: unknown[] = [];
  const owners: number[] = [];
  const lengths = Array.from<number>({ length: values.length }).fill(0);
  const within =
    (what: string): Places =>
    (at) => {
      const { row, path } = places(owners[at] ?? 0);
      return { row, path: `${path}[${describe(keys[at])}]${what}` };
    };
  eachOf(values, (value, at) => {
    const found = entriesOf(value);
    if (found === undefined) {
      throw misfit(value, type, places(at));
    }
    lengths[at] = found.length;
    for (const [key, each] of found) {
      keys.push(key);
      inside.push(each);
      owners.push(at);
    }
  });
  const [ofKeys, ofValues] = [within(".key"), within("")];
  checkPresent(keys, keyField, ofKeys);
  checkPresent(inside, valueField, ofValues);
  const children = [
    column(keys, keyField.type as DataType, ofKeys),
    column(inside, valueField.type as DataType, ofValues),
  ];
  const child = makeData({ type: entry, length: keys.length, nullCount: 0, children } as never) as Data;
  return made(values, type, { valueOffsets: offsetsOf(lengths, false), child });
}

type Indices = DataType & { bitWidth: number; isSigned: boolean };

function dictionary(
  values: Values,
  type: DataType & { indices: DataType; dictionary: DataType },
  places: Places,
): Data {
  const { bitWidth, isSigned } = type.indices as Indices;
  const room = 2 ** (isSigned ? bitWidth - 1 : bitWidth);
  const keyOf = keysFor(type.dictionary);
  const known = new Map<unknown, number>();
  const distinct: unknown[] = [];
  const firstAt: number[] = [];
  const indices = new (type.indices.ArrayType as new (length: number) => Record<number, number | bigint>)(
    values.length,
  );
  eachOf(values, (value, at) => {
    const key = keyOf(value);
    let index = known.get(key);
    if (index === undefined) {
      index = distinct.push(value) - 1;
      firstAt.push(at);
      known.set(key, index);
    }
    indices[at] = bitWidth < 64 ? index : BigInt(index);
  });
  const found = new Vector([column(distinct, type.dictionary, (at) => places(firstAt[at] ?? 0))]);
  if (distinct.length > room) {
    const most = `${String(room)} values at the most`;
    throw new RangeError(`${typeText(type)} has ${most}, and these rows have ${String(distinct.length)}`);
  }
  return made(values, type, { data: indices, dictionary: found });
}

const MINUS_ZERO = Symbol("-0");

/** Return a function that makes equal keys for equal values of a dictionary. */
function keysFor(type: DataType): (value: unknown) => unknown {
  if (isBytes(type) || DataType.isFixedSizeBinary(type)) {
    return (value) => (value instanceof Uint8Array ? Buffer.from(value).toString("latin1") : {});
  }
  return (value) => (value instanceof Date ? value.getTime() : Object.is(value, -0) ? MINUS_ZERO : value);
}
