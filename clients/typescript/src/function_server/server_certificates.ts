import { createSecureContext, type SecureContextOptions } from "node:tls";

import { ServerCredentials } from "@grpc/grpc-js";

import { pem } from "../certificates.js";
import { invalid } from "../errors.js";

/** Certificates in PEM: paths of files, which may be renewed in place, or their content. */
export interface ServerTlsOptions {
  /** The certificate of the server. */
  cert: string | Uint8Array;
  key: string | Uint8Array;
  /** The certificates that verify callers' certificates; undefined: callers need none. */
  clientCa?: string | Uint8Array | undefined;
}

const LOOK_EVERY = 1000;

/** The certificates of a server. New connections use the current contents of the files. */
export class ServerCertificates {
  readonly credentials: ServerCredentials;
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(tls: ServerTlsOptions | undefined) {
    if (tls === undefined) {
      this.credentials = ServerCredentials.createInsecure();
      return;
    }
    try {
      const renewed = new RenewedCredentials(tls);
      this.credentials = renewed;
      this.#timer = setInterval(() => {
        renewed.look();
      }, LOOK_EVERY);
      this.#timer.unref();
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw invalid("tls", `tls.cert, tls.key or tls.clientCa cannot be used: ${why}`);
    }
  }

  /** Stop reading the files. */
  close(): void {
    clearInterval(this.#timer);
  }
}

class RenewedCredentials extends ServerCredentials {
  readonly #tls: ServerTlsOptions;
  #content: Content;

  constructor(tls: ServerTlsOptions) {
    const content = read(tls);
    const asks = tls.clientCa !== undefined;
    super({ requestCert: asks, rejectUnauthorized: asks }, content);
    this.#tls = tls;
    this.#content = content;
  }

  look(): void {
    try {
      const found = read(this.#tls);
      if (!same(found, this.#content)) {
        this.#content = found;
        this.updateSecureContextOptions(found);
      }
    } catch {
      // Some files are renewed and others are not yet: keep the previous contents until they match.
    }
  }

  _equals(other: ServerCredentials): boolean {
    return this === other;
  }
}

interface Content extends SecureContextOptions {
  cert: Buffer;
  key: Buffer;
  ca: Buffer | undefined;
}

function read({ cert, key, clientCa }: ServerTlsOptions): Content {
  const content = { cert: pem(cert) as Buffer, key: pem(key) as Buffer, ca: pem(clientCa) ?? undefined };
  createSecureContext(content); // throws if they do not match
  return content;
}

function same(a: Content, b: Content): boolean {
  return a.cert.equals(b.cert) && a.key.equals(b.key) && Buffer.from(a.ca ?? "").equals(b.ca ?? Buffer.from(""));
}
