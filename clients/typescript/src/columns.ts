import type { MessageInitShape } from "@bufbuild/protobuf";

import { check, names, object, record, text, type Kind } from "./arguments.js";
import { invalid } from "./errors.js";
import { ERROR_POLICY, errorPolicyOf } from "./functions.js";
import type { NewColumn, NewColumnSchema } from "./gen/leman/v1/catalog_pb.js";
import type { ColumnSource } from "./table.js";
import { udfRef } from "./values.js";

const SOURCE: Kind = {
  told: "an object with sql, or with the name of a function",
  admits: (value) => {
    const { sql, function: udf } = (record.admits(value) ? value : {}) as Record<string, unknown>;
    return sql === undefined ? text.admits(udf) : text.admits(sql);
  },
};
const SQL = object({ sql: text, errorPolicy: ERROR_POLICY });
const FUNCTION = object({ function: text, inputs: names });

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
  const place = name === "" ? "source" : `columns.${name}`;
  check(place, source, SOURCE);
  if ("sql" in source) {
    check(place, source, SQL);
    const { sql, errorPolicy } = source;
    const told = { function: { case: "sqlExpression" as const, value: sql } };
    return errorPolicy === undefined ? told : { ...told, errorPolicy: errorPolicyOf(errorPolicy) };
  }
  if (source.function === "") {
    throw invalid("columns", `column ${JSON.stringify(name)} needs the name of a function`);
  }
  check(place, source, FUNCTION);
  const inputColumns = [...(source.inputs ?? [])];
  return { function: { case: "udf" as const, value: udfRef(source.function) }, inputColumns };
}
