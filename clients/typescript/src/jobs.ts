import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { requestIdOf, type Context, type MutationOptions } from "./context.js";
import { fromStatus, LemanError } from "./errors.js";
import {
  Job_State,
  JobEvent_Kind,
  JobSchema,
  JobService,
  type Job as JobInfo,
  type JobEvent,
  type JobFilterSchema,
  type Progress,
  type RowError,
  type WatchJobResponse,
} from "./gen/leman/v1/jobs_pb.js";
import { listed } from "./paging.js";
import type { CallOptions } from "./scope.js";
import { toTimestamp, udfRef } from "./values.js";

export type { JobInfo };

/** The state of a job: PENDING → PLANNING → RUNNING → DONE | DONE_WITH_ERRORS | FAILED; CANCELLED; PAUSED. */
export type JobState = Exclude<keyof typeof Job_State, "STATE_UNSPECIFIED">;

/** Of what kind an event of a job is. */
export type JobEventKind = keyof typeof JobEvent_Kind;

const ENDED: readonly Job_State[] = [Job_State.DONE, Job_State.DONE_WITH_ERRORS, Job_State.FAILED, Job_State.CANCELLED];
/** The services say something every 15 seconds. */
const SILENCE = 45_000;

/** Give the name of a job's state. */
export function stateOf(job: JobInfo): JobState {
  return Job_State[job.state] as JobState;
}

/** Give the name of an event's kind. */
export function kindOf(event: JobEvent): JobEventKind {
  return JobEvent_Kind[event.kind] as JobEventKind;
}

/** Tell whether a job has ended, however it did. */
export function hasEnded(job: JobInfo): boolean {
  return ENDED.includes(job.state);
}

/** A job at one moment, with what happened since the one before. */
export interface JobUpdate {
  readonly job: JobInfo;
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
  onProgress?: ((progress: Progress, job: JobInfo) => void) | undefined;
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
   * job ends, and tell nobody more than the names. A retry has none of those of the job that it retries.
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
export interface ListJobsOptions extends JobFilter, CallOptions {
  /** At most so many; undefined: all. */
  limit?: number | undefined;
  order?: "newest" | "oldest" | undefined;
}

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

/** A job; it runs in the services, whatever becomes of this object. */
export class Job {
  readonly #context: Context;
  readonly #database: string;

  /** @internal */
  constructor(
    context: Context,
    database: string,
    readonly id: string,
  ) {
    this.#context = context;
    this.#database = database;
  }

