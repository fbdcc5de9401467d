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

/** What happens to a row if the function raises an exception that matches this rule. */
export interface ErrorRule {
  /**
   * `fail` ends the job, `skip` leaves the row NULL and records the error, `retry` calls the function again after a
   * pause.
   */
  action: "fail" | "skip" | "retry";
  /** Class names of exceptions; undefined: all. */
  exceptions?: readonly string[] | undefined;
  /** A regular expression that is searched for in the message. */
  message?: string | undefined;
  /** For `retry`: the largest number of calls, including the first. */
  maxAttempts?: number | undefined;
  /** For `retry`: milliseconds before the second call; doubled before each further call. */
  initialBackoff?: number | undefined;
  maxBackoff?: number | undefined;
}

/** What happens to rows on which a function fails: the first matching rule applies; if none matches, the job fails. */
export interface ErrorPolicy {
  rules: readonly ErrorRule[];
  /** The job fails when more rows than this have failed. */
  maxErrors?: number | undefined;
  /** The job fails when more than this fraction of the rows has failed. */
  maxErrorFraction?: number | undefined;
  /** Whether to store the exception, message and traceback of failed rows. */
  storeErrors?: boolean | undefined;
}

/** The definition of a function to register. */
export interface FunctionDefinition {
  name: string;
  /** The version. Change it whenever the function computes other values. */
  version: string;
  /**
   * The code: a function that is installed on the workers, `package.module:name`, or a SQL expression over the inputs.
   */
  code: { entrypoint: string } | { sql: string };
  /** How an entrypoint is called; undefined: `scalar`, for each row. */
  kind?: "scalar" | "array" | "record_batch" | undefined;
  /** The columns that it reads, in the order of its parameters. */
  inputs: readonly string[];
  /** The type of its values: an Arrow type, or its name as in `JsonArrowDataType.type`, such as `int64`. */
  output: DataType | string;
  errorPolicy?: ErrorPolicy | undefined;
  /** For batch kinds: the rows of one call. */
  batchSize?: number | undefined;
  /** The timeout of a call, in milliseconds. */
  callTimeout?: number | undefined;
  /** Whether the code is a class, which each worker process instantiates once. */
  stateful?: boolean | undefined;
  /** The resources that one worker needs. */
  resources?: { numCpus?: number; numGpus?: number; memoryBytes?: number } | undefined;
  /** Rows between checkpoints. */
  checkpoint?: { size?: number; min?: number; max?: number } | undefined;
}

/**
 * The definition of a function that your own servers compute over Arrow Flight; `leman/functions` can make such a
 * server.
 */
export interface RemoteFunctionDefinition extends Pick<
  FunctionDefinition,
  "name" | "errorPolicy" | "batchSize" | "callTimeout" | "resources" | "checkpoint"
> {
  /**
   * The addresses of its servers: `grpc://host:port` or `grpc+tls://host:port`. All that answer must serve the same
   * version.
   */
  addresses: readonly string[];
  /** The name under which the servers serve it; undefined: `name`. */
  function?: string | undefined;
  /** The version that the servers must report; undefined: any. */
  version?: string | undefined;
  /**
   * The columns that it reads, in the order of its parameters; undefined: the columns with the names of the parameters.
   */
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

/** The kind of an error policy. */
export const ERROR_POLICY = object<ErrorPolicy>(
  {
    rules: list(object(RULE, "action")),
    maxErrors: whole,
    maxErrorFraction: fraction,
    storeErrors: flag,
  },
  "rules",
);

/** The kinds of the checkpoint options. */
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

/** Make a definition of the protos, without what the servers report. */
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

/** Convert the options that affect how a function runs, not what it computes. */
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
