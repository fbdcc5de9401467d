/**
 * Makes a table of Arrow rows, has a column computed, watches the job, and reads what it computed. Prints:
 *
 *   DONE: 3 rows
 *   to be or not to be: 18
 *   that is the question: 20
 */
import { tableFromArrays } from "apache-arrow";
import { connect } from "leman";

const [endpoint = "localhost:7443", database = "/data/lake"] = process.argv.slice(2);
await using client = await connect(endpoint, { token: process.env.LEMAN_TOKEN });
const db = client.database(database);

const texts = ["to be or not to be", "that is the question", "whether"];
const table = await db.createTable("lines", tableFromArrays({ text: texts }));
await table.addColumns({ size: { sql: "character_length(text)" } });
const job = await table.backfill("size");
for await (const { state, job: info } of job.watch()) {
  if (state === "DONE") {
    console.log(`${state}: ${String(info.progress?.rowsCommitted)} rows`);
  }
}
for await (const batch of table.read({ where: "size > 10" })) {
  for (const row of batch) {
    const { text, size } = row as unknown as { text: string; size: number };
    console.log(`${text}: ${String(size)}`);
  }
}
