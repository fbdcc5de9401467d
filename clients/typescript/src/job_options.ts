import type { MessageInitShape } from "@bufbuild/protobuf";

import {
  callback,
  choice,
  flag,
  integer,
  list,
  names,
  strings,
  text,
  whole,
  type Kind,
  type Kinds,
} from "./arguments.js";
import { MUTATION, type MutationOptions } from "./context.js";
import { Job_State, type Job, type JobEvent, type JobFilterSchema, type Progress } from "./gen/leman/v1/jobs_pb.js";
import { LIST, type ListOptions } from "./paging.js";
import { CALL, type CallOptions } from "./scope.js";
import { toTimestamp } from "./values.js";

/** The state of a job: PENDING → PLANNING → RUNNING → DONE | DONE_WITH_ERRORS | FAILED; CANCELLED; PAUSED. */
export type JobState = Exclude<keyof typeof Job_State, "UNSPECIFIED">;

/** The state of a job at one moment, with the events since the previous update. */
export interface JobUpdate {
  readonly job: Job;
  readonly state: JobState;
  /** The new events, each once and in order. */
  readonly events: readonly JobEvent[];
  /** Increases with each update, also when the services restart. */
  readonly sequence: bigint;
  /**
   * Whether events before these may be missing, because there were too many or the executor died. `job` is complete.
   */
  readonly eventsMissing: boolean;
}

/** Options of `Job.watch`. */
export interface WatchOptions extends CallOptions {
  /** Start after an update that this process, or another one, received earlier: its `sequence`. */
  after?: bigint | undefined;
}

/** Options of `Job.wait`. */
export interface WaitOptions extends WatchOptions {
  /** Called with the progress, whenever it has changed and at least every 15 seconds. */
  onProgress?: ((progress: Progress, job: Job) => void) | undefined;
  /** Called with each update. */
  onUpdate?: ((update: JobUpdate) => void) | undefined;
}

/** Options of every job. */
export interface JobOptions extends MutationOptions {
  /** Labels by which the job can be found later. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** The priority, from −100 to 100. A waiting job starts before jobs of lower priority. */
  priority?: number | undefined;
  /**
   * Environment variables for the functions of the job, such as an API key. The values are secrets: the services delete
   * them when the job ends, and show only the names. A retried job does not inherit them.
   */
  env?: Readonly<Record<string, string>> | undefined;
}

/** A filter of jobs: those that match all given fields. */
export interface JobFilter {
  states?: readonly JobState[] | undefined;
  tables?: readonly string[] | undefined;
  column?: string | undefined;
  labels?: Readonly<Record<string, string>> | undefined;
  createdFrom?: Date | undefined;
  createdBefore?: Date | undefined;
  initiator?: string | undefined;
}

/** Options of listing jobs. */
export interface ListJobsOptions extends JobFilter, ListOptions {
  order?: "newest" | "oldest" | undefined;
}

/** Options of `Job.retry`. */
export interface RetryOptions extends JobOptions {
  udf?: string | undefined;
  keepOthers?: boolean | undefined;
}

const date: Kind = {
  told: "a Date that is valid",
  admits: (value) => value instanceof Date && !Number.isNaN(value.getTime()),
};
const sequence: Kind = {
  told: "a bigint from 0 on",
  admits: (value) => typeof value === "bigint" && whole.admits(value) && value >= 0n,
};
const state = choice(...Object.keys(Job_State).filter((name) => Number.isNaN(Number(name)) && name !== "UNSPECIFIED"));

/** The kinds of a watch's options. */
export const WATCH: Kinds<WatchOptions> = { ...CALL, after: sequence };

/** The kinds of a wait's options. */
export const WAIT: Kinds<WaitOptions> = { ...WATCH, onProgress: callback, onUpdate: callback };

/** The kinds of a job's options. */
export const JOB: Kinds<JobOptions> = { ...MUTATION, labels: strings, priority: integer, env: strings };

/** The kinds of a retry's options. */
export const RETRY: Kinds<RetryOptions> = { ...JOB, udf: text, keepOthers: flag };

/** The kinds of a job filter's fields. */
export const FILTER: Kinds<JobFilter> = {
  states: list(state),
  tables: names,
  column: text,
  labels: strings,
  createdFrom: date,
  createdBefore: date,
  initiator: text,
};

/** The kinds of the options of listing jobs. */
export const LIST_JOBS: Kinds<ListJobsOptions> = { ...FILTER, ...LIST, order: choice("newest", "oldest") };

/** Make a filter of the protos. */
export function jobFilter(filter: JobFilter): MessageInitShape<typeof JobFilterSchema> {
  return {
    states: (filter.states ?? []).map((state) => Job_State[state]),
    tables: [...(filter.tables ?? [])],
    column: filter.column ?? "",
    labels: { ...filter.labels },
    initiator: filter.initiator ?? "",
    ...(filter.createdFrom && { createTimeFrom: toTimestamp(filter.createdFrom) }),
    ...(filter.createdBefore && { createTimeBefore: toTimestamp(filter.createdBefore) }),
  };
}
