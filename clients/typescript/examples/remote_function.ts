/**
 * Serves a function from this process, has a column computed by it, and skips the row on which it fails. Prints:
 *
 *   DONE_WITH_ERRORS: 2 computed, 1 failed
 *   NotAName: no one is called 42
 *   Ada: ADA
 *   Grace: GRACE
 *   42: null
 */
import { tableFromArrays, Utf8 } from "apache-arrow";
import { connect, stateOf } from "leman";
import { eachRow, serve } from "leman/functions";

class NotAName extends Error {}

function shout(name: string): string {
  if (/\d/.test(name)) {
    throw new NotAName(`nobody is called ${name}`);
  }
  return name.toUpperCase();
}

const inputs = { name: new Utf8() };
await using server = await serve([{ name: "shout", inputs, output: new Utf8(), call: eachRow(shout) }], { port: 0 });

const [endpoint = "localhost:7443", database = "/data/lake"] = process.argv.slice(2);
await using client = await connect(endpoint, { token: process.env.LEMAN_TOKEN });
const db = client.database(database);
const table = await db.createTable("called", tableFromArrays({ name: ["Ada", "Grace", "42"] }));
const { name, version } = await db.registerRemote({
  name: "shout",
  addresses: [`grpc://127.0.0.1:${String(server.port)}`],
  errorPolicy: { rules: [{ action: "skip", exceptions: ["NotAName"] }], storeErrors: true },
});
await table.addColumns({ loud: { function: `${name}@${version}` } });

const job = await table.backfill("loud");
const ended = await job.wait({ timeout: 90_000 });
const { rowsComputed, rowsFailed } = ended.progress ?? {};
console.log(`${stateOf(ended)}: ${String(rowsComputed)} computed, ${String(rowsFailed)} failed`);
for await (const { errorType, errorMessage } of job.errors()) {
  console.log(`${errorType}: ${errorMessage}`);
}
for (const { name, loud } of await table.toArrow()) {
  console.log(`${String(name)}: ${String(loud)}`);
}
