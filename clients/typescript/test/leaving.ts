/** Leaves calls of every kind open, closes the client, and ends by itself if nothing is left. */
import { connect } from "leman";

const client = await connect(process.argv[2] ?? "");
const job = client.database("lake").job("j");
const watch = job.watch();
await watch.next(); // open, and never continued
const waiting = job.wait().catch(() => undefined);
const rows = client.database("lake").table("docs").read();
const reading = rows.schema().catch(() => undefined);
client.close();
await Promise.all([waiting, reading]);
process.stdout.write("closed\n");