  /** Get the job as it stands now. */
  async info(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.getJob(this.#ref, options));
  }

  /**
   * Watch the job: how it stands now and whenever something changed; the last update has it ended. Goes on where it was
   * over restarts of the services and cuts of the connection. The job goes on when the iteration is left.
   */
  async *watch(options: WatchOptions = {}): AsyncGenerator<JobUpdate, void, undefined> {
    let sequence = options.after ?? 0n;
    let lastEvent = 0n;
    const request = (): object => ({ ...this.#ref, afterSequence: sequence });
    const take = (answer: WatchJobResponse): boolean => {
      sequence = answer.sequence > sequence ? answer.sequence : sequence;
      return hasEnded(this.#told(answer));
    };
    const { calls } = this.#context;
    const scope = calls.scope(options);
    for await (const answer of calls.resumedStream(JobService.method.watchJob, request, take, scope, SILENCE)) {
      const events = answer.events.filter((event) => event.sequence > lastEvent);
      lastEvent = events.at(-1)?.sequence ?? lastEvent;
      const job = this.#told(answer);
      yield { job, state: stateOf(job), events, sequence: answer.sequence, eventsMissing: answer.eventsMissing };
    }
  }

  /**
   * Wait until the job has ended, and give it as it stands then. A job that ended as DONE_WITH_ERRORS is given too, one
   * that is paused is waited for. Throws a LemanError with the job's reason where it FAILED, JOB_CANCELLED where it was
   * cancelled, DEADLINE_EXCEEDED after `timeout`; the job then goes on.
   */
  async wait(options: WaitOptions = {}): Promise<JobInfo> {
    let last: JobInfo | undefined;
    for await (const update of this.watch(options)) {
      last = update.job;
      options.onUpdate?.(update);
      if (last.progress !== undefined) {
        options.onProgress?.(last.progress, last);
      }
    }
    const job = last ?? (await this.info(options));
    const failed = failureOf(job);
    if (failed !== undefined) {
      throw failed;
    }
    return job;
  }

  /** Ask it to stop; what it finished is kept. Gives it as it stands then, usually CANCELLING. */
  async cancel(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.cancelJob(this.#ref, options));
  }

  /** Have it stop until it is resumed; nothing is computed again then. */
  async pause(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.pauseJob(this.#ref, options));
  }

  /** Have it go on after `pause`. */
  async resume(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.resumeJob(this.#ref, options));
  }

  /** Give it other labels (all of them), or another priority. */
  async update(changes: Pick<JobOptions, "labels" | "priority">, options?: CallOptions): Promise<JobInfo> {
    const { labels, priority } = changes;
    const paths = Object.entries({ labels, priority }).filter(([, value]) => value !== undefined);
    const request = {
      ...this.#ref,
      labels: { ...labels },
      priority: priority ?? 0,
      updateMask: { paths: paths.map(([name]) => name) },
    };
    return this.#told(await this.#stub.updateJob(request, options));
  }

  /** Once it has ended: take it out of the history for good. What it computed stays. */
  async delete(options?: CallOptions): Promise<void> {
    await this.#stub.deleteJob(this.#ref, options);
  }

  /**
   * Once it has ended: compute the rows that failed again, and no others. `udf`: with another function, `name` or
   * `name@version`; `keepOthers`: the other rows then keep their values and count as current.
   */
  async retry(options: JobOptions & { udf?: string; keepOthers?: boolean } = {}): Promise<Job> {
    const request = {
      ...this.#ref,
      keepOthers: options.keepOthers ?? false,
      requestId: requestIdOf(options),
      labels: { ...options.labels },
      priority: options.priority ?? 0,
      env: { ...options.env },
      ...(options.udf !== undefined && { udf: udfRef(options.udf) }),
    };
    const { jobId } = this.#told(await this.#stub.retryJob(request, options));
    return new Job(this.#context, this.#database, jobId);
  }

  /** The rows for which the function failed, by row address. */
  errors(
    options: CallOptions & { column?: string; limit?: number | undefined; placesOnly?: boolean } = {},
  ): AsyncGenerator<RowError, void, undefined> {
    const { column = "", limit, placesOnly = false } = options;
    const call = (page: object) => this.#stub.listJobErrors({ ...this.#ref, ...page, column, placesOnly }, options);
    return listed(call, ({ errors }) => errors, limit);
  }

  get #stub(): Context["stubs"]["jobs"] {
    return this.#context.stubs.jobs;
  }

  get #ref(): { database: string; jobId: string } {
    return { database: this.#database, jobId: this.id };
  }

  #told(answer: { job?: JobInfo | undefined }): JobInfo {
    return answer.job ?? create(JobSchema, { jobId: this.id });
  }
}

/** The error of a job that ended without having its work done; undefined: it is done, or goes on. */
export function failureOf(job: JobInfo): LemanError | undefined {
  const { jobId, state, error } = job;
  if (state === Job_State.CANCELLED) {
    const message = `job ${jobId} was cancelled; what it had finished is kept`;
    return new LemanError({ code: "CANCELLED", reason: "JOB_CANCELLED", message, jobId });
  }
  if (state !== Job_State.FAILED) {
    return undefined;
  }
  const told = error === undefined ? { code: "UNKNOWN" as const, message: "it does not say why" } : fromStatus(error);
  return new LemanError({
    ...told,
    reason: told.reason ?? "JOB_FAILED",
    message: `job ${jobId} failed: ${told.message}\nWhat was finished is kept: the same call goes on from there.`,
    jobId,
  });
}
