import type { Schema } from "apache-arrow";

import type { Rows } from "./arrow.js";
import { requestIdOf, type Context, type MutationOptions } from "./context.js";
import { TableService } from "./gen/leman/v1/tables_pb.js";
import { messages, type Message } from "./merging.js";
import { forUploads } from "./policy.js";
import { toInt64 } from "./values.js";

/** The result of adding rows. */
export interface Appended {
  /** The version of the table with the new rows. */
  readonly version: number;
  readonly rows: number;
}

const A_DAY = 86_400_000;

/** Add rows to a table, as `Table.append` describes. */
export async function appendRows(
  { calls }: Context,
  table: { database: string; table: string },
  rows: Rows,
  schema: Schema | undefined,
  options: MutationOptions & { maxRowsPerFragment?: number | undefined },
): Promise<Appended> {
  const header = {
    table,
    requestId: requestIdOf(options),
    maxRowsPerFragment: toInt64("maxRowsPerFragment", options.maxRowsPerFragment ?? 0),
  };
  const open = (): AsyncGenerator<Message<typeof header>> => messages(header, rows, schema);
  const retrying = calls.retrying(rows.repeatable ? forUploads : undefined);
  const answer = await calls.clientStream(TableService.method.appendRows, open, options, retrying, A_DAY);
  return { version: Number(answer.version), rows: Number(answer.rowsAdded) };
}
