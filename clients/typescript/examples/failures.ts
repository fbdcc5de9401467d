/**
 * Has a function that is installed on the workers compute a column, skips the row on which it fails, says which that was,
 * and handles errors by their reason. Prints:
 *
 *   DONE_WITH_ERRORS: 2 computed, 1 failed
 *   row 1: ValueError
 *   there is no table nowhere
 */
import { tableFromArrays } from "apache-arrow";
import { connect, LemanError, stateOf } from "leman";

const [endpoint = "localhost:7443", database = "/data/lake"] = process.argv.slice(2);
await using client = await connect(endpoint, { token: process.env.LEMAN_TOKEN });
const db = client.database(database);

const table = await db.createTable("numbers", tableFromArrays({ x: Float64Array.of(4, -1, 9) }));
await db.registerFunction({
  name: "root",
  version: "1",
  code: { entrypoint: "math:sqrt" },
  inputs: ["x"],
  output: "float64",
  errorPolicy: { rules: [{ action: "skip", exceptions: ["ValueError"] }], storeErrors: true },
});
await table.addColumns({ root: { function: "root@1" } });
const job = await table.backfill("root", { labels: { why: "example" } });
const ended = await job.wait({ onProgress: () => undefined, timeout: 90_000 });
const { rowsComputed, rowsFailed } = ended.progress ?? {};
console.log(`${stateOf(ended)}: ${String(rowsComputed)} computed, ${String(rowsFailed)} failed`);
for await (const { rowAddress, errorType } of job.errors()) {
  console.log(`row ${String(rowAddress)}: ${errorType}`);
}

try {
  await db.table("nowhere").describe();
} catch (error) {
  if (error instanceof LemanError && error.reason === "TABLE_NOT_FOUND") {
    console.log("there is no table nowhere");
  }
}
