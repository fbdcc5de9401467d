import type { DescMethod } from "@bufbuild/protobuf";

import type { Code } from "./errors.js";
import { serviceConfig } from "./gen/service_config.js";

/** How a call is sent again. Times are milliseconds. */
export interface RetryPolicy {
  readonly maxAttempts: number;
  readonly initialBackoff: number;
  readonly maxBackoff: number;
  readonly backoffMultiplier: number;
  readonly codes: ReadonlySet<Code>;
  /** Whether the call stands in line where the services have too much to do, as long as patience lasts. */
  readonly standsInLine?: boolean;
}

const published = new Map<string, RetryPolicy>();
for (const { name, retryPolicy } of serviceConfig.methodConfig) {
  const policy: RetryPolicy = {
    maxAttempts: retryPolicy.maxAttempts,
    initialBackoff: parseSeconds(retryPolicy.initialBackoff),
    maxBackoff: parseSeconds(retryPolicy.maxBackoff),
    backoffMultiplier: retryPolicy.backoffMultiplier,
    codes: new Set(retryPolicy.retryableStatusCodes),
  };
  for (const { service, method } of name) {
    published.set(`${service}/${method}`, policy);
  }
}

/** For mutations, which are done once under one request id: whether they were done is not known after UNAVAILABLE alone. */
export const forMutations: RetryPolicy = {
  maxAttempts: 5,
  initialBackoff: 100,
  maxBackoff: 2000,
  backoffMultiplier: 2,
  codes: new Set<Code>(["UNAVAILABLE"]),
};

/** For mutations whose rows are sent: the services take so many at once, and say when there may be room. */
export const forUploads: RetryPolicy = { ...forMutations, standsInLine: true };

/** Tell how a call may be sent again: by the published policy, or as it has a request id; undefined: it may not. */
export function policyOf(method: DescMethod, hasRequestId: boolean): RetryPolicy | undefined {
  return published.get(methodName(method)) ?? (hasRequestId ? forMutations : undefined);
}

/** Give the name by which gRPC and the policy know a method. */
export function methodName(method: DescMethod): string {
  return `${method.parent.typeName}/${method.name}`;
}

const MINUTE = 60_000;
const deadlines: Readonly<Record<string, number>> = {
  "leman.v1.InfoService": MINUTE / 6,
  "leman.v1.CatalogService": MINUTE,
  "leman.v1.DatabaseService": MINUTE,
  "leman.v1.PlannerService": 5 * MINUTE,
  "leman.v1.JobService": 5 * MINUTE,
  "leman.v1.CommitService": 10 * MINUTE,
  "leman.v1.TableService": 10 * MINUTE,
};

/** Tell how long a call that answers once may take where its caller does not say. */
export function defaultTimeout(method: DescMethod): number | undefined {
  return deadlines[method.parent.typeName];
}

function parseSeconds(text: string): number {
  return Number.parseFloat(text) * 1000;
}
