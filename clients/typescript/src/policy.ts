import type { DescMethod } from "@bufbuild/protobuf";

import type { Code } from "./errors.js";
import { serviceConfig } from "./gen/service_config.js";

/** How a call is retried. Times are in milliseconds. */
export interface RetryPolicy {
  readonly maxAttempts: number;
  readonly initialBackoff: number;
  readonly maxBackoff: number;
  readonly backoffMultiplier: number;
  readonly codes: ReadonlySet<Code>;
  /** Whether to keep retrying while the services are overloaded, until the patience ends. */
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

/**
 * For mutations, which the services apply once under one request id. It is only after UNAVAILABLE that their outcome is
 * unknown.
 */
export const forMutations: RetryPolicy = {
  maxAttempts: 5,
  initialBackoff: 100,
  maxBackoff: 2000,
  backoffMultiplier: 2,
  codes: new Set<Code>(["UNAVAILABLE"]),
};

/** For mutations that send rows: the services accept a limited number of these at once, and say when to retry. */
export const forUploads: RetryPolicy = { ...forMutations, standsInLine: true };

/** Return how a call may be retried: by the published policy, or because it has a request id; undefined: not at all. */
export function policyOf(method: DescMethod, hasRequestId: boolean): RetryPolicy | undefined {
  return published.get(methodName(method)) ?? (hasRequestId ? forMutations : undefined);
}

/** Return the name of a method, as gRPC and the policy write it. */
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

/** Return the default timeout of a call with a single response. */
export function defaultTimeout(method: DescMethod): number | undefined {
  return deadlines[method.parent.typeName];
}

function parseSeconds(text: string): number {
  return Number.parseFloat(text) * 1000;
}
