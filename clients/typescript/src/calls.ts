import { randomUUID } from "node:crypto";
import { once, setMaxListeners } from "node:events";

import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodClientStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { Metadata, type ClientWritableStream } from "@grpc/grpc-js";

import { SEARCH, type Ask, type Endpoints } from "./endpoints.js";
import { LemanError } from "./errors.js";
import { InfoService } from "./gen/leman/v1/info_pb.js";
import { SourceFailed, sourceOf, type AnyIterable } from "./iterables.js";
import { defaultTimeout, methodName, policyOf, type RetryPolicy } from "./policy.js";
import { Retrying } from "./retrying.js";
import { Scope, type CallOptions } from "./scope.js";
import { sendable } from "./sendable.js";
import { withinScope, type Tokens } from "./tokens.js";
import { ending, hasRequestId, settling, timeLeft, told, wire } from "./wire.js";

/** The metadata, token and request id that a call sends with its message. */
interface Carried {
  readonly metadata: Metadata;
  readonly token: string | undefined;
  readonly requestId: string;
}

/** Makes calls with tokens, deadlines and retries. Throws only LemanErrors, and errors of the caller's iterables. */
export class Calls {
  readonly #endpoints: Endpoints;
  readonly #tokens: Tokens;
  readonly #patience: number;
  readonly #closing = new AbortController();

  constructor(endpoints: Endpoints, tokens: Tokens, patience: number) {
    this.#endpoints = endpoints;
    this.#tokens = tokens;
    this.#patience = patience;
    setMaxListeners(0, this.#closing.signal);
  }

  /** End all calls and close the connections. */
  close(): void {
    this.#closing.abort();
    this.#endpoints.close();
  }

  /** Make the scope of a call, which ends by its options or when the client is closed. */
  scope(options: CallOptions | undefined, timeout?: number): Scope {
    return new Scope(options, this.#closing.signal, timeout);
  }

  /** Make the object that decides about retries. `patience`: milliseconds, instead of the client's. */
  retrying(policy: RetryPolicy | undefined, patience = this.#patience): Retrying {
    return new Retrying(policy, this.#tokens, patience, () => {
      this.#endpoints.next();
    });
  }

  /** Make a call with a single response. It is retried as its policy allows, or because it has a request id. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions & { patience?: number },
  ): Promise<MessageShape<O>> {
    const scope = this.scope(options, defaultTimeout(method));
    const message = sendable(method.input, request);
    const retrying = this.retrying(policyOf(method, hasRequestId(message)), options?.patience);
    return this.#repeated(method, retrying, scope, (carried) => this.#unaryOnce(method, message, carried, scope));
  }

  /** Make a call that responds with a stream. It is retried only before the first message. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
    scope: Scope,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const message = sendable(method.input, request);
    const retrying = this.retrying(policyOf(method, false));
    for (;;) {
      const carried = await this.#ready(method, retrying, scope);
      let begun = false;
      try {
        for await (const answer of this.#streamOnce(method, message, carried, scope)) {
          begun = true;
          yield answer;
        }
        return;
      } catch (error) {
        if (!(error instanceof LemanError) || begun || !(await retrying.again(error, carried.token, scope))) {
          throw ending(error, scope);
        }
      }
    }
  }

  /**
   * Make a call that responds with a stream, and resume it when it is interrupted. `request` makes the request for the
   * remaining messages. `take` receives each message first, and returns true for the last one. A stream without a
   * message for `silence` milliseconds counts as interrupted.
   */
  async *resumedStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    request: () => MessageInitShape<I>,
    take: (answer: MessageShape<O>) => boolean,
    scope: Scope,
    silence?: number,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const retrying = this.retrying(policyOf(method, false));
    for (;;) {
      const carried = await this.#ready(method, retrying, scope);
      const message = sendable(method.input, request());
      let failed: unknown = new LemanError({ code: "UNAVAILABLE", message: "the stream ended early" });
      try {
        for await (const answer of this.#streamOnce(method, message, carried, scope, silence)) {
          retrying.reset();
          const last = take(answer);
          yield answer;
          if (last) {
            return;
          }
        }
      } catch (error) {
        failed = error;
      }
      if (!(failed instanceof LemanError) || !(await retrying.again(failed, carried.token, scope))) {
        throw ending(failed, scope);
      }
    }
  }

