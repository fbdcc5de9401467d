/** Two copies of apache-arrow in one process. */
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { it } from "node:test";

import type * as arrow from "apache-arrow";
import { Table as ArrowTable, tableFromIPC } from "apache-arrow";
import { serve } from "leman/functions";

import { withServices, type Request } from "./fake.js";
import { refuses } from "./refusing.js";
import { column, of } from "./serving.js";

it("refuses rows and types that another copy of apache-arrow made, and takes them as bytes", async () => {
  const AppendRows = async (call: AsyncIterable<Request>): Promise<object> => {
    const bytes: Uint8Array[] = [];
    for await (const { part } of call) {
      if (part.case !== "header") {
        bytes.push(part.value as Uint8Array);
      }
    }
    assert.deepEqual(column(tableFromIPC(Buffer.concat(bytes))), [1, 2, 3]);
    return { version: 3n, rowsAdded: 3n };
  };
  const copy = createRequire(import.meta.url)("apache-arrow") as typeof arrow;
  const made = new copy.Table({ n: copy.vectorFromArray([1, 2, 3], new copy.Int32()) });
  await withServices({ uploads: { AppendRows } }, async (client) => {
    const table = client.database("lake").table("docs");
    const words = /is of another copy of apache-arrow than this client's, .*npm ls apache-arrow.*tableFromIPC/;
    await refuses(() => table.append(made), "rows", words);
    await refuses(() => table.append(made.batches), "rows", words);
    const within = new ArrowTable({ n: made.getChildAt(0) as never });
    await refuses(() => table.append(within), "rows", words);
    await refuses(() => client.database("lake").createTable("t", made.schema), "rows", words);
    await refuses(() => serve([of(() => [], new copy.Int32())]), "output", words);
    assert.equal((await table.append(tableFromIPC(copy.tableToIPC(made)))).rows, 3);
  });
});
