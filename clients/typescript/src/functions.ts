import type { MessageInitShape } from "@bufbuild/protobuf";
import { Field, Schema, type DataType } from "apache-arrow";

import {
  check,
  checkOptions,
  choice,
  either,
  flag,
  integer,
  list,
  names,
  object,
  record,
  text,
  whole,
  duration,
  type Kind,
  type Kinds,
} from "./arguments.js";
import { encodeSchema } from "./arrow.js";
import {
  ErrorRule_Action,
  UdfDefinition_Kind,
  type ErrorPolicySchema,
  type UdfDefinitionSchema,
} from "./gen/leman/v1/udf_pb.js";
import { given, toDuration, toInt64 } from "./values.js";

/** What happens to rows for which a function raises an exception that the rule is for. */
export interface ErrorRule {
  /** `fail` ends the job, `skip` leaves the row NULL and records it, `retry` calls again after a pause. */
  action: "fail" | "skip" | "retry";
  /** Class names of exceptions; undefined: all. */
  exceptions?: readonly string[] | undefined;
  /** A regular expression searched in the message. */
  message?: string | undefined;
  /** Of `retry`: calls at the most, the first included. */
  maxAttempts?: number | undefined;
  /** Of `retry`: milliseconds before the second call, doubled with each further one. */
  initialBackoff?: number | undefined;
  maxBackoff?: number | undefined;
}

/** What happens to rows on which a function fails: the first rule that matches holds; without one the job fails. */
export interface ErrorPolicy {
  rules: readonly ErrorRule[];
  /** The job fails when more rows than this failed. */
  maxErrors?: number | undefined;
  /** The job fails when more than this fraction of the rows failed. */
  maxErrorFraction?: number | undefined;
  /** Whether failed rows are stored with exception, message and traceback. */
  storeErrors?: boolean | undefined;
}

/** A function to be registered. */
export interface FunctionDefinition {
  name: string;
  /** Another one whenever what it computes is another. */
  version: string;
  /** Where the code is: installed on the workers, `package.module:name`; or a SQL expression over the inputs. */
  code: { entrypoint: string } | { sql: string };
  /** How an entrypoint is called; undefined: `scalar`, once a row. */
  kind?: "scalar" | "array" | "record_batch" | undefined;
  /** Columns that it reads, in the order of its parameters. */
  inputs: readonly string[];
  /** What it gives: an Arrow type, or its name as in `JsonArrowDataType.type`, such as `int64`. */
  output: DataType | string;
  errorPolicy?: ErrorPolicy | undefined;
  /** Rows given to one call of a batch kind. */
  batchSize?: number | undefined;
  /** Milliseconds that a call may take. */
  callTimeout?: number | undefined;
  /** Whether the code is a class that is built once a worker process. */
  stateful?: boolean | undefined;
  /** What one worker takes. */
  resources?: { numCpus?: number; numGpus?: number; memoryBytes?: number } | undefined;
  /** Rows between checkpoints. */
  checkpoint?: { size?: number; min?: number; max?: number } | undefined;
}

/** A function that servers of yours compute, over Arrow Flight: `leman/functions` makes such a server. */
export interface RemoteFunctionDefinition extends Pick<
  FunctionDefinition,
  "name" | "errorPolicy" | "batchSize" | "callTimeout" | "resources" | "checkpoint"
> {
  /** Of its servers: `grpc://host:port`, or `grpc+tls://host:port`. All that answer have to serve the same. */
  addresses: readonly string[];
  /** What the servers call it; undefined: `name`. */
  function?: string | undefined;
  /** What the servers are to say; undefined: whatever they say. */
  version?: string | undefined;
  /** Columns that it reads, in the order of its parameters; undefined: those that are called like these. */
  inputs?: readonly string[] | undefined;
}

const fraction: Kind = { told: "a number", admits: Number.isFinite };

const RULE: Kinds<ErrorRule> = {
  action: choice("fail", "skip", "retry"),
  exceptions: names,
  message: text,
  maxAttempts: integer,
  initialBackoff: duration,
  maxBackoff: duration,
};

/** What an error policy is. */
export const ERROR_POLICY = object<ErrorPolicy>(
  {
    rules: list(object(RULE, "action")),
    maxErrors: whole,
    maxErrorFraction: fraction,
    storeErrors: flag,
  },
  "rules",
);

/** What says how many rows are between checkpoints. */
export const CHECKPOINT = { size: whole, min: whole, max: whole };

const EITHER = {
  name: text,
  version: text,
  inputs: names,
  errorPolicy: ERROR_POLICY,
  batchSize: whole,
  callTimeout: duration,
  resources: object({ numCpus: fraction, numGpus: fraction, memoryBytes: whole }),
  checkpoint: object(CHECKPOINT),
};

const FUNCTION: Kinds<FunctionDefinition> = {
  ...EITHER,
  code: object({ entrypoint: text, sql: text }),
  kind: choice("scalar", "array", "record_batch"),
  output: either(text, record),
  stateful: flag,
};

