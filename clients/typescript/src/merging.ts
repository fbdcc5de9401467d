import type { Schema } from "apache-arrow";

import { either, flag, object, text } from "./arguments.js";
import { encode, type Rows } from "./arrow.js";
import type { MergeRowsResponse } from "./gen/leman/v1/tables_pb.js";

/** What is to become of rows that match, and of those that do not; at least one of the three. */
export interface MergeRules {
  /** Rows of the table that match get the values that are sent; SQL that names `target.n` and `source.n`: only some. */
  updateMatched?: boolean | { where: string } | undefined;
  /** Rows that are sent and match none are added. */
  insertNotMatched?: boolean | undefined;
  /** Rows of the table that match none that is sent are deleted; SQL over the table's columns: only some. */
  deleteNotMatchedBySource?: boolean | { where: string } | undefined;
}

const RULE = either(flag, object({ where: text }, "where"));

/** What the rules of a merge are. */
export const MERGE_RULES = object<MergeRules>({
  updateMatched: RULE,
  insertNotMatched: flag,
  deleteNotMatchedBySource: RULE,
});

/** What became of rows that were merged. */
export interface Merged {
  /** The version of the table in which it is done. */
  readonly version: number;
  readonly inserted: number;
  readonly updated: number;
  readonly deleted: number;
}

/** The part of a merge's header that says what is to be done. */
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

/** What an answer says of a merge. */
export function mergedOf(answer: MergeRowsResponse): Merged {
  return {
    version: Number(answer.version),
    inserted: Number(answer.rowsInserted),
    updated: Number(answer.rowsUpdated),
    deleted: Number(answer.rowsDeleted),
  };
}

/** A message of a call that is sent a header, then rows. */
export interface Message<Header> {
  part: { case: "header"; value: Header } | { case: "arrowIpc"; value: Uint8Array };
}

/** The messages of such a call. */
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

/** The SQL that a rule of a merge has, if any. */
function conditionOf(rule: boolean | { where: string } | undefined): string {
  return typeof rule === "object" ? rule.where : "";
}
