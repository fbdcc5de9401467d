/**
 * Makes a view of a table, fills it, and refreshes it once the table has changed. Prints:
 *
 *   2 rows
 *   3 rows: incremental
 */
import { tableFromArrays } from "apache-arrow";
import { connect } from "leman";
import { RefreshMode } from "leman/v1";

const [endpoint = "localhost:7443", database = "/data/lake"] = process.argv.slice(2);
await using client = await connect(endpoint, { token: process.env.LEMAN_TOKEN });
const db = client.database(database);

const people = (ages: number[]) => tableFromArrays({ age: Int32Array.from(ages) });
const table = await db.createTable("people", people([17, 21, 64]));
const query = table.query().where("age >= 18").select({ age: "age", next: "age + 1" });
const adults = await db.createView("adults", query);
await (await adults.refresh()).wait();
console.log(`${String((await adults.info()).rowsSet)} rows`);

await table.append(people([3, 40]));
const { refreshResult } = await (await adults.refresh({ policy: "incremental" })).wait();
const mode = RefreshMode[refreshResult?.mode ?? 0]?.toLowerCase() ?? "";
console.log(`${String((await adults.toArrow()).numRows)} rows: ${mode}`);
