/**
 * Computed columns and materialized views of Lance tables: a client for Leman's services.
 *
 * @packageDocumentation
 */
export type { RowSource } from "./arrow.js";
export type { TlsOptions } from "./certificates.js";
export { Client, connect, type ConnectOptions } from "./client.js";
export type { Appended } from "./appending.js";
export type { ForceOptions, MutationOptions } from "./context.js";
export { Database, type CreateTableOptions } from "./database.js";
export { Databases, type DatabaseAttributes } from "./databases.js";
export { LemanError, type Code, type FieldViolation, type Reason } from "./errors.js";
export type { ErrorPolicy, ErrorRule, FunctionDefinition, RemoteFunctionDefinition } from "./functions.js";
export type {
  JobFilter,
  JobOptions,
  JobState,
  JobUpdate,
  ListJobsOptions,
  RetryOptions,
  WaitOptions,
  WatchOptions,
} from "./job_options.js";
export { failureOf, hasEnded, Job, kindOf, stateOf, type JobEventKind, type JobInfo } from "./jobs.js";
export { connectLocal, LocalDatabase } from "./local.js";
export type { Merged, MergeRules } from "./merging.js";
export { collect, type ListOptions } from "./paging.js";
export type { Plan, PlanOptions } from "./planning.js";
export type { Preview, PreviewOptions, PreviewRow } from "./preview.js";
export { Query, type ViewFunctionSource } from "./query.js";
export { RowStream, type ReadOptions } from "./reading.js";
export { TableDescription } from "./relation.js";
export type { CallOptions } from "./scope.js";
export type { Stub, Stubs } from "./stubs.js";
export { Table, type ColumnSource, type RowState } from "./table.js";
export { tokenFile, type Token, type TokenSource } from "./tokens.js";
export { View, type RefreshOptions } from "./view.js";
