import type { MessageInitShape } from "@bufbuild/protobuf";

import { invalid } from "./errors.js";
import { errorPolicyOf } from "./functions.js";
import type { NewColumn, NewColumnSchema } from "./gen/leman/v1/catalog_pb.js";
import type { ColumnSource } from "./table.js";
import { udfRef } from "./values.js";

type Initial = Exclude<MessageInitShape<typeof NewColumnSchema>, NewColumn>;

/** @internal */
export function newColumns(
  columns: Readonly<Record<string, ColumnSource>>,
): MessageInitShape<typeof NewColumnSchema>[] {
  return Object.entries(columns).map(([name, source]) => ({ name, ...newColumn(name, source) }));
}

/** @internal */
export function newColumn(
  name: string,
  source: ColumnSource,
): Pick<Initial, "function" | "errorPolicy" | "inputColumns"> {
  if ("sql" in source) {
    const { sql, errorPolicy } = source;
    const told = { function: { case: "sqlExpression" as const, value: sql } };
    return errorPolicy === undefined ? told : { ...told, errorPolicy: errorPolicyOf(errorPolicy) };
  }
  if (source.function === "") {
    throw invalid("columns", `column ${JSON.stringify(name)} needs the name of a function`);
  }
  const inputColumns = [...(source.inputs ?? [])];
  return { function: { case: "udf" as const, value: udfRef(source.function) }, inputColumns };
}
