/** Function servers in the test's own process. */
import { Int32, Table, vectorFromArray, type DataType, type Vector } from "apache-arrow";
import { serve, type FunctionServer, type ServedFunction, type ServeOptions } from "leman/functions";

import { FlightCaller } from "./flight.js";

/** Rows of one column of whole numbers. */
export const numbers = (...values: (number | null)[]): Table => new Table({ n: vectorFromArray(values, new Int32()) });
/** Values of the first column. */
export const column = (batch: { getChildAt: (at: number) => Vector | null }): unknown[] => [
  ...(batch.getChildAt(0) ?? []),
];

/** A export function of whole numbers. */
export function of(call: ServedFunction["call"], output: DataType = new Int32()): ServedFunction {
  return { name: "f", version: "1", inputs: { x: new Int32() }, output, call };
}

/** Gives its numbers back. */
export const same = of((batch) => column(batch));

/** Run a test with a server of functions. */
export async function withServer(
  served: ServedFunction | readonly ServedFunction[],
  test: (caller: FlightCaller, server: FunctionServer) => Promise<void>,
  options: Partial<ServeOptions> = {},
): Promise<void> {
  await using server = await serve([served].flat(), { port: 0, ...options });
  using caller = new FlightCaller(server.port);
  await test(caller, server);
}
