import { duration, either, integer, strings, text, version, type Kinds } from "./arguments.js";
import { PreviewRow_State, type PreviewFunctionResponse } from "./gen/leman/v1/jobs_pb.js";
import { milliseconds } from "./values.js";

/** Options of a preview. The services choose defaults for those that are undefined. */
export interface PreviewOptions {
  /** The number of rows, 1 to 100. */
  rows?: number | undefined;
  /** A SQL condition: only rows for which it is true. */
  where?: string | undefined;
  /** Use rows of an earlier version of the table, by number or tag. */
  readVersion?: number | bigint | string | undefined;
  /** The number of worker processes for which a backfill is estimated. */
  concurrency?: number | undefined;
  /** Milliseconds that the function may take for all rows together. */
  timeLimit?: number | undefined;
  /** Environment variables of the function for this preview: see `JobOptions`. */
  env?: Readonly<Record<string, string>> | undefined;
}

/** The kinds of a preview's options. */
export const PREVIEW: Kinds<PreviewOptions> = {
  rows: integer,
  where: text,
  readVersion: either(version, text),
  concurrency: integer,
  timeLimit: duration,
  env: strings,
};

/** A row of a preview. */
export interface PreviewRow {
  /**
   * `FAILED`: a backfill would leave the row NULL and continue; `FAILS`: the backfill would fail; `UNFINISHED`: the
   * time limit ended first.
   */
  readonly state: "COMPUTED" | "FAILED" | "FAILS" | "UNFINISHED";
  /** Inputs and output as JSON, shortened if they are long. */
  readonly inputs: readonly string[];
  readonly output: string;
  /** Milliseconds that the function took; undefined if it was not called. */
  readonly elapsed: number | undefined;
  readonly error: { type: string; message: string; traceback: string } | undefined;
}

/** The results of a function for a few rows, with an estimate for a backfill of the whole table. */
export interface Preview {
  readonly rows: readonly PreviewRow[];
  /** Whether a backfill would fail. */
  readonly fails: boolean;
  readonly rowsToCompute: number;
  /** The expected milliseconds of a backfill, without reading and writing; undefined if unknown. */
  readonly expected: number | undefined;
  /** The whole response. */
  readonly message: PreviewFunctionResponse;
}

/** @internal */
export function previewOf(message: PreviewFunctionResponse): Preview {
  const rows = message.rows.map(({ state, inputs, output, elapsed, error }) => ({
    state: PreviewRow_State[state] as PreviewRow["state"],
    inputs,
    output,
    elapsed: milliseconds(elapsed),
    error: error && { type: error.errorType, message: error.message, traceback: error.traceback },
  }));
  const { rowsToCompute, expectedDuration } = message.projection ?? {};
  return {
    rows,
    fails: message.fails,
    rowsToCompute: Number(rowsToCompute ?? 0n),
    expected: milliseconds(expectedDuration),
    message,
  };
}
