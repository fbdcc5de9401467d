/**
 * Makes a table of Arrow rows, has a column computed, watches the job, and reads what it computed. Prints:
 *
 *   DONE: 3 rows
 *   to be or not to be: 18
 *   that is the question: 20
 */
import { tableFromArrays } from "apache-arrow";
import { connectLocal } from "leman";

await using local = await connectLocal("lake"); // the folder that leman up was given
const texts = ["to be or not to be", "that is the question", "whether"];
const table = await local.database.createTable("lines", tableFromArrays({ text: texts }));
await table.addColumns({ size: { sql: "character_length(text)" } });

const job = await table.backfill("size"); // computes what is missing or stale
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