  /** Make a call that sends a stream. If it has a policy, `open` must return the same messages for each attempt. */
  async clientStream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    open: () => AnyIterable<MessageInitShape<I>>,
    options: CallOptions | undefined,
    retrying: Retrying,
    timeout = defaultTimeout(method),
  ): Promise<MessageShape<O>> {
    const scope = this.scope(options, timeout);
    return this.#repeated(method, retrying, scope, (carried) => this.#uploadOnce(method, open, carried, scope));
  }

  async #repeated<T>(
    method: DescMethod,
    retrying: Retrying,
    scope: Scope,
    attempt: (carried: Carried) => Promise<T>,
  ): Promise<T> {
    for (;;) {
      const carried = await this.#ready(method, retrying, scope);
      try {
        return await attempt(carried);
      } catch (error) {
        if (error instanceof SourceFailed) {
          throw error.cause;
        }
        if (!(error instanceof LemanError) || !(await retrying.again(error, carried.token, scope))) {
          throw ending(error, scope);
        }
      }
    }
  }

  /** Wait until an endpoint answers, and return the metadata, token and request id of the call. */
  async #ready(method: DescMethod, retrying: Retrying, scope: Scope): Promise<Carried> {
    const token = await withinScope(this.#tokens.get(), scope, methodName(method));
    await retrying.settled(() => this.#endpoints.settle(this.#askWith(token)), methodName(method), scope);
    return carry(method, scope, token);
  }

  #askWith(token: string | undefined): Ask {
    return async (connection, signal) => {
      const method = InfoService.method.getInfo;
      const scope = this.scope({ signal, timeout: SEARCH });
      await this.#unaryOnce(method, create(method.input), carry(method, scope, token), scope, connection);
    };
  }

  async #unaryOnce<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    message: MessageShape<I>,
    carried: Carried,
    scope: Scope,
    connection = this.#endpoints.connection,
  ): Promise<MessageShape<O>> {
    let release = (): void => undefined;
    try {
      return await new Promise((resolve, reject) => {
        const settle = settling(resolve, reject);
        const left = timeLeft(scope);
        const call = connection.makeUnaryRequest(...wire(method), message, carried.metadata, left, settle);
        release = scope.onAbort(() => {
          call.cancel();
        });
      });
    } catch (error) {
      throw told(error, method, carried.requestId);
    } finally {
      release();
    }
  }

  async *#streamOnce<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    message: MessageShape<I>,
    carried: Carried,
    scope: Scope,
    silence?: number,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const call = this.#endpoints.connection.makeServerStreamRequest(
      ...wire(method),
      message,
      carried.metadata,
      timeLeft(scope),
    );
    call.on("error", () => undefined); // ignore errors after the stream was left
    const cancel = (): void => {
      call.cancel();
    };
    const release = scope.onAbort(cancel);
    const answers = call[Symbol.asyncIterator]();
    const quiet = { tooLong: false };
    try {
      for (;;) {
        const cut = (): void => {
          quiet.tooLong = true;
          cancel();
        };
        const timer = silence === undefined ? undefined : setTimeout(cut, silence);
        try {
          const { done, value } = (await answers.next()) as IteratorResult<MessageShape<O>, undefined>;
          if (done === true) {
            return;
          }
          clearTimeout(timer);
          yield value;
        } finally {
          clearTimeout(timer);
        }
      }
    } catch (error) {
      if (quiet.tooLong) {
        throw new LemanError({ code: "UNAVAILABLE", message: "the services said nothing for too long", cause: error });
      }
      throw told(error, method, carried.requestId);
    } finally {
      release();
      cancel();
    }
  }

  async #uploadOnce<I extends DescMessage, O extends DescMessage>(
    method: DescMethodClientStreaming<I, O>,
    open: () => AnyIterable<MessageInitShape<I>>,
    carried: Carried,
    scope: Scope,
  ): Promise<MessageShape<O>> {
    const ended = new AbortController(); // ends sending once there is a response
    let call!: ClientWritableStream<MessageShape<I>>;
    const answered = new Promise<MessageShape<O>>((resolve, reject) => {
      const settle = settling(resolve, reject);
      const { connection } = this.#endpoints;
      call = connection.makeClientStreamRequest(...wire(method), carried.metadata, timeLeft(scope), (error, answer) => {
        ended.abort();
        settle(error, answer);
      });
    });
    call.on("error", () => undefined);
    answered.catch(() => undefined); // awaited below, unless the source fails first
    const release = scope.onAbort(() => {
      call.cancel();
    });
    try {
      for await (const request of sourceOf(open)) {
        if (ended.signal.aborted) {
          break;
        }
        if (!call.write(sendable(method.input, request))) {
          await once(call, "drain", { signal: ended.signal }).catch(() => undefined);
        }
      }
      call.end();
      return await answered;
    } catch (error) {
      throw told(error, method, carried.requestId);
    } finally {
      release();
      call.cancel();
    }
  }
}

/** Return the metadata, token and request id of a call. Throws if its scope has ended. */
function carry(method: DescMethod, scope: Scope, token: string | undefined): Carried {
  const requestId = randomUUID().replaceAll("-", "");
  const ended = scope.ended();
  if (ended !== undefined) {
    const { code, reason, message, cause } = ended;
    throw new LemanError({ code, reason, message, cause, method: methodName(method) });
  }
  const metadata = new Metadata();
  metadata.set("x-request-id", requestId);
  if (token !== undefined) {
    metadata.set("authorization", `Bearer ${token}`);
  }
  return { metadata, token, requestId };
}
