import { readFileSync } from "node:fs";

import { credentials, type ChannelCredentials } from "@grpc/grpc-js";

import { invalid, LemanError } from "./errors.js";

/** Certificates in PEM: paths of files, which may be renewed in place, or their content. */
export interface TlsOptions {
  /** The certificates that verify the services; undefined: those of the system. */
  ca?: string | Uint8Array | undefined;
  /** A client certificate, which identifies the caller if the services accept that. Needs `key`. */
  cert?: string | Uint8Array | undefined;
  key?: string | Uint8Array | undefined;
  /** The name that the services' certificate must have; undefined: the host of the address. */
  serverName?: string | undefined;
}

const LOOK_AGAIN_AFTER = 1000;

/** Credentials made from certificates, which follow changes of their files. */
export class Certificates {
  readonly #tls: TlsOptions;
  #content: Content;
  #credentials: ChannelCredentials;
  #lookedAt = Date.now();

  constructor(tls: TlsOptions) {
    if ((tls.cert === undefined) !== (tls.key === undefined)) {
      throw invalid("tls", "tls.cert and tls.key go together");
    }
    this.#tls = tls;
    try {
      this.#content = read(tls);
      this.#credentials = credentials.createSsl(...this.#content);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      const message = `tls.ca, tls.cert or tls.key cannot be used: ${why}`;
      const fields = [{ field: "tls", description: message }];
      throw new LemanError({ code: "INVALID_ARGUMENT", reason: "BAD_REQUEST", message, fields, cause });
    }
  }

  /** The credentials for new connections. They change when the files have changed. */
  get current(): ChannelCredentials {
    if (Date.now() - this.#lookedAt >= LOOK_AGAIN_AFTER) {
      this.#lookedAt = Date.now();
      this.#look();
    }
    return this.#credentials;
  }

  #look(): void {
    try {
      const found = read(this.#tls);
      if (!found.every((pem, at) => same(pem, this.#content[at] ?? null))) {
        this.#credentials = credentials.createSsl(...found);
        this.#content = found;
      }
    } catch {
      // Some files are renewed and others are not yet: keep the previous contents until they match.
    }
  }
}

/** In the order of gRPC's arguments: authorities, key, certificate. */
type Content = [Buffer | null, Buffer | null, Buffer | null];

function read({ ca, key, cert }: TlsOptions): Content {
  return [pem(ca), pem(key), pem(cert)];
}

function same(a: Buffer | null, b: Buffer | null): boolean {
  return a === null || b === null ? a === b : a.equals(b);
}

/** Read a certificate or key from a path, or return the given content. */
export function pem(given: string | Uint8Array | undefined): Buffer | null {
  if (given === undefined) {
    return null;
  }
  if (typeof given !== "string") {
    return Buffer.from(given);
  }
  return given.includes("-----BEGIN") ? Buffer.from(given) : readFileSync(given);
}
