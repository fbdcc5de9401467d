import { createHash, timingSafeEqual } from "node:crypto";

import { ServerInterceptingCall, status, type Metadata, type ServerInterceptor } from "@grpc/grpc-js";

/** Returns whether a caller with this token is accepted. */
export type TokenCheck = (token: string) => boolean | Promise<boolean>;

/**
 * Limits how far a call is read ahead: to the message after the one in progress. Node's streams would buffer sixteen
 * messages of any size; with the limit, further messages wait at the client.
 */
export class Pace {
  #free = true;
  #waiting: (() => void) | undefined;

  /** Deliver the next message, at once if it has arrived. */
  next(): void {
    const hand = this.#waiting;
    this.#waiting = undefined;
    this.#free = hand === undefined;
    hand?.();
  }

  /** Deliver a message when its turn has come. */
  arrived(hand: () => void): void {
    if (this.#free) {
      this.#free = false;
      hand();
    } else {
      this.#waiting = hand;
    }
  }
}

/** Decides which callers are accepted, and how far each call is read ahead. */
export class Admission {
  readonly #check: TokenCheck | undefined;
  readonly #paces = new WeakMap<Metadata, Pace>();

  constructor(token: string | TokenCheck | undefined) {
    this.#check = typeof token === "string" ? isToken(token) : token;
  }

  /** The interceptor that gRPC calls for each call. */
  get interceptor(): ServerInterceptor {
    return (_method, call) =>
      new ServerInterceptingCall(call, {
        start: (next) => {
          const pace = new Pace();
          next({
            onReceiveMetadata: (metadata, admit) => {
              this.#paces.set(metadata, pace);
              void this.#allowed(metadata).then((refused) => {
                if (refused === undefined) {
                  admit(metadata);
                } else {
                  call.sendStatus({ code: status.UNAUTHENTICATED, details: refused });
                }
              });
            },
            onReceiveMessage: (message, hand) => {
              pace.arrived(() => {
                hand(message);
              });
            },
          });
        },
      });
  }

  /** Return the read-ahead limit of an accepted call. */
  paceOf(metadata: Metadata): Pace {
    return this.#paces.get(metadata) ?? new Pace();
  }

  async #allowed(metadata: Metadata): Promise<string | undefined> {
    if (this.#check === undefined) {
      return undefined;
    }
    const [shown] = metadata.get("authorization");
    const token = /^bearer (.+)$/i.exec(shown?.toString() ?? "")?.[1];
    if (token === undefined) {
      return "this server takes calls with a token: authorization: Bearer …";
    }
    try {
      return (await this.#check(token)) ? undefined : "the token is not one that this server takes";
    } catch {
      return "the token cannot be checked now";
    }
  }
}

function isToken(wanted: string): TokenCheck {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  const expected = digest(wanted);
  return (token) => timingSafeEqual(digest(token), expected);
}
