import { create } from "@bufbuild/protobuf";
import { DurationSchema, TimestampSchema, type Duration, type Timestamp } from "@bufbuild/protobuf/wkt";

import { invalid } from "./errors.js";
import { UdfRefSchema, type UdfRef } from "./gen/leman/v1/udf_pb.js";

/** Convert a duration; undefined if it is not set. */
export function milliseconds(duration: Duration | undefined): number | undefined {
  return duration === undefined ? undefined : Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

/** Convert milliseconds to a duration. */
export function toDuration(millis: number): Duration {
  const seconds = Math.floor(millis / 1000);
  return create(DurationSchema, { seconds: BigInt(seconds), nanos: Math.round((millis - seconds * 1000) * 1e6) });
}

/** Convert a date to a timestamp. */
export function toTimestamp(date: Date): Timestamp {
  const seconds = Math.floor(date.getTime() / 1000);
  return create(TimestampSchema, { seconds: BigInt(seconds), nanos: (date.getTime() - seconds * 1000) * 1e6 });
}

/** Convert an integer. Throws INVALID_ARGUMENT for any other number. */
export function toInt64(field: string, value: number | bigint): bigint {
  const found = Number.isSafeInteger(value) ? BigInt(value) : value;
  if (typeof found === "bigint" && found === BigInt.asIntN(64, found)) {
    return found;
  }
  throw invalid(field, `${field} is a whole number of 64 bits, not ${String(value)}`);
}

/** Parse `name` or `name@version`. */
export function udfRef(text: string): UdfRef {
  const at = text.indexOf("@");
  const [name, version] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
  return create(UdfRefSchema, { name, version });
}

/** Remove undefined values, so that they are not set in messages. */
export function given<T extends object>(values: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof T]: Exclude<T[K], undefined> };
}
