package dev.leman;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.function.Supplier;

/**
 * A call that is sent a stream and answers once. It is sent no more than its transport takes. Used
 * by one thread.
 */
final class Upload<Q, A> implements AutoCloseable {
  private final ClientCall<Q, A> call;
  private final Connections connections;
  private final Object lock = new Object();
  private A answer;
  private Status status;
  private Metadata trailers;

  /** What sends the messages of one attempt. */
  @FunctionalInterface
  interface Attempt<A> {
    /** Send all, and wait for the answer; null: it cannot be sent again. */
    A send();
  }

  /** The services want no more of this stream: {@link #finish} tells why. */
  static final class Ended extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  Upload(Connections connections, MethodDescriptor<Q, A> method) {
    this.connections = connections;
    connections.token(null); // which endpoints are asked with, no longer than they take to answer
    if (!connections.settle(Endpoints.atLeast(connections.patience().left()))) {
      throw new LemanException(Status.Code.UNAVAILABLE, "", "none of the endpoints answers", null);
    }
    this.call = connections.newCall(method, CallOptions.DEFAULT);
    call.start(
        new ClientCall.Listener<A>() {
          @Override
          public void onMessage(A message) {
            answer = message;
          }

          @Override
          public void onReady() {
            synchronized (lock) {
              lock.notifyAll();
            }
          }

          @Override
          public void onClose(Status ended, Metadata told) {
            synchronized (lock) {
              status = ended;
              trailers = told;
              lock.notifyAll();
            }
          }
        },
        new Metadata());
    call.request(2);
  }

  /**
   * Make attempts at an upload until one is through, as long as the services are away, or full.
   *
   * @param none what it fails with where not even the first attempt has something to send
   */
  static <A> A repeated(
      Connections connections,
      Tokenized tokens,
      Attempt<A> attempt,
      Supplier<LemanException> none) {
    Patience waiting = connections.patience();
    LemanException failure = null;
    while (true) {
      try {
        A found = attempt.send();
        if (found != null) {
          return found;
        }
        throw failure == null ? none.get() : failure;
      } catch (LemanException failed) {
        if (failed == failure) {
          throw failed;
        }
        failure = failed;
        connections.beforeNextUpload(failed, waiting, tokens.last);
      }
    }
  }

  /** The token that the last attempt carried. */
  static final class Tokenized {
    private String last = "";
  }

  /**
   * Send a message once there is room for it; fails with {@link Ended} where the call has ended.
   */
  void send(Q message) {
    synchronized (lock) {
      while (status == null && !call.isReady()) {
        await();
      }
      if (status != null) {
        throw new Ended();
      }
    }
    call.sendMessage(message);
  }

  /** Say that this was all. */
  void end() {
    call.halfClose();
  }

  /** Wait for the answer. */
  A finish(Tokenized tokens) {
    synchronized (lock) {
      while (status == null) {
        await();
      }
    }
    tokens.last = call instanceof CarryingCall<Q, A> own ? own.token() : "";
    if (status.isOk() && answer != null) {
      return answer;
    }
    Status failed =
        status.isOk()
            ? Status.INTERNAL.withDescription("the call ended without an answer")
            : status;
    throw connections.explain(new StatusRuntimeException(failed, trailers));
  }

  /** End the call; what was not sent whole changes nothing. */
  @Override
  public void close() {
    call.cancel("the caller has ended", null);
  }

  private void await() {
    try {
      lock.wait(Duration.ofMinutes(1).toMillis());
    } catch (InterruptedException interrupted) {
      close();
      throw Futures.interrupted(interrupted);
    }
  }
}
