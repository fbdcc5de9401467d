import type { Schema } from "apache-arrow";

import { either, flag, object, text } from "./arguments.js";
import { encode, type Rows } from "./arrow.js";
import type { MergeRowsResponse } from "./gen/leman/v1/tables_pb.js";

/** What a merge does with rows that match, and with those that do not; set at least one of the three. */
export interface MergeRules {
  /**
   * Update rows of the table that match a sent row with its values. A SQL condition, over `target.n` and `source.n`,
   * limits the updated rows.
   */
  updateMatched?: boolean | { where: string } | undefined;
  /** Add the sent rows that match no row of the table. */
  insertNotMatched?: boolean | undefined;
  /**
   * Delete rows of the table that match no sent row. A SQL condition over the table's columns limits the deleted rows.
   */
  deleteNotMatchedBySource?: boolean | { where: string } | undefined;
}

const RULE = either(flag, object({ where: text }, "where"));

/** The kind of a merge's rules. */
export const MERGE_RULES = object<MergeRules>({
  updateMatched: RULE,
  insertNotMatched: flag,
  deleteNotMatchedBySource: RULE,
});

/** The result of a merge. */
export interface Merged {
  /** The version of the table with the changes. */
  readonly version: number;
  readonly inserted: number;
  readonly updated: number;
  readonly deleted: number;
}

/** Make the part of a merge's header that has its rules. */
export function mergeHeader(
  on: string | readonly string[],
  rules: MergeRules,
): {
  on: string[];
  updateMatched: boolean;
  updateWhere: string;
  insertNotMatched: boolean;
  deleteNotMatchedBySource: boolean;
  deleteWhere: string;
} {
  return {
    on: typeof on === "string" ? [on] : [...on],
    updateMatched: Boolean(rules.updateMatched),
    updateWhere: conditionOf(rules.updateMatched),
    insertNotMatched: rules.insertNotMatched ?? false,
    deleteNotMatchedBySource: Boolean(rules.deleteNotMatchedBySource),
    deleteWhere: conditionOf(rules.deleteNotMatchedBySource),
  };
}

/** Convert the response to a merge. */
export function mergedOf(answer: MergeRowsResponse): Merged {
  return {
    version: Number(answer.version),
    inserted: Number(answer.rowsInserted),
    updated: Number(answer.rowsUpdated),
    deleted: Number(answer.rowsDeleted),
  };
}

/** A message of a call that sends a header and then rows. */
export interface Message<Header> {
  part: { case: "header"; value: Header } | { case: "arrowIpc"; value: Uint8Array };
}

/** Yield the messages of such a call. */
export async function* messages<Header>(
  header: Header,
  rows: Rows,
  schema: Schema | undefined,
): AsyncGenerator<Message<Header>, void, undefined> {
  yield { part: { case: "header", value: header } };
  const columns = schema ?? (await rows.schema());
  for await (const piece of encode(rows.open(), columns)) {
    yield { part: { case: "arrowIpc", value: piece } };
  }
}

/** Return the SQL condition of a merge rule, if any. */
function conditionOf(rule: boolean | { where: string } | undefined): string {
  return typeof rule === "object" ? rule.where : "";
}
