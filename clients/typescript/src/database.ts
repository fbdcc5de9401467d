import { createHash } from "node:crypto";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Schema } from "apache-arrow";

import { appendRows } from "./appending.js";
import { bytes, either, flag, object, record, schema, text, whole, type Kind, type Kinds } from "./arguments.js";
import { encodeSchema, ROWS, Rows, type RowSource } from "./arrow.js";
import {
  derivedId,
  FORCE,
  MUTATION,
  requestIdOf,
  type Context,
  type ForceOptions,
  type MutationOptions,
} from "./context.js";
import { LemanError } from "./errors.js";
import {
  definitionOf,
  remoteDefinitionOf,
  type FunctionDefinition,
  type RemoteFunctionDefinition,
} from "./functions.js";
import {
  CatalogService,
  type GetUdfResponse,
  type MaterializedViewSummary,
  type UploadBundleRequestSchema,
} from "./gen/leman/v1/catalog_pb.js";
import { CommitService, type VerifyDatabaseResponse } from "./gen/leman/v1/commit_pb.js";
import { JobOrder, type CancelJobsResponse, type Job as JobInfo } from "./gen/leman/v1/jobs_pb.js";
import type { UdfDefinition } from "./gen/leman/v1/udf_pb.js";
import { FILTER, jobFilter, LIST_JOBS, type JobFilter, type ListJobsOptions } from "./job_options.js";
import { Job } from "./jobs.js";
import { LIST, listed, type ListOptions } from "./paging.js";
import { policyOf } from "./policy.js";
import { Query } from "./query.js";
import { CALL, type CallOptions } from "./scope.js";
import { Table } from "./table.js";
import { takes } from "./takes.js";
import { toInt64, udfRef } from "./values.js";
import { View } from "./view.js";

/** Options of `Database.createTable`. */
export interface CreateTableOptions extends MutationOptions {
  /** The schema of the rows, for an iterable that may be empty. */
  schema?: Schema | undefined;
  maxRowsPerFragment?: number | undefined;
  /** Whether row ids survive updates and compaction; undefined: true. */
  stableRowIds?: boolean | undefined;
}

const CREATE_TABLE: Kinds<CreateTableOptions> = { ...MUTATION, schema, maxRowsPerFragment: whole, stableRowIds: flag };

const QUERY: Kind = {
  told: "a query, such as table.query().select([…])",
  admits: (value) => value instanceof Query,
};

const PIECE_BYTES = 512 << 10;
const AN_HOUR = 3_600_000;

/**
 * A handle for a database: a folder, or a prefix of an object store, with Lance tables. It holds no state: each call
 * returns the current state.
 */
export class Database {
  readonly #context: Context;

  /** @internal */
  constructor(
    context: Context,
    readonly name: string,
  ) {
    this.#context = context;
  }

