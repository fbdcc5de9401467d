/** The generated messages, enums and services of `leman.v1`. */
export * from "./gen/leman/v1/annotations_pb.js";
export * from "./gen/leman/v1/catalog_pb.js";
export * from "./gen/leman/v1/commit_pb.js";
export * from "./gen/leman/v1/databases_pb.js";
export * from "./gen/leman/v1/errors_pb.js";
export * from "./gen/leman/v1/info_pb.js";
export * from "./gen/leman/v1/jobs_pb.js";
export * from "./gen/leman/v1/planner_pb.js";
export * from "./gen/leman/v1/tables_pb.js";
export * from "./gen/leman/v1/types_pb.js";
export * from "./gen/leman/v1/udf_pb.js";
