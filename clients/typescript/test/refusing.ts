import assert from "node:assert/strict";

import { LemanError } from "leman";

/** Check that a call is refused, at once or later, with an error that names the argument. */
export async function refuses(
  call: () => unknown,
  name: string | RegExp,
  message: { test: (message: string) => boolean } = new RegExp(`^${String(name)} is `),
  at = String(call),
): Promise<void> {
  const told = (error: unknown): boolean => {
    assert.ok(error instanceof LemanError, `${at}: ${String(error)}`);
    assert.deepEqual([error.code, error.reason, error.fields.length], ["INVALID_ARGUMENT", "BAD_REQUEST", 1], at);
    const field = error.fields[0]?.field ?? "";
    assert.ok(
      typeof name === "string" ? field === name : name.test(field),
      `${at} names ${field}, not ${String(name)}`,
    );
    assert.ok(message.test(error.message), `${at}: ${error.message}`);
    return true;
  };
  await assert.rejects(async () => await call(), told, `${String(name)} was taken: ${at}`);
}
