/** Serves a function that tells how many characters a text has, until Ctrl-C. */
import { Int64, Utf8 } from "apache-arrow";
import { eachRow, serve } from "leman/functions";

const length = {
  name: "length",
  inputs: { text: new Utf8() },
  output: new Int64(),
  call: eachRow((text: string | null) => (text === null ? null : Array.from(text).length)),
};
const server = await serve([length], { port: Number(process.env.PORT ?? 7815), token: process.env.FUNCTION_TOKEN });
console.log(`length@${String(server.versions.length)} at port ${String(server.port)}`);
process.once("SIGINT", () => void server.close());
