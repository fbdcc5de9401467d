/** What a step can ask for, by the objects of the client. */
import { RecordBatch, RecordBatchReader, RecordBatchStreamWriter, Table as ArrowTable } from "apache-arrow";
import { collect, failureOf, kindOf, stateOf, type Database, type JobInfo, type JobState } from "leman";

/** What the harness asks for. */
export interface Step {
  with: Record<string, unknown>;
  timeout?: number;
}

type Given = any;
type Operation = (database: Database, given: Given, options: { timeout?: number }) => Promise<object>;

function rowsOf(base64: string): ArrowTable {
  const reader = RecordBatchReader.from(Buffer.from(base64, "base64")).open();
  return new ArrowTable(reader.schema, [...reader]);
}

async function written(rows: ArrowTable): Promise<string> {
  const writer = new RecordBatchStreamWriter();
  writer.reset(undefined, rows.schema);
  for (const batch of rows.batches) {
    writer.write(new RecordBatch(rows.schema, batch.data));
  }
  writer.finish();
  return Buffer.from(await writer.toUint8Array()).toString("base64");
}

function jobOf(job: JobInfo): object {
  const backfill = job.request.case === "backfill" ? job.request.value : undefined;
  const refresh = job.request.case === "refresh" ? job.request.value : undefined;
  const { jobId, labels, priority } = job;
  const table = (backfill?.table ?? refresh?.view)?.table;
  const error = stateOf(job) === "FAILED" ? { reason: failureOf(job)?.reason } : undefined;
  return { job: jobId, state: stateOf(job), table, column: backfill?.column ?? "", labels, priority, error };
}

