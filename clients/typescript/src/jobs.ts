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

/** Return whether a job has ended, however it did. */
export function hasEnded(job: JobInfo): boolean {
  return ENDED.includes(job.state);
}

const CHANGES: Kinds<Pick<JobOptions, "labels" | "priority">> = { labels: strings, priority: integer };

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
  @takes({}, CALL)
  async info(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.getJob(this.#ref, options));
  }

  /**
   * Watch the job: how it stands now and whenever something changed; the last update has it ended. Continues where it was
   * over restarts of the services and cuts of the connection. The job goes on when the iteration is left.
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
   * Wait until the job has ended, and give it as it stands then. A job that ended as DONE_WITH_ERRORS is given too, one
   * that is paused is waited for. Throws a LemanError with the job's reason where it FAILED, JOB_CANCELLED where it was
   * cancelled, DEADLINE_EXCEEDED after `timeout`; the job then goes on.
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

  /** Ask it to stop; what it finished is kept. Gives it as it stands then, usually CANCELLING. */
  @takes({}, CALL)
  async cancel(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.cancelJob(this.#ref, options));
  }

  /** Have it stop until it is resumed; nothing is computed again then. */
  @takes({}, CALL)
  async pause(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.pauseJob(this.#ref, options));
  }

  /** Have it go on after `pause`. */
  @takes({}, CALL)
  async resume(options?: CallOptions): Promise<JobInfo> {
    return this.#told(await this.#stub.resumeJob(this.#ref, options));
  }

  /** Give it other labels (all of them), or another priority. */
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

  /** Once it has ended: take it out of the history for good. What it computed stays. */
  @takes({}, CALL)
  async delete(options?: CallOptions): Promise<void> {
    await this.#stub.deleteJob(this.#ref, options);
  }

  /**
   * Once it has ended: compute the rows that failed again, and no others. `udf`: with another function, `name` or
   * `name@version`; `keepOthers`: the other rows then keep their values and count as current.
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

  /** The rows for which the function failed, by row address. */
  @takes({}, { ...LIST, column: text, placesOnly: flag })
  errors(
    options: ListOptions & { column?: string; placesOnly?: boolean } = {},
  ): AsyncGenerator<RowError, void, undefined> {
    const { column = "", limit, placesOnly = false } = options;
    const call = (page: object) => this.#stub.listJobErrors({ ...this.#ref, ...page, column, placesOnly }, options);
    return listed(call, ({ errors }) => errors, limit);
  }

  /**
   * The rows for which the function failed by what went wrong, the largest group first. The service counts: no row is
   * fetched but `examples`, 0 to 5 of each group; 1 if left out.
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
    message: `job ${jobId} failed: ${told.message}\nWhat was finished is kept: the same call continues from there.`,
    jobId,
  });
}
