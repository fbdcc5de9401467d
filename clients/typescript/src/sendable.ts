import {
  create,
  ScalarType,
  type DescField,
  type DescMessage,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { reflect, type ReflectMessage } from "@bufbuild/protobuf/reflect";

import { checkPairs } from "./arguments.js";
import { invalid } from "./errors.js";

/**
 * Make a message. Throws INVALID_ARGUMENT, with the path of the field, if it cannot be sent unchanged: for a number out
 * of the field's range, or a text with an unpaired surrogate.
 */
export function sendable<D extends DescMessage>(schema: D, request: MessageInitShape<D>): MessageShape<D> {
  const message = create(schema, request);
  checkFields(reflect(schema, message, false), "");
  return message;
}

function checkFields(message: ReflectMessage, place: string): void {
  for (const field of message.fields) {
    if (message.isSet(field)) {
      checkField(message, field, place + field.localName);
    }
  }
}

function checkField(message: ReflectMessage, field: DescField, name: string): void {
  const value: unknown = message.get(field);
  if (field.fieldKind === "list") {
    [...(value as Iterable<unknown>)].forEach((each, at) => {
      checkValue(field.scalar, each, `${name}[${String(at)}]`);
    });
  } else if (field.fieldKind === "map") {
    for (const [key, each] of value as Iterable<[unknown, unknown]>) {
      checkValue(field.mapKey, key, name);
      checkValue(field.scalar, each, `${name}.${String(key)}`);
    }
  } else {
    checkValue(field.scalar, value, name);
  }
}

const BITS: Partial<Record<ScalarType, [bits: number, signed: boolean]>> = {
  [ScalarType.INT32]: [32, true],
  [ScalarType.SINT32]: [32, true],
  [ScalarType.SFIXED32]: [32, true],
  [ScalarType.UINT32]: [32, false],
  [ScalarType.FIXED32]: [32, false],
  [ScalarType.INT64]: [64, true],
  [ScalarType.SINT64]: [64, true],
  [ScalarType.SFIXED64]: [64, true],
  [ScalarType.UINT64]: [64, false],
  [ScalarType.FIXED64]: [64, false],
};

function checkValue(scalar: ScalarType | undefined, value: unknown, name: string): void {
  if (typeof value === "string") {
    checkPairs(name, value);
  } else if (scalar === undefined) {
    if (typeof value === "object" && value !== null && "fields" in value) {
      checkFields(value as ReflectMessage, `${name}.`);
    }
  } else {
    checkNumber(scalar, value, name);
  }
}

function checkNumber(scalar: ScalarType, value: unknown, name: string): void {
  const [bits, signed] = BITS[scalar] ?? [];
  if (bits === undefined || !["number", "bigint"].includes(typeof value)) {
    return;
  }
  const given = Number.isInteger(value) || typeof value === "bigint" ? BigInt(value as number | bigint) : undefined;
  if (given === undefined || given !== (signed === true ? BigInt.asIntN(bits, given) : BigInt.asUintN(bits, given))) {
    throw invalid(
      name,
      `${name} is a whole number of ${String(bits)} bits${signed === true ? "" : " from 0 on"}, not ${String(value)}`,
    );
  }
}
