import type { MessageInitShape } from "@bufbuild/protobuf";

import { either, flag, integer, object, text, version, whole, type Kinds } from "./arguments.js";
import { CHECKPOINT, checkpointOf } from "./functions.js";
import { Reason, type BackfillSpecSchema, type ExplainPlanResponse } from "./gen/leman/v1/planner_pb.js";
import { given, toInt64, udfRef } from "./values.js";

/** Options of a backfill and its plan. The services choose defaults for those that are undefined. */
export interface PlanOptions {
  /** A SQL condition: only rows for which it is true are computed. */
  where?: string | undefined;
  /** A registered function to use instead of the column's own, `name` or `name@version`. */
  udf?: string | undefined;
  /** Compute from an earlier version of the table, by number or tag. */
  readVersion?: number | bigint | string | undefined;
  /** The largest number of worker processes. */
  concurrency?: number | undefined;
  /** Rows between checkpoints. */
  checkpoint?: { size?: number | undefined; min?: number | undefined; max?: number | undefined } | undefined;
  /** Rows in a unit of work. */
  taskSize?: number | undefined;
  /** Fragments between commits. */
  commitGranularity?: number | undefined;
  /** Rows between commits, which then also commit parts of fragments; not with `where`. */
  commitRows?: number | undefined;
  /** The largest number of fragments to compute, for a sample run. */
  numFrags?: number | undefined;
  /** Threads in each worker process that call the function concurrently. */
  intraApplierConcurrency?: number | undefined;
  /** Compute only rows that are marked as failed. */
  failedOnly?: boolean | undefined;
  /** Hand out the units of this number of fragments in turn. */
  taskShuffleDiversity?: number | undefined;
  /** Update the indexes on the column afterwards. */
  optimizeIndices?: boolean | undefined;
}

/** What a backfill would do, and why. */
export interface Plan {
  readonly rowsTotal: number;
  readonly rowsReused: number;
  readonly rowsToCompute: number;
  /** Rows by reason, such as `MISSING` or `UDF_CHANGED`. */
  readonly reasons: Readonly<Record<string, { fragments: number; rows: number }>>;
  /** A summary in one sentence. */
  readonly summary: string;
  /** The whole response. */
  readonly message: ExplainPlanResponse;
}

/** The kinds of the options of a backfill and its plan. */
export const PLAN: Kinds<PlanOptions> = {
  where: text,
  udf: text,
  readVersion: either(version, text),
  concurrency: integer,
  checkpoint: object(CHECKPOINT),
  taskSize: whole,
  commitGranularity: integer,
  commitRows: whole,
  numFrags: integer,
  intraApplierConcurrency: integer,
  failedOnly: flag,
  taskShuffleDiversity: integer,
  optimizeIndices: flag,
};

/** Make a specification of the protos. */
export function backfillSpec(
  table: { database: string; table: string },
  column: string,
  options: PlanOptions,
): MessageInitShape<typeof BackfillSpecSchema> {
  const { concurrency, commitGranularity, numFrags, intraApplierConcurrency, taskShuffleDiversity } = options;
  const { udf, readVersion, taskSize, commitRows, checkpoint } = options;
  return {
    table,
    column,
    where: options.where ?? "",
    failedOnly: options.failedOnly ?? false,
    optimizeIndices: options.optimizeIndices ?? false,
    ...given({ concurrency, commitGranularity, numFrags, intraApplierConcurrency, taskShuffleDiversity }),
    ...(udf !== undefined && { udf: udfRef(udf) }),
    ...(taskSize !== undefined && { taskSize: toInt64("taskSize", taskSize) }),
    ...(commitRows !== undefined && { commitRows: toInt64("commitRows", commitRows) }),
    ...(checkpoint !== undefined && { checkpoint: checkpointOf(checkpoint) }),
    ...(readVersion !== undefined && { readFrom: readFromOf(readVersion) }),
  };
}

/** Convert the response to a plan request. */
export function planOf(message: ExplainPlanResponse): Plan {
  const reasons = message.reasons.map(
    ({ reason, fragments, rows }) => [Reason[reason], { fragments, rows: Number(rows) }] as const,
  );
  return {
    rowsTotal: Number(message.rowsTotal),
    rowsReused: Number(message.rowsReused),
    rowsToCompute: Number(message.rowsToCompute),
    reasons: Object.fromEntries(reasons),
    summary: message.summary,
    message,
  };
}

type ReadFrom = { case: "readVersion"; value: bigint } | { case: "readTag"; value: string };

/** Make the message for the version to read, by number or tag. */
export function readFromOf(version: number | bigint | string): ReadFrom {
  return typeof version === "string"
    ? { case: "readTag", value: version }
    : { case: "readVersion", value: toInt64("readVersion", version) };
}
