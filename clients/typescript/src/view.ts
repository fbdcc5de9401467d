import type { MessageInitShape } from "@bufbuild/protobuf";

import { check, choice, flag, integer, record, whole, type Kinds } from "./arguments.js";
import { MUTATION, requestIdOf, type MutationOptions } from "./context.js";
import { LemanError } from "./errors.js";
import type { MaterializedView } from "./gen/leman/v1/catalog_pb.js";
import { RefreshSpec_Policy, type ExplainRefreshResponse, type RefreshSpecSchema } from "./gen/leman/v1/planner_pb.js";
import { JOB, type JobOptions } from "./job_options.js";
import { Job } from "./jobs.js";
import { Query, VIEW_FUNCTION, viewFunction, type ViewFunctionSource } from "./query.js";
import { Relation } from "./relation.js";
import { CALL, type CallOptions } from "./scope.js";
import { takes } from "./takes.js";
import { given, toInt64 } from "./values.js";

/** Options of refreshing a view. */
export interface RefreshOptions {
  /** The version of the source to refresh to, which may be older than the current one; undefined: the latest. */
  sourceVersion?: number | bigint | undefined;
  /** Rows in each new fragment. */
  maxRowsPerFragment?: number | undefined;
  /**
   * `auto` computes what changed, and everything if the changes cannot be determined; `incremental` fails in that case.
   */
  policy?: "auto" | "incremental" | "full" | undefined;
  /** The largest number of worker processes. */
  concurrency?: number | undefined;
  /** Update the view's indexes afterwards. */
  optimizeIndices?: boolean | undefined;
}

const REFRESH: Kinds<RefreshOptions> = {
  sourceVersion: whole,
  maxRowsPerFragment: whole,
  policy: choice("auto", "incremental", "full"),
  concurrency: integer,
  optimizeIndices: flag,
};

/**
 * A handle for a materialized view. It holds no state: each call returns the current state. Reads skip rows without
 * values.
 */
export class View extends Relation {
  /** Return the view's query, source, recorded source version and counts. */
  @takes({}, CALL)
  async info(options?: CallOptions): Promise<MaterializedView> {
    const answer = await this.context.stubs.catalog.getMaterializedView({ view: this.ref }, options);
    if (answer.view === undefined) {
      throw new LemanError({ code: "INTERNAL", message: `the services told nothing of view ${this.name}` });
    }
    return answer.view;
  }

  /** Start a job that updates the view to a version of its source. Returns when the job has been accepted. */
  @takes({}, { ...REFRESH, ...JOB })
  async refresh(options: RefreshOptions & JobOptions = {}): Promise<Job> {
    const answer = await this.context.stubs.jobs.createJob(
      {
        request: { case: "refresh", value: this.#spec(options) },
        requestId: requestIdOf(options),
        labels: { ...options.labels },
        priority: options.priority ?? 0,
        env: { ...options.env },
      },
      options,
    );
    return new Job(this.context, this.database, answer.job?.jobId ?? "");
  }

  /** Return what a refresh would do, and why, without running it. */
  @takes({}, { ...REFRESH, ...CALL })
  async plan(options: RefreshOptions & CallOptions = {}): Promise<ExplainRefreshResponse> {
    return this.context.stubs.planner.explainRefresh({ spec: this.#spec(options) }, options);
  }

  /** Change the functions of the view's columns. The next refresh computes these columns for every row. */
  @takes({ columns: record }, MUTATION)
  async alterColumns(
    columns: Readonly<Record<string, ViewFunctionSource>>,
    options?: MutationOptions,
  ): Promise<MaterializedView | undefined> {
    for (const [name, source] of Object.entries(columns)) {
      check(`columns.${name}`, source, VIEW_FUNCTION);
    }
    const functions = Object.entries(columns).map(([name, source]) => viewFunction(name, source));
    const updateMask = { paths: ["functions"] };
    const request = { view: this.ref, functions, updateMask, requestId: requestIdOf(options) };
    return (await this.context.stubs.catalog.alterMaterializedView(request, options)).view;
  }

  /** Return a query over this view, from which another view can be created. */
  @takes()
  query(): Query {
    return new Query(this.ref);
  }

  #spec(options: RefreshOptions): MessageInitShape<typeof RefreshSpecSchema> {
    const { sourceVersion, maxRowsPerFragment, concurrency } = options;
    const policy = (options.policy ?? "auto").toUpperCase() as "AUTO" | "INCREMENTAL" | "FULL";
    return {
      view: this.ref,
      policy: RefreshSpec_Policy[policy],
      optimizeIndices: options.optimizeIndices ?? false,
      ...given({ concurrency }),
      ...(sourceVersion !== undefined && { srcVersion: toInt64("sourceVersion", sourceVersion) }),
      ...(maxRowsPerFragment !== undefined && {
        maxRowsPerFragment: toInt64("maxRowsPerFragment", maxRowsPerFragment),
      }),
    };
  }
}
