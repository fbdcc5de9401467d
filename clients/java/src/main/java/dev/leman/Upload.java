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
 * A call that sends a stream and receives one response. It buffers no more than its transport
 * accepts. Used by one thread.
 */
final class Upload<Q, A> implements AutoCloseable {
  private final ClientCall<Q, A> call;
  private final Connections connections;
  private final Object lock = new Object();
  private A answer;
  private Status status;
  private Metadata trailers;

  /** Sends the messages of one attempt. */
  @FunctionalInterface
  interface Attempt<A> {
    /** Send everything and wait for the response; null if the source cannot be read again. */
    A send();
  }

  /** The services accept no more messages of this stream: {@link #finish} throws the cause. */
  static final class Ended extends RuntimeException {
    private static final long serialVersionUID = 1L;
  }

  Upload(Connections connections, MethodDescriptor<Q, A> method) {
    this.connections = connections;
    connections.token(null); // the search for endpoints sends the token
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
   * Make attempts at an upload until one succeeds, while the services are unavailable or at their
   * limit.
   *
   * @param none the error if even the first attempt has nothing to send
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

  /** Send a message when there is room for it; throws {@link Ended} if the call has ended. */
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

  /** End the stream of messages. */
  void end() {
    call.halfClose();
  }

  /** Wait for the response. */
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

  /** End the call; an incomplete upload changes nothing. */
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
