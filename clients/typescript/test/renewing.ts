/**
 * Calls services over mTLS whose certificates, and those of the client, are replaced by ones of another authority, twice.
 * Arguments: folders of authorities, each with ca.pem, server.* and etl.*.
 */
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { ServerCredentials } from "@grpc/grpc-js";
import { connect, LemanError } from "leman";

import { serve } from "./fake.js";

const own = mkdtempSync(join(tmpdir(), "leman-"));
process.on("exit", () => {
  rmSync(own, { recursive: true });
});
const [ca, cert, key] = ["ca.pem", "etl.pem", "etl.key"].map((name) => join(own, name));
const [first = "", second = "", third = ""] = process.argv.slice(2);

async function services(authority: string, port = 0): ReturnType<typeof serve> {
  const [trusted, chain, secret] = ["ca.pem", "server.pem", "server.key"].map((name) =>
    readFileSync(join(authority, name)),
  ) as [Buffer, Buffer, Buffer];
  const pair = { cert_chain: chain, private_key: secret };
  return serve({ unary: {} }, port, ServerCredentials.createSsl(trusted, [pair], true));
}

function renew(authority: string): void {
  for (const name of ["ca.pem", "etl.pem", "etl.key"]) {
    copyFileSync(join(authority, name), join(own, name));
  }
}

renew(first);
let running = await services(first);
const port = Number(running.endpoint.split(":")[1]);
await using client = await connect(`localhost:${String(port)}`, { tls: { ca, cert, key }, patience: 20_000 });
await client.info();
for (const authority of [second, third]) {
  running.stop();
  renew(authority);
  running = await services(authority, port);
  await client.info().catch(async (error: unknown) => {
    if (error instanceof LemanError && error.code === "CANCELLED") {
      return client.info(); // the end of the services met the call
    }
    throw error;
  });
  process.stdout.write("renewed\n");
}
running.stop();
