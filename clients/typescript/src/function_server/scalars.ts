import { DataType, DateUnit, Precision, TimeUnit } from "apache-arrow";

/** Makes a value fit, as Arrow keeps it; undefined: it is none of the type. */
export type Convert = (value: unknown) => number | bigint | undefined;

const MS_A_DAY = 86_400_000;
/** Units of each TimeUnit in a millisecond, of those that are shorter than one. */
const PER_MILLISECOND = { [TimeUnit.MICROSECOND]: 1000, [TimeUnit.NANOSECOND]: 1_000_000 } as const;
const PER_SECOND = {
  [TimeUnit.SECOND]: 1n,
  [TimeUnit.MILLISECOND]: 1000n,
  [TimeUnit.MICROSECOND]: 1_000_000n,
  [TimeUnit.NANOSECOND]: 1_000_000_000n,
} as const;

/**
 * Give what makes values of a type fit that takes one number each; undefined: it is no such type. Whole numbers of 64 bits
 * are `number` or `bigint`. Dates and timestamps are a `Date`, or milliseconds since 1970 as apache-arrow reads them; a
 * timestamp is also a `bigint` in the unit of its type, as times of a day and durations are, or a whole `number` of that.
 * Nothing is rounded but fractions to the precision of a float.
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

/** The bits of the half float next to a number, which apache-arrow cuts off, and garbles; undefined: it is too large. */
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

/** Round, halves to the even number. */
function toEven(value: number): number {
  const found = Math.round(value);
  return found - value === 0.5 && found % 2 === 1 ? found - 1 : found;
}

function date(unit: DateUnit): Convert {
  const [days, int64] = [whole(32, true), whole(64, true)];
  return (value) => {
    const millis = millisecondsIn(value);
    if (millis === undefined || millis % MS_A_DAY !== 0) {
      return undefined; // none, or one with a time of the day
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

/** How many units milliseconds are; undefined: no whole number. */
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
  const isSame = full + parts / perMillisecond === millis; // else it has parts of a unit
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

/** A type of decimals. */
type Decimals = DataType & { scale: number; precision: number; bitWidth: number };

const DECIMAL = /^([+-]?)(\d+)(?:\.(\d+))?$/;

/**
 * The words of a decimal, lowest first, of a text such as "-1.50" or of what apache-arrow reads; undefined: it is none, or
 * has more digits than its type. Others are refused: a `number` is not exact, and of a `bigint` no one knows whether it
 * counts units or the last digits.
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
  const zeros = scale - back.length; // to be put at the end, or taken away
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
