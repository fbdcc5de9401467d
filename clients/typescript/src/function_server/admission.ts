import { createHash, timingSafeEqual } from "node:crypto";

import { ServerInterceptingCall, status, type Metadata, type ServerInterceptor } from "@grpc/grpc-js";

/** Shows whether a token that a caller shows may call. */
export type TokenCheck = (token: string) => boolean | Promise<boolean>;

/**
 * How far a call is read: to the message after the one that is being worked on. Node's streams would hold sixteen, of
 * whatever size; further ones wait at the client.
 */
export class Pace {
  #free = true;
  #waiting: (() => void) | undefined;

  /** Hand on the next message: at once where it is there. */
  next(): void {
    const hand = this.#waiting;
    this.#waiting = undefined;
    this.#free = hand === undefined;
    hand?.();
  }

  /** Hand on a message when its turn has come. */
  arrived(hand: () => void): void {
    if (this.#free) {
      this.#free = false;
      hand();
    } else {
      this.#waiting = hand;
    }
  }
}

/** Decides who may call, and how far each call is read. */
export class Admission {
  readonly #check: TokenCheck | undefined;
  readonly #paces = new WeakMap<Metadata, Pace>();

  constructor(token: string | TokenCheck | undefined) {
    this.#check = typeof token === "string" ? isToken(token) : token;
  }

  /** What gRPC asks about each call. */
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

  /** The pace of a call that was let in. */
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