const byName: Record<string, Operation> = {
  tables: async (db) => ({ tables: await collect(db.tables()) }),
  create_table: async (db, { table, arrow, request_id: requestId }) => {
    await db.createTable(table, rowsOf(arrow), { requestId });
    return {};
  },
  drop_table: async (db, { table, force, request_id: requestId }) => {
    await db.dropTable(table, { force, requestId });
    return {};
  },
  rename_table: async (db, { table, new_name, force, request_id: requestId }) => {
    await db.renameTable(table, new_name, { force, requestId });
    return {};
  },
  describe: async (db, { table }) => {
    const { version, rows, columns, computed } = await db.table(table).describe();
    return { version, rows, columns, computed: computed.map(({ name }) => name) };
  },
  append: async (db, { table, arrow, request_id: requestId }) => {
    await db.table(table).append(rowsOf(arrow), { requestId });
    return {};
  },
  read: async (db, { table, columns, where, limit, offset, version, batches: most }) => {
    const rows = db.table(table).read({ columns, where, limit, offset, version });
    const schema = await rows.schema();
    const batches: RecordBatch[] = [];
    for await (const batch of rows) {
      batches.push(batch);
      if (batches.length === most) {
        break;
      }
    }
    return { arrow: await written(new ArrowTable(schema, batches)) };
  },
  delete: async (db, { table, where, request_id: requestId }) => ({
    rows: await db.table(table).delete(where, { requestId }),
  }),
  update: async (db, { table, where, set, request_id: requestId }) => ({
    rows: await db.table(table).update(where, set, { requestId }),
  }),
  merge: async (db, given) => {
    const rules = {
      updateMatched: given.update && given.update_where ? { where: given.update_where } : given.update,
      insertNotMatched: given.insert,
      deleteNotMatchedBySource: given.delete && given.delete_where ? { where: given.delete_where } : given.delete,
    };
    const { inserted, updated, deleted } = await db
      .table(given.table)
      .merge(given.keys, rowsOf(given.arrow), rules, { requestId: given.request_id });
    return { inserted, updated, deleted };
  },
  add_columns: async (db, { table, columns, request_id: requestId }) => ({
    version: await db.table(table).addColumns(columns, { requestId }),
  }),
  alter_columns: async (db, { table, columns, request_id: requestId }) => ({
    version: await db.table(table).alterColumns(columns, { requestId }),
  }),
  drop_columns: async (db, { table, columns, force, request_id: requestId }) => ({
    version: await db.table(table).dropColumns(columns, { force, requestId }),
  }),
  rename_column: async (db, { table, column, new_name, force, request_id: requestId }) => ({
    version: await db.table(table).renameColumn(column, new_name, { force, requestId }),
  }),
  functions: async (db) => {
    const found = await collect(db.functions());
    return { functions: found.map(({ name, version }) => `${name}@${version}`) };
  },
  register_function: async (db, { name, version, kind, entrypoint, inputs, output }) => {
    await db.registerFunction({ name, version, kind, inputs, output, code: { entrypoint } });
    return {};
  },
  upload_bundle: async (db, { data }) => ({ sha256: await db.uploadBundle(Buffer.from(data, "base64")) }),
  create_view: async (db, { view, source, columns, where, request_id: requestId }) => {
    let query = db.table(source).query();
    query = columns ? query.select(columns) : query;
    query = where ? query.where(where) : query;
    await db.createView(view, query, { requestId });
    return {};
  },
  views: async (db) => ({ views: (await collect(db.views())).map(({ name }) => name) }),
  drop_view: async (db, { view, force, request_id: requestId }) => {
    await db.dropView(view, { force, requestId });
    return {};
  },
  plan: async (db, { table, column, where }) => {
    const { rowsTotal, rowsReused, rowsToCompute, reasons } = await db.table(table).plan(column, { where });
    return {
      rows_total: rowsTotal,
      rows_reused: rowsReused,
      rows_to_compute: rowsToCompute,
      reasons: Object.fromEntries(Object.entries(reasons).map(([reason, { rows }]) => [reason, rows])),
    };
  },
  preview: async (db, { table, column, where, n: rows, ...source }) => {
    const made = await db.table(table).preview(column ?? source, { where, rows });
    return {
      states: made.rows.map(({ state }) => state),
      outputs: made.rows.map(({ output }) => output),
      rows_to_compute: made.rowsToCompute,
    };
  },
  backfill: async (db, { table, column, where, labels, priority, request_id: requestId }) => ({
    job: (await db.table(table).backfill(column, { where, labels, priority, requestId })).id,
  }),
  refresh: async (db, { view, request_id: requestId }) => ({ job: (await db.view(view).refresh({ requestId })).id }),
  jobs: async (db, { table, states, labels, limit }) => {
    const tables = table === undefined || table === null ? [] : [table];
    const found = await collect(db.jobs({ tables, states, labels, limit }));
    return { jobs: found.map(({ jobId }) => jobId) };
  },
  job: async (db, { job }) => jobOf(await db.job(job).info()),
  watch: async (db, { job, take = Number.POSITIVE_INFINITY }, options) => {
    const events: object[] = [];
    let state: JobState | undefined;
    for await (const update of db.job(job).watch(options)) {
      ({ state } = update);
      events.push(...update.events.map((event) => ({ sequence: String(event.sequence), kind: kindOf(event) })));
      if (events.length >= take) {
        break;
      }
    }
    return { events: events.slice(0, take), state };
  },
  wait: async (db, { job, progress }, options) => {
    const told: string[] = [];
    const onProgress = progress
      ? ({ rowsCommitted }: { rowsCommitted: bigint }) => told.push(String(rowsCommitted))
      : undefined;
    const ended = await db.job(job).wait({ ...options, onProgress });
    return { state: stateOf(ended), progress: told };
  },
  cancel: async (db, { job }) => ({ state: stateOf(await db.job(job).cancel()) }),
  pause: async (db, { job }) => ({ state: stateOf(await db.job(job).pause()) }),
  resume: async (db, { job }) => ({ state: stateOf(await db.job(job).resume()) }),
  errors: async (db, { job, limit }) => {
    const found = await collect(db.job(job).errors({ limit }));
    return {
      errors: found.map(({ rowAddress, errorType }) => ({ row_address: String(rowAddress), error_type: errorType })),
    };
  },
};

/** What a step does, by its word. */
export const operations: Record<string, ((database: Database, step: Step) => Promise<object>) | undefined> =
  Object.fromEntries(
    Object.entries(byName).map(([name, operation]) => [
      name,
      async (database: Database, step: Step) =>
        operation(database, step.with, step.timeout === undefined ? {} : { timeout: step.timeout * 1000 }),
    ]),
  );
