import type { MessageInitShape } from "@bufbuild/protobuf";

import { either, names, object, strings, text, whole } from "./arguments.js";
import type { ViewFunctionSchema, ViewQuerySchema } from "./gen/leman/v1/catalog_pb.js";
import { takes } from "./takes.js";
import { toInt64, udfRef } from "./values.js";

/** A registered function, `name` or `name@version`, with the source's columns that take the place of its inputs. */
export interface ViewFunctionSource {
  function: string;
  inputs?: readonly string[] | undefined;
}

/** What a function column of a view is. */
export const VIEW_FUNCTION = object<ViewFunctionSource>({ function: text, inputs: names }, "function");

/** What a query asks for, as its messages have it. */
interface Parts {
  where?: string;
  columns?: { name: string; expression: string }[];
  functions?: MessageInitShape<typeof ViewFunctionSchema>[];
  shuffleSeed?: bigint;
  limit?: bigint;
  offset?: bigint;
}

/**
 * Rows and columns of a table or view, put together step by step; every method gives a new query. A view made of it holds
 * one row for each row of its source that the filter matches.
 */
export class Query {
  readonly #source: { database: string; table: string };
  readonly #parts: Parts;

  /** @internal */
  constructor(source: { database: string; table: string }, parts: Parts = {}) {
    this.#source = source;
    this.#parts = parts;
  }

  /** How the protos have it. */
  get message(): MessageInitShape<typeof ViewQuerySchema> {
    return { ...this.#parts, source: this.#source };
  }

  /** Only rows for which this SQL is true; given twice, both have to be. */
  @takes({ expression: text })
  where(expression: string): Query {
    const before = this.#parts.where ?? "";
    return this.#with({ where: before === "" ? expression : `(${before}) AND (${expression})` });
  }

  /** Only these columns: names, or names with SQL expressions. Without it: all columns of the source. */
  @takes({ columns: either(names, strings) })
  select(columns: readonly string[] | Readonly<Record<string, string>>): Query {
    const pairs = isList(columns) ? columns.map((name) => [name, ""] as const) : Object.entries(columns);
    return this.#with({ columns: pairs.map(([name, expression]) => ({ name, expression })) });
  }

  /** One more column, computed by a registered function. */
  @takes({ name: text, source: VIEW_FUNCTION })
  addFunction(name: string, source: ViewFunctionSource): Query {
    return this.#with({ functions: [...(this.#parts.functions ?? []), viewFunction(name, source)] });
  }

  /** A random order of the rows, the same for the same seed. */
  @takes({ seed: whole })
  shuffle(seed: number | bigint): Query {
    return this.#with({ shuffleSeed: toInt64("seed", seed) });
  }

  /** At most so many rows, the first by source row id. */
  @takes({ rows: whole })
  limit(rows: number): Query {
    return this.#with({ limit: toInt64("limit", rows) });
  }

  /** Leave out so many rows, the first by source row id. */
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
