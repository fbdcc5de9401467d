/**
 * Functions of this process for Leman's services: a server that computes columns, a batch at a time.
 *
 * @packageDocumentation
 */
export type { TokenCheck } from "./admission.js";
export { eachRow, versionOf, type Answer, type Inputs, type ServedFunction } from "./functions.js";
export { FunctionServer, serve, type ServeOptions, type ServerTlsOptions } from "./server.js";
