/** Has a column computed by a remote function, and serves a page that shows how far the job is while it runs. */
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { connect, LemanError } from "leman";

const [endpoint = "", database = "", address = ""] = process.argv.slice(2);
const page = `<!doctype html><meta charset="utf-8"><title>vocabulary</title>
<h1>files.vocabulary</h1><progress id="bar" max="1"></progress><p id="text">
<script>
  new EventSource("/progress").onmessage = ({ data }) => {
    const { state, done, of } = JSON.parse(data);
    bar.max = of || 1, bar.value = done, text.textContent = state + ": " + done + " of " + of + " rows";
  };
</script>`;

let now = { state: "STARTING", done: 0, of: 0 };
const viewers = new Set<ServerResponse>();
const tell = (viewer: ServerResponse): boolean => viewer.write(`data: ${JSON.stringify(now)}\n\n`);

const server = createServer((request, response) => {
  if (request.url === "/progress") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    viewers.add(response);
    response.on("close", () => viewers.delete(response));
    tell(response);
  } else {
    response.writeHead(200, { "content-type": "text/html" }).end(page);
  }
}).listen(0, "127.0.0.1", () => {
  console.log(`page at http://127.0.0.1:${String((server.address() as AddressInfo).port)}`);
});

await using client = await connect(endpoint, { token: process.env.LEMAN_TOKEN });
const db = client.database(database);
const { name, version } = await db.registerRemote({ name: "vocabulary", addresses: [address], inputs: ["text"] });
const files = db.table("files");
const column = { vocabulary: { function: `${name}@${version}` } };
await files.addColumns(column).catch(async (error: unknown) => {
  if (!(error instanceof LemanError && error.reason === "COLUMN_EXISTS")) {
    throw error;
  }
  return files.alterColumns(column); // of another version perhaps: its values are computed again
});
const job = await files.backfill("vocabulary");
for await (const { state, job: info } of job.watch()) {
  const next = { state, done: Number(info.progress?.rowsComputed ?? 0n), of: Number(info.progress?.rowsPlanned ?? 0n) };
  if (JSON.stringify(next) !== JSON.stringify(now)) {
    now = next;
    viewers.forEach(tell);
    console.log(`${state}: ${String(now.done)} of ${String(now.of)} rows`);
  }
}
console.log(`had ${name}@${version} computed for ${String(now.of)} rows: ${now.state}`);
viewers.forEach((viewer) => viewer.end());
server.close();
