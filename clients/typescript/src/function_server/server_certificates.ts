import { createSecureContext, type SecureContextOptions } from "node:tls";

import { ServerCredentials } from "@grpc/grpc-js";

import { pem } from "../certificates.js";
import { invalid } from "../errors.js";

/** Certificates: PEM, as paths of files, which may be renewed in place, or as their content. */
export interface ServerTlsOptions {
  /** What the server shows. */
  cert: string | Uint8Array;
  key: string | Uint8Array;
  /** Those that callers' certificates are checked with; undefined: callers need none. */
  clientCa?: string | Uint8Array | undefined;
}

const LOOK_EVERY = 1000;

/** What a server shows and believes: new connections find what the files have then. */
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

  /** Look at the files no more. */
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
      // one file is renewed, and another is not yet: what was there before holds until they fit
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
  createSecureContext(content); // refuses what does not fit
  return content;
}

function same(a: Content, b: Content): boolean {
  return a.cert.equals(b.cert) && a.key.equals(b.key) && Buffer.from(a.ca ?? "").equals(b.ca ?? Buffer.from(""));
}
