import { create } from "@bufbuild/protobuf";

import { flag, integer, object, strings, text, type Kinds } from "./arguments.js";
import { requestIdOf, type Context } from "./context.js";
import { fromStatus, LemanError } from "./errors.js";
import {
  Job_State,
  JobEvent_Kind,
  JobSchema,
  JobService,
  type Job as JobInfo,
  type JobEvent,
  type RowError,
  type RowErrorGroup,
  type WatchJobResponse,
} from "./gen/leman/v1/jobs_pb.js";
import {
  RETRY,
  WAIT,
  WATCH,
  type JobOptions,
  type JobState,
  type JobUpdate,
  type RetryOptions,
  type WaitOptions,
  type WatchOptions,
} from "./job_options.js";
import { LIST, listed, type ListOptions } from "./paging.js";
import { CALL, type CallOptions } from "./scope.js";
import { takes } from "./takes.js";
import { udfRef } from "./values.js";

export type { JobInfo };

/** The kind of a job's event. */
export type JobEventKind = keyof typeof JobEvent_Kind;

const ENDED: readonly Job_State[] = [Job_State.DONE, Job_State.DONE_WITH_ERRORS, Job_State.FAILED, Job_State.CANCELLED];
/** Longer than the 15 seconds after which the services send a message at the latest. */
const SILENCE = 45_000;

/** Return the name of a job's state. */
export function stateOf(job: JobInfo): JobState {
  return Job_State[job.state] as JobState;
}

/** Return the name of an event's kind. */
export function kindOf(event: JobEvent): JobEventKind {
  return JobEvent_Kind[event.kind] as JobEventKind;
}

/** Return whether a job has ended, in whatever state. */
export function hasEnded(job: JobInfo): boolean {
  return ENDED.includes(job.state);
}

const CHANGES: Kinds<Pick<JobOptions, "labels" | "priority">> = { labels: strings, priority: integer };

/** A handle for a job. The job runs in the services, independent of this object. */
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

  /** Return the current state of the job. */
  @takes({}, CALL)
  async info(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.getJob(this.#ref, options));
  }

  /**
   * Watch the job: yields its current state, and its state after each change; the last update has an ended job. If the
   * services restart or the connection breaks, the watch continues. The job continues when the iteration ends early.
   */
  @takes({}, WATCH)
  async *watch(options: WatchOptions = {}): AsyncGenerator<JobUpdate, void, undefined> {
    yield* this.#updates(options);
  }

  async *#updates(options: WatchOptions): AsyncGenerator<JobUpdate, void, undefined> {
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
   * Wait until the job has ended, and return it, also as DONE_WITH_ERRORS. A paused job is waited for. Throws a
   * LemanError: with the job's reason if it FAILED, JOB_CANCELLED if it was cancelled, DEADLINE_EXCEEDED after
   * `timeout`; then the job continues.
   */
  @takes({}, WAIT)
  async wait(options: WaitOptions = {}): Promise<JobInfo> {
    let last: JobInfo | undefined;
    for await (const update of this.#updates(options)) {
      last = update.job;
      options.onUpdate?.(update);
      if (last.progress !== undefined) {
        options.onProgress?.(last.progress, last);
      }
    }
    const job = last ?? this.#told(await this.#stub.getJob(this.#ref, options));
    const failed = failureOf(job);
    if (failed !== undefined) {
      throw failed;
    }
    return job;
  }

  /** Cancel the job; its finished work is kept. Returns the updated job, usually CANCELLING. */
  @takes({}, CALL)
  async cancel(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.cancelJob(this.#ref, options));
  }

  /** Pause the job until it is resumed; values that are already computed are kept. */
  @takes({}, CALL)
  async pause(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.pauseJob(this.#ref, options));
  }

  /** Continue the job after `pause`. */
  @takes({}, CALL)
  async resume(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.resumeJob(this.#ref, options));
  }

  /** Replace all labels, or change the priority. */
  @takes({ changes: object(CHANGES) }, CALL)
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

  /** Remove an ended job from the history for good. The computed values stay. */
  @takes({}, CALL)
  async delete(options?: CallOptions): Promise<void> {
    await this.#stub.deleteJob(this.#ref, options);
  }

  /**
   * Start a job that computes only the rows that failed in this job, which must have ended. `udf`: use another
   * function, `name` or `name@version`; `keepOthers`: keep the values of the other rows as current although the
   * function changes.
   */
  @takes({}, RETRY)
  async retry(options: RetryOptions = {}): Promise<Job> {
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

  /** List the rows for which the function failed, by row address. */
  @takes({}, { ...LIST, column: text, placesOnly: flag })
  errors(
    options: ListOptions & { column?: string; placesOnly?: boolean } = {},
  ): AsyncGenerator<RowError, void, undefined> {
    const { column = "", limit, placesOnly = false } = options;
    const call = (page: object) => this.#stub.listJobErrors({ ...this.#ref, ...page, column, placesOnly }, options);
    return listed(call, ({ errors }) => errors, limit);
  }

  /**
   * Count the failed rows by error, and list the largest group first. The service does the counting, and sends only a
   * few `examples` of each group, 0 to 5; the default is 1.
   */
  @takes({}, { ...LIST, column: text, examples: integer })
  errorGroups(
    options: ListOptions & { column?: string; examples?: number } = {},
  ): AsyncGenerator<RowErrorGroup, void, undefined> {
    const { column = "", examples = 1, limit } = options;
    const call = (page: object) => this.#stub.groupJobErrors({ ...this.#ref, ...page, column, examples }, options);
    return listed(call, ({ groups }) => groups, limit);
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

/** Return the error of a job that FAILED or was CANCELLED; undefined for any other job. */
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
    message: `job ${jobId} failed: ${told.message}\nWhat was finished is kept: the same call continues from there.`,
    jobId,
  });
}
