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

/** A job at one moment, with what happened since the one before. */
export interface JobUpdate {
  readonly job: Job;
  readonly state: JobState;
  /** Each event once, in their order. */
  readonly events: readonly JobEvent[];
  /** Grows with each update, over restarts of the services too. */
  readonly sequence: bigint;
  /** Events may be missing before these: there were too many, or the executor that kept them died. `job` is whole. */
  readonly eventsMissing: boolean;
}

/** How a job is watched. */
export interface WatchOptions extends CallOptions {
  /** Begin behind an update that was seen before, by this process or another one: its `sequence`. */
  after?: bigint | undefined;
}

/** How a job is waited for. */
export interface WaitOptions extends WatchOptions {
  /** Called with how far the job is, whenever that has changed and at least every 15 seconds. */
  onProgress?: ((progress: Progress, job: Job) => void) | undefined;
  /** Called with each update. */
  onUpdate?: ((update: JobUpdate) => void) | undefined;
}

/** What is said of a job beside what it does. */
export interface JobOptions extends MutationOptions {
  /** What to find it by later. */
  labels?: Readonly<Record<string, string>> | undefined;
  /** From −100 to 100: of jobs that wait for their turn, those with a higher one go first. */
  priority?: number | undefined;
  /**
   * Environment variables of the job's functions, such as an API key. Values are secrets: the services forget them when the
   * job ends, and tell no one more than the names. A retry has none of those of the job that it retries.
   */
  env?: Readonly<Record<string, string>> | undefined;
}

/** Which jobs are meant: those for which all that is given holds. */
export interface JobFilter {
  states?: readonly JobState[] | undefined;
  tables?: readonly string[] | undefined;
  column?: string | undefined;
  labels?: Readonly<Record<string, string>> | undefined;
  createdFrom?: Date | undefined;
  createdBefore?: Date | undefined;
  initiator?: string | undefined;
}

/** Which jobs are listed, and how many. */
export interface ListJobsOptions extends JobFilter, ListOptions {
  order?: "newest" | "oldest" | undefined;
}

/** How a job is tried again. */
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

/** What the options of a watch are. */
export const WATCH: Kinds<WatchOptions> = { ...CALL, after: sequence };

/** What the options of a wait are. */
export const WAIT: Kinds<WaitOptions> = { ...WATCH, onProgress: callback, onUpdate: callback };

/** What the options of a job are. */
export const JOB: Kinds<JobOptions> = { ...MUTATION, labels: strings, priority: integer, env: strings };

/** What the options of a retry are. */
export const RETRY: Kinds<RetryOptions> = { ...JOB, udf: text, keepOthers: flag };

/** What a filter of jobs is made of. */
export const FILTER: Kinds<JobFilter> = {
  states: list(state),
  tables: names,
  column: text,
  labels: strings,
  createdFrom: date,
  createdBefore: date,
  initiator: text,
};

/** What the options of a listing of jobs are. */
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
