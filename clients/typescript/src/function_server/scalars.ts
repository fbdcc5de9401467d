import { DataType, DateUnit, Precision, TimeUnit } from "apache-arrow";

/** Converts a value to its representation in Arrow; undefined if it does not fit the type. */
export type Convert = (value: unknown) => number | bigint | undefined;

const MS_A_DAY = 86_400_000;
/** The number of units in a millisecond, for each TimeUnit that is shorter than one. */
const PER_MILLISECOND = { [TimeUnit.MICROSECOND]: 1000, [TimeUnit.NANOSECOND]: 1_000_000 } as const;
const PER_SECOND = {
  [TimeUnit.SECOND]: 1n,
  [TimeUnit.MILLISECOND]: 1000n,
  [TimeUnit.MICROSECOND]: 1_000_000n,
  [TimeUnit.NANOSECOND]: 1_000_000_000n,
} as const;

/**
 * Return the conversion for a type whose values are single numbers; undefined for any other type. 64-bit integers are
 * `number` or `bigint`. Dates and timestamps are a `Date`, or milliseconds since 1970, as apache-arrow reads them. A
 * timestamp may also be a `bigint` in the unit of its type. Times of day and durations are a `bigint` or an integer
 * `number` in that unit. Only fractions are rounded, to the precision of a float.
 */
export function scalar(type: DataType): Convert | undefined {
  if (DataType.isInt(type)) {
    return whole(type.bitWidth, type.isSigned);
  }
  if (DataType.isFloat(type)) {
    return float(type.precision);
  }
  if (DataType.isDate(type)) {
    return date(type.unit);
  }
  if (DataType.isTimestamp(type)) {
    return timestamp(type.unit);
  }
  if (DataType.isTime(type)) {
    return time(type.unit, type.bitWidth);
  }
  return DataType.isDuration(type) ? whole(64, true) : undefined;
}

function whole(bits: number, signed: boolean): Convert {
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

function float(precision: Precision): Convert {
  if (precision === Precision.HALF) {
    return (value) => (typeof value === "number" ? halfOf(value) : undefined);
  }
  if (precision === Precision.DOUBLE) {
    return (value) => (typeof value === "number" ? value : undefined);
  }
  return (value) => {
    const tooLarge = Number.isFinite(value) && !Number.isFinite(Math.fround(value as number));
    return typeof value === "number" && !tooLarge ? value : undefined;
  };
}

const double = new DataView(new ArrayBuffer(8));
const HALF_NAN = 0x7e00;
const HALF_INFINITY = 0x7c00;

/**
 * Return the bits of the nearest half float; undefined if the number is too large. apache-arrow truncates and garbles
 * some numbers.
 */
function halfOf(value: number): number | undefined {
  if (Number.isNaN(value)) {
    return HALF_NAN;
  }
  double.setFloat64(0, value);
  const high = double.getUint32(0);
  const sign = (high >>> 16) & 0x8000;
  if (!Number.isFinite(value)) {
    return sign | HALF_INFINITY;
  }
  const exponent = Math.max(-14, ((high >>> 20) & 0x7ff) - 1023);
  const steps = toEven(Math.abs(value) / 2 ** (exponent - 10));
  const bits = (exponent + 14) * 1024 + steps;
  return bits < HALF_INFINITY ? sign | bits : undefined;
}

/** Round, and round halves to the even number. */
function toEven(value: number): number {
  const found = Math.round(value);
  return found - value === 0.5 && found % 2 === 1 ? found - 1 : found;
}

function date(unit: DateUnit): Convert {
  const [days, int64] = [whole(32, true), whole(64, true)];
  return (value) => {
    const millis = millisecondsIn(value);
    if (millis === undefined || millis % MS_A_DAY !== 0) {
      return undefined; // invalid, or has a time of day
    }
    return unit === DateUnit.DAY ? days(millis / MS_A_DAY) : int64(wholeOf(millis));
  };
}

function timestamp(unit: TimeUnit): Convert {
  const int64 = whole(64, true);
  return (value) => {
    if (typeof value === "bigint") {
      return int64(value);
    }
    const millis = millisecondsIn(value);
    return millis === undefined ? undefined : int64(unitsIn(millis, unit));
  };
}

/** Convert milliseconds to units; undefined if they are not an integer. */
function unitsIn(millis: number, unit: TimeUnit): bigint | undefined {
  if (unit === TimeUnit.SECOND) {
    return wholeOf(millis / 1000);
  }
  if (unit === TimeUnit.MILLISECOND) {
    return wholeOf(millis);
  }
  const perMillisecond = PER_MILLISECOND[unit];
  const full = Math.floor(millis);
  const parts = Math.round((millis - full) * perMillisecond);
  const isSame = full + parts / perMillisecond === millis; // otherwise it has a fraction of a unit
  return isSame ? BigInt(full) * BigInt(perMillisecond) + BigInt(parts) : undefined;
}

function time(unit: TimeUnit, bits: number): Convert {
  const fitting = whole(bits, true);
  const aDay = 86_400n * PER_SECOND[unit];
  return (value) => {
    const found = fitting(bits < 64 && typeof value === "bigint" ? Number(value) : value);
    return found !== undefined && found >= 0 && found < aDay ? found : undefined;
  };
}

function millisecondsIn(value: unknown): number | undefined {
  const millis = value instanceof Date ? value.getTime() : value;
  return typeof millis === "number" && Number.isFinite(millis) ? millis : undefined;
}

function wholeOf(value: number): bigint | undefined {
  return Number.isInteger(value) ? BigInt(value) : undefined;
}

/** A decimal type. */
type Decimals = DataType & { scale: number; precision: number; bitWidth: number };

const DECIMAL = /^([+-]?)(\d+)(?:\.(\d+))?$/;

/**
 * Return the words of a decimal, lowest first, from a text such as "-1.50" or from apache-arrow's own form; undefined
 * if it is invalid, or has more digits than its type. Other values are refused: a `number` is not exact, and a `bigint`
 * may mean units or last digits.
 */
export function decimalWords(value: unknown, { scale, precision, bitWidth }: Decimals): Uint32Array | undefined {
  const unscaled = typeof value === "string" ? unscaledOf(value, scale) : unscaledIn(value, bitWidth);
  const most = 10n ** BigInt(precision);
  if (unscaled === undefined || unscaled >= most || unscaled <= -most) {
    return undefined;
  }
  const bits = BigInt.asUintN(bitWidth, unscaled);
  return Uint32Array.from({ length: bitWidth / 32 }, (_, at) => Number(BigInt.asUintN(32, bits >> BigInt(32 * at))));
}

function unscaledOf(text: string, scale: number): bigint | undefined {
  const [, sign = "", front = "", back = ""] = DECIMAL.exec(text) ?? [];
  if (front === "") {
    return undefined;
  }
  const digits = front + back;
  const zeros = scale - back.length; // zeros to append, or to remove if negative
  const cut = Math.max(0, digits.length + zeros);
  if (/[1-9]/.test(digits.slice(cut))) {
    return undefined;
  }
  const found = BigInt(zeros > 0 ? digits + "0".repeat(zeros) : digits.slice(0, cut) || "0");
  return sign === "-" ? -found : found;
}

function unscaledIn(value: unknown, bitWidth: number): bigint | undefined {
  if (!(value instanceof Uint32Array) || value.length !== bitWidth / 32) {
    return undefined;
  }
  return BigInt.asIntN(
    bitWidth,
    Array.from(value).reduceRight((high, word) => (high << 32n) | BigInt(word), 0n),
  );
}