  /** Return a handle for a table. Makes no call. */
  @takes({ name: text })
  table(name: string): Table {
    return new Table(this.#context, this.name, name);
  }

  /** Return a handle for a view. Makes no call. */
  @takes({ name: text })
  view(name: string): View {
    return new View(this.#context, this.name, name);
  }

  /** Return a handle for a job, to watch, wait for or cancel it. Makes no call. */
  @takes({ id: text })
  job(id: string): Job {
    return new Job(this.#context, this.name, id);
  }

  /**
   * Create a table from rows, or an empty one from a schema. If adding the rows fails, it drops the table, unless you
   * passed a `requestId`: then the table stays, and another call with that id can continue.
   */
  @takes({ name: text, rows: either(schema, ROWS) }, CREATE_TABLE)
  async createTable(name: string, rows: RowSource | Schema, options: CreateTableOptions = {}): Promise<Table> {
    const table = this.table(name);
    const source = rows instanceof Schema ? undefined : new Rows(rows, options.schema);
    const columns = rows instanceof Schema ? rows : await (source as Rows).schema();
    const request = {
      table: table.ref,
      columns: { case: "schema" as const, value: encodeSchema(columns) },
      stableRowIds: options.stableRowIds ?? true,
      requestId: requestIdOf(options),
    };
    await this.#context.stubs.tables.createTable(request, options);
    if (source !== undefined) {
      const requestId = derivedId(request.requestId, "rows");
      await appendRows(this.#context, table.ref, source, columns, { ...options, requestId }).catch(
        async (error: unknown) => {
          if (options.requestId === undefined) {
            await this.dropTable(name, { force: true });
          }
          throw error;
        },
      );
    }
    return table;
  }

  /** List the names of the tables, in order. */
  @takes({}, LIST)
  tables(options?: ListOptions): AsyncGenerator<string, void, undefined> {
    const { catalog } = this.#context.stubs;
    const call = (page: object) => catalog.listTables({ database: this.name, ...page }, options);
    return listed(call, ({ tables }) => tables, options?.limit);
  }

  /** Remove a table with all its versions. With `force` also if views depend on it, or jobs of it have not ended. */
  @takes({ name: text }, FORCE)
  async dropTable(name: string, options?: ForceOptions): Promise<void> {
    const request = { table: this.#ref(name), force: options?.force ?? false, requestId: requestIdOf(options) };
    await this.#context.stubs.tables.dropTable(request, options);
  }

  /** Rename a table. */
  @takes({ name: text, newName: text }, FORCE)
  async renameTable(name: string, newName: string, options?: ForceOptions): Promise<Table> {
    const request = {
      table: this.#ref(name),
      newName,
      force: options?.force ?? false,
      requestId: requestIdOf(options),
    };
    await this.#context.stubs.tables.renameTable(request, options);
    return this.table(newName);
  }

  /** Create a view from a query; `refresh` computes its values. */
  @takes({ name: text, query: QUERY }, { ...MUTATION, maxRowsPerFragment: whole })
  async createView(
    name: string,
    query: Query,
    options?: MutationOptions & { maxRowsPerFragment?: number | undefined },
  ): Promise<View> {
    const rows = options?.maxRowsPerFragment;
    const request = {
      view: this.#ref(name),
      query: query.message,
      requestId: requestIdOf(options),
      ...(rows !== undefined && { maxRowsPerFragment: toInt64("maxRowsPerFragment", rows) }),
    };
    this.#warn((await this.#context.stubs.catalog.createMaterializedView(request, options)).warnings);
    return this.view(name);
  }

  /** List the views, by name; `view(name).info()` returns more about one. */
  @takes({}, LIST)
  views(options?: ListOptions): AsyncGenerator<MaterializedViewSummary, void, undefined> {
    const { catalog } = this.#context.stubs;
    const call = (page: object) => catalog.listMaterializedViews({ database: this.name, ...page }, options);
    return listed(call, ({ views, warnings }) => (this.#warn(warnings), views), options?.limit);
  }

  /** Remove a view. With `force` also if views depend on it. */
  @takes({ name: text }, FORCE)
  async dropView(name: string, options?: ForceOptions): Promise<void> {
    const request = { view: this.#ref(name), force: options?.force ?? false, requestId: requestIdOf(options) };
    await this.#context.stubs.commits.dropView(request, options);
  }

  /** List the registered functions, by name, and the newest version of each first. */
  @takes({}, LIST)
  functions(options?: ListOptions): AsyncGenerator<UdfDefinition, void, undefined> {
    const { catalog } = this.#context.stubs;
    const call = (page: object) => catalog.listUdfs({ database: this.name, ...page }, options);
    return listed(call, ({ definitions }) => definitions, options?.limit);
  }

  /** Return a registered function: `name@version`, or `name` for the newest version. */
  @takes({ name: text }, CALL)
  async function(name: string, options?: CallOptions): Promise<GetUdfResponse> {
    return this.#context.stubs.catalog.getUdf({ database: this.name, udf: udfRef(name) }, options);
  }

  /** Register a function. Returns false if the same definition was registered before. */
  @takes({ wanted: record }, CALL)
  async registerFunction(wanted: FunctionDefinition, options?: CallOptions): Promise<boolean> {
    const request = { database: this.name, definition: definitionOf(wanted) };
    return (await this.#context.stubs.catalog.registerUdf(request, options)).created;
  }

  /**
   * Register a function that your own servers compute; at least one server must answer. Returns the stored definition,
   * with the version and types that the servers report. Use it in columns as `name@version`. You can register the same
   * version again with other addresses.
   */
  @takes({ wanted: record }, CALL)
  async registerRemote(wanted: RemoteFunctionDefinition, options?: CallOptions): Promise<UdfDefinition> {
    const request = { database: this.name, definition: remoteDefinitionOf(wanted) };
    const { definition, warnings } = await this.#context.stubs.catalog.registerUdf(request, options);
    this.#warn(warnings);
    if (definition === undefined) {
      throw new LemanError({ code: "UNIMPLEMENTED", message: "these services are too old for functions of that kind" });
    }
    return definition;
  }

  /** Store a pickled function that was made elsewhere. Returns the sha256 by which `RegisterUdf` refers to it. */
  @takes({ data: bytes }, CALL)
  async uploadBundle(data: Uint8Array, options?: CallOptions): Promise<string> {
    const sha256 = createHash("sha256").update(data).digest("hex");
    const header = { database: this.name, sha256, sizeBytes: BigInt(data.byteLength) };
    const { calls } = this.#context;
    const method = CatalogService.method.uploadBundle;
    const open = (): ReturnType<typeof bundleMessages> => bundleMessages(header, data);
    await calls.clientStream(method, open, options, calls.retrying(policyOf(method, false)), AN_HOUR);
    return sha256;
  }

  /** List the jobs that match a filter, newest first. */
  @takes({}, LIST_JOBS)
  jobs(options: ListJobsOptions = {}): AsyncGenerator<JobInfo, void, undefined> {
    const order = options.order === "oldest" ? JobOrder.OLDEST_FIRST : JobOrder.NEWEST_FIRST;
    const request = { database: this.name, filter: jobFilter(options), order };
    const { jobs } = this.#context.stubs;
    const call = (page: object) => jobs.listJobs({ ...request, ...page }, options);
    return listed(call, ({ jobs, warnings }) => (this.#warn(warnings), jobs), options.limit);
  }

  /** Cancel all jobs that match a filter and have not ended. */
  @takes({ filter: object(FILTER) }, CALL)
  async cancelJobs(filter: JobFilter, options?: CallOptions): Promise<CancelJobsResponse> {
    return this.#context.stubs.jobs.cancelJobs({ database: this.name, filter: jobFilter(filter) }, options);
  }

  /**
   * Compare all stored data of the database with the recorded digests, and yield what was checked, part by part. If the
   * call is interrupted, it continues after the last part. `resumeToken`: continue an earlier call after one of its
   * parts.
   */
  @takes({}, { ...CALL, resumeToken: text })
  async *verify(
    options: CallOptions & { resumeToken?: string } = {},
  ): AsyncGenerator<VerifyDatabaseResponse, void, undefined> {
    let { resumeToken = "" } = options;
    const request = () => ({ database: this.name, resumeToken });
    const take = (answer: VerifyDatabaseResponse): boolean => {
      resumeToken = answer.resumeToken;
      return resumeToken === "";
    };
    const { calls } = this.#context;
    yield* calls.resumedStream(CommitService.method.verifyDatabase, request, take, calls.scope(options));
  }

  #ref(table: string): { database: string; table: string } {
    return { database: this.name, table };
  }

  #warn(warnings: readonly string[]): void {
    for (const text of warnings) {
      this.#context.warn(text);
    }
  }
}

function* bundleMessages(
  header: { database: string; sha256: string; sizeBytes: bigint },
  data: Uint8Array,
): Generator<MessageInitShape<typeof UploadBundleRequestSchema>, void, undefined> {
  yield { part: { case: "header", value: header } };
  for (let at = 0; at < data.byteLength; at += PIECE_BYTES) {
    yield { part: { case: "data", value: data.subarray(at, at + PIECE_BYTES) } };
  }
}
