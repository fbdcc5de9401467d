package dev.leman;

import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/**
 * A call that responds with a stream, read one message at a time; it buffers at most two messages.
 * Used by one thread.
 */
final class Answers<Q, A> implements AutoCloseable {
  private static final int HELD = 2;

  private final ClientCall<Q, A> call;
  private final Connections connections;
  private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
  private boolean ended;

  /** The end of the call. */
  private record End(Status status, Metadata trailers) {}

  Answers(ClientCall<Q, A> call, Q request, Connections connections) {
    this.call = call;
    this.connections = connections;
    call.start(
        new ClientCall.Listener<A>() {
          @Override
          public void onMessage(A answer) {
            arrived.add(answer);
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            arrived.add(new End(status, trailers));
          }
        },
        new Metadata());
    call.request(HELD);
    call.sendMessage(request);
    call.halfClose();
  }

  /**
   * Wait for the next message; null after the last one.
   *
   * @throws LemanException if the call failed, or the thread was interrupted
   */
  @SuppressWarnings("unchecked") // anything but an End is a message
  A next() {
    if (ended) {
      return null;
    }
    Object found;
    try {
      found = arrived.take();
    } catch (InterruptedException interrupted) {
      close();
      throw Futures.interrupted(interrupted);
    }
    if (!(found instanceof End end)) {
      call.request(1);
      return (A) found;
    }
    ended = true;
    if (!end.status().isOk()) {
      throw connections.explain(new StatusRuntimeException(end.status(), end.trailers()));
    }
    return null;
  }

  /** The token that the call carried. */
  String token() {
    return call instanceof RepeatingCall<Q, A> own ? own.token() : "";
  }

  /** End the call, even before its last message. */
  @Override
  public void close() {
    ended = true;
    call.cancel("the caller wants no more answers", null);
  }
}