const REMOTE: Kinds<RemoteFunctionDefinition> = { ...EITHER, addresses: names, function: text };

/** Make a definition of the protos, which lacks what the servers are to say. */
export function remoteDefinitionOf(wanted: RemoteFunctionDefinition): MessageInitShape<typeof UdfDefinitionSchema> {
  check("name", wanted.name, text);
  check("addresses", wanted.addresses, names);
  checkOptions(wanted, REMOTE);
  return {
    name: wanted.name,
    version: wanted.version ?? "",
    kind: UdfDefinition_Kind.REMOTE,
    inputColumns: [...(wanted.inputs ?? [])],
    code: {
      case: "remoteFunction",
      value: { addresses: [...wanted.addresses], function: wanted.function ?? "" },
    },
    ...optionsOf(wanted),
  };
}

/** Make a definition of the protos. */
export function definitionOf(wanted: FunctionDefinition): MessageInitShape<typeof UdfDefinitionSchema> {
  check("name", wanted.name, text);
  check("code", wanted.code, record);
  check("inputs", wanted.inputs, names);
  check("output", wanted.output, FUNCTION.output);
  checkOptions(wanted, FUNCTION);
  const sql = "sql" in wanted.code;
  const kind = sql ? "SQL" : (wanted.kind ?? "scalar").toUpperCase();
  return {
    name: wanted.name,
    version: wanted.version,
    kind: UdfDefinition_Kind[kind as keyof typeof UdfDefinition_Kind],
    inputColumns: [...wanted.inputs],
    ...outputOf(wanted.output),
    code:
      "sql" in wanted.code
        ? { case: "sqlExpression", value: wanted.code.sql }
        : { case: "entrypoint", value: wanted.code.entrypoint },
    stateful: wanted.stateful ?? false,
    ...optionsOf(wanted),
  };
}

/** How a function is run, not what it computes. */
function optionsOf(
  wanted: Pick<RemoteFunctionDefinition, "errorPolicy" | "batchSize" | "callTimeout" | "resources" | "checkpoint">,
): object {
  return {
    ...(wanted.errorPolicy && { errorPolicy: errorPolicyOf(wanted.errorPolicy) }),
    ...(wanted.batchSize !== undefined && { batchSize: toInt64("batchSize", wanted.batchSize) }),
    ...(wanted.callTimeout !== undefined && { callTimeout: toDuration(wanted.callTimeout) }),
    ...(wanted.resources && { resources: resourcesOf(wanted.resources) }),
    ...(wanted.checkpoint && { checkpoint: checkpointOf(wanted.checkpoint) }),
  };
}

/** Make an error policy of the protos. */
export function errorPolicyOf(policy: ErrorPolicy): MessageInitShape<typeof ErrorPolicySchema> {
  const { maxErrors, maxErrorFraction } = policy;
  return {
    rules: policy.rules.map((rule) => ({
      action: ErrorRule_Action[rule.action.toUpperCase() as "FAIL" | "SKIP" | "RETRY"],
      exceptionTypes: [...(rule.exceptions ?? [])],
      messagePattern: rule.message ?? "",
      ...given({ maxAttempts: rule.maxAttempts }),
      ...(rule.initialBackoff !== undefined && { initialBackoff: toDuration(rule.initialBackoff) }),
      ...(rule.maxBackoff !== undefined && { maxBackoff: toDuration(rule.maxBackoff) }),
    })),
    storeErrors: policy.storeErrors ?? false,
    ...(maxErrors !== undefined && { maxErrors: toInt64("maxErrors", maxErrors) }),
    ...given({ maxErrorFraction }),
  };
}

/** Make checkpoint bounds of the protos. */
export function checkpointOf(bounds: {
  size?: number | undefined;
  min?: number | undefined;
  max?: number | undefined;
}): {
  checkpointSize?: bigint;
  minCheckpointSize?: bigint;
  maxCheckpointSize?: bigint;
} {
  const { size, min, max } = bounds;
  return {
    ...(size !== undefined && { checkpointSize: toInt64("checkpoint.size", size) }),
    ...(min !== undefined && { minCheckpointSize: toInt64("checkpoint.min", min) }),
    ...(max !== undefined && { maxCheckpointSize: toInt64("checkpoint.max", max) }),
  };
}

function resourcesOf(wanted: { numCpus?: number; numGpus?: number; memoryBytes?: number }): object {
  const { numCpus, numGpus, memoryBytes } = wanted;
  const memory = memoryBytes === undefined ? undefined : toInt64("resources.memoryBytes", memoryBytes);
  return given({ numCpus, numGpus, memoryBytes: memory });
}

function outputOf(output: DataType | string): object {
  return typeof output === "string"
    ? { jsonOutputSchema: { fields: [{ name: "value", type: { type: output } }] } }
    : { outputSchema: encodeSchema(new Schema([new Field("value", output, true)])) };
}
