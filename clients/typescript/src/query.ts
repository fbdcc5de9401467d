import type { MessageInitShape } from "@bufbuild/protobuf";

import { either, names, object, strings, text, whole } from "./arguments.js";
import type { ViewFunctionSchema, ViewQuerySchema } from "./gen/leman/v1/catalog_pb.js";
import { takes } from "./takes.js";
import { toInt64, udfRef } from "./values.js";

/** A registered function, `name` or `name@version`, and the columns of the source to use as its inputs. */
export interface ViewFunctionSource {
  function: string;
  inputs?: readonly string[] | undefined;
}

/** The kind of a view's function column. */
export const VIEW_FUNCTION = object<ViewFunctionSource>({ function: text, inputs: names }, "function");

/** The parts of a query, as the message has them. */
interface Parts {
  where?: string;
  columns?: { name: string; expression: string }[];
  functions?: MessageInitShape<typeof ViewFunctionSchema>[];
  shuffleSeed?: bigint;
  limit?: bigint;
  offset?: bigint;
}

/**
 * A query for rows and columns of a table or view. Each method returns a new query. A view of a query has one row for
 * each row of its source that matches the filter.
 */
export class Query {
  readonly #source: { database: string; table: string };
  readonly #parts: Parts;

  /** @internal */
  constructor(source: { database: string; table: string }, parts: Parts = {}) {
    this.#source = source;
    this.#parts = parts;
  }

  /** The query as a message of the protos. */
  get message(): MessageInitShape<typeof ViewQuerySchema> {
    return { ...this.#parts, source: this.#source };
  }

  /** Keep only rows for which this SQL condition is true; several conditions must all be true. */
  @takes({ expression: text })
  where(expression: string): Query {
    const before = this.#parts.where ?? "";
    return this.#with({ where: before === "" ? expression : `(${before}) AND (${expression})` });
  }

  /**
   * Keep only these columns: names, or names with SQL expressions. Without this, a query has all columns of the source.
   */
  @takes({ columns: either(names, strings) })
  select(columns: readonly string[] | Readonly<Record<string, string>>): Query {
    const pairs = isList(columns) ? columns.map((name) => [name, ""] as const) : Object.entries(columns);
    return this.#with({ columns: pairs.map(([name, expression]) => ({ name, expression })) });
  }

  /** Add a column that a registered function computes. */
  @takes({ name: text, source: VIEW_FUNCTION })
  addFunction(name: string, source: ViewFunctionSource): Query {
    return this.#with({ functions: [...(this.#parts.functions ?? []), viewFunction(name, source)] });
  }

  /** Put the rows in a random order, which is the same for equal seeds. */
  @takes({ seed: whole })
  shuffle(seed: number | bigint): Query {
    return this.#with({ shuffleSeed: toInt64("seed", seed) });
  }

  /** Keep at most this number of rows, the first by source row id. */
  @takes({ rows: whole })
  limit(rows: number): Query {
    return this.#with({ limit: toInt64("limit", rows) });
  }

  /** Skip this number of rows, the first by source row id. */
  @takes({ rows: whole })
  offset(rows: number): Query {
    return this.#with({ offset: toInt64("offset", rows) });
  }

  #with(changes: Parts): Query {
    return new Query(this.#source, { ...this.#parts, ...changes });
  }
}

/** Make a function column of the protos. */
export function viewFunction(
  name: string,
  { function: udf, inputs = [] }: ViewFunctionSource,
): MessageInitShape<typeof ViewFunctionSchema> {
  return { name, udf: udfRef(udf), inputColumns: [...inputs] };
}

function isList(columns: readonly string[] | Readonly<Record<string, string>>): columns is readonly string[] {
  return Array.isArray(columns);
}
