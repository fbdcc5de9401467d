import { duration, either, integer, strings, text, version, type Kinds } from "./arguments.js";
import { PreviewRow_State, type PreviewFunctionResponse } from "./gen/leman/v1/jobs_pb.js";
import { milliseconds } from "./values.js";

/** The rows that a function is tried on; what is left out is chosen by the services. */
export interface PreviewOptions {
  /** How many, 1 to 100. */
  rows?: number | undefined;
  /** SQL: only rows for which it is true. */
  where?: string | undefined;
  /** Rows of an earlier version of the table, by number or tag. */
  readVersion?: number | bigint | string | undefined;
  /** Worker processes of the backfill that is projected. */
  concurrency?: number | undefined;
  /** Milliseconds that the function may take for all rows. */
  timeLimit?: number | undefined;
  /** Environment variables of the function, for this preview: see `JobOptions`. */
  env?: Readonly<Record<string, string>> | undefined;
}

/** What the options of a preview are. */
export const PREVIEW: Kinds<PreviewOptions> = {
  rows: integer,
  where: text,
  readVersion: either(version, text),
  concurrency: integer,
  timeLimit: duration,
  env: strings,
};

/** A row that a function was tried on. */
export interface PreviewRow {
  /** `FAILED`: a backfill would leave it NULL and go on; `FAILS`: it would end with it; `UNFINISHED`: time was over. */
  readonly state: "COMPUTED" | "FAILED" | "FAILS" | "UNFINISHED";
  /** Inputs and output as JSON, long ones cut. */
  readonly inputs: readonly string[];
  readonly output: string;
  /** Milliseconds that the function took; undefined: it was not called. */
  readonly elapsed: number | undefined;
  readonly error: { type: string; message: string; traceback: string } | undefined;
}

/** What a function gave on a few rows, and what a backfill of the whole table would take. */
export interface Preview {
  readonly rows: readonly PreviewRow[];
  /** Whether a backfill would end as failed. */
  readonly fails: boolean;
  readonly rowsToCompute: number;
  /** Milliseconds, without reading and writing; undefined: not known. */
  readonly expected: number | undefined;
  /** All that was answered. */
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
