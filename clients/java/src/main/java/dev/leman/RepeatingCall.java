package dev.leman;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * A call with one request. Until its first answer is handed on, it is made again where it may be:
 * after pauses while the services are away, once with another token where the first was refused.
 */
final class RepeatingCall<Q, A> extends ClientCall<Q, A> {
  private final Connections connections;
  private final MethodDescriptor<Q, A> method;
  private final CallOptions options;
  private final Patience waiting;
  private final Object lock = new Object();

  private Listener<A> listener;
  private Metadata headers;
  private Q request;
  private int asked;
  private int attempts;
  private ClientCall<Q, A> attempt;
  private Future<?> pause;
  private boolean ended;
  private volatile String token = "";

  RepeatingCall(Connections connections, MethodDescriptor<Q, A> method, CallOptions options) {
    this.connections = connections;
    this.method = method;
    this.options = options;
    this.waiting = connections.patience();
  }

  /** The token that it carried last; empty: none. */
  String token() {
    return token;
  }

  @Override
  public void start(Listener<A> answered, Metadata given) {
    listener = answered;
    headers = given;
  }

  @Override
  public void sendMessage(Q message) {
    request = message;
  }

  @Override
  public void halfClose() {
    begin();
  }

  @Override
  public void request(int messages) {
    synchronized (lock) {
      asked += messages;
      if (attempt != null) {
        attempt.request(messages);
      }
    }
  }

  @Override
  public void cancel(String message, Throwable cause) {
    synchronized (lock) {
      if (ended) {
        return;
      }
      if (attempt != null) {
        attempt.cancel(message, cause);
        return;
      }
      ended = true;
      if (pause != null) {
        pause.cancel(false);
      }
    }
    Status status = Status.CANCELLED.withDescription(message).withCause(cause);
    options.getExecutor().execute(() -> listener.onClose(status, new Metadata()));
  }

  /** Make an attempt, once it is known which endpoint answers. */
  private void begin() {
    if (connections.isSettled()) {
      attempt();
      return;
    }
    try {
      connections.pool.execute(this::settle);
    } catch (RejectedExecutionException closed) {
      attempt(); // the channel tells
    }
  }

  private void settle() {
    Duration left = Endpoints.atLeast(waiting.left());
    if (options.getDeadline() != null) {
      long nanos = options.getDeadline().timeRemaining(TimeUnit.NANOSECONDS);
      left = left.toNanos() < nanos ? left : Duration.ofNanos(Math.max(0, nanos));
    }
    Status none = Status.UNAVAILABLE.withDescription("none of the endpoints answers");
    try {
      if (connections.settle(left)) {
        attempt();
      } else if (!again(none, new Metadata())) {
        end(none, new Metadata());
      }
    } catch (LemanException interrupted) {
      end(Status.CANCELLED.withCause(interrupted), new Metadata());
    }
  }

  private void attempt() {
    Metadata carried = new Metadata();
    carried.merge(headers);
    try {
      token = connections.carry(carried);
    } catch (LemanException none) {
      end(Status.UNAUTHENTICATED.withCause(none), new Metadata());
      return;
    }
    synchronized (lock) {
      if (ended) {
        return;
      }
      attempts++;
      attempt = connections.bare(method, connections.timed(method, options));
      attempt.start(new Attempt(), carried);
      if (asked > 0) {
        attempt.request(asked);
      }
      attempt.sendMessage(request);
      attempt.halfClose();
    }
  }

  private void end(Status status, Metadata trailers) {
    synchronized (lock) {
      if (ended) {
        return;
      }
      ended = true;
    }
    Executor executor = options.getExecutor();
    executor.execute(() -> listener.onClose(status, trailers));
  }

  /** After a failure: true where another attempt follows. */
  private boolean again(Status status, Metadata trailers) {
    LemanException failure = LemanException.from(new StatusRuntimeException(status, trailers));
    if (failure.code() == Status.Code.UNAUTHENTICATED && waiting.mayRenew()) {
      return later(() -> renewed(status, trailers), Duration.ZERO);
    }
    if (!connections.repeatable(method, request, failure, attempts)) {
      return false;
    }
    Duration wanted = connections.pause(failure, waiting);
    if (wanted == null
        || (options.getDeadline() != null
            && options.getDeadline().timeRemaining(TimeUnit.NANOSECONDS) < wanted.toNanos())) {
      return false;
    }
    return later(this::begin, wanted);
  }

  private void renewed(Status status, Metadata trailers) {
    try {
      if (connections.renew(token)) {
        begin();
      } else {
        end(status, trailers);
      }
    } catch (LemanException none) {
      end(Status.UNAUTHENTICATED.withCause(none), new Metadata());
    }
  }

  private boolean later(Runnable next, Duration wait) {
    synchronized (lock) {
      attempt = null;
      try {
        pause =
            connections.timer.schedule(
                () -> connections.pool.execute(next), wait.toNanos(), TimeUnit.NANOSECONDS);
        return true;
      } catch (RejectedExecutionException closed) {
        return false;
      }
    }
  }

  /** What comes of one attempt. */
  private final class Attempt extends Listener<A> {
    private Metadata held;
    private A only;
    private boolean handedOn;

    @Override
    public void onHeaders(Metadata received) {
      held = received;
    }

    @Override
    public void onMessage(A answer) {
      if (method.getType().serverSendsOneMessage()) {
        only = answer;
        return;
      }
      handOn();
      listener.onMessage(answer);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      if (!status.isOk() && !handedOn && again(status, trailers)) {
        return;
      }
      synchronized (lock) {
        if (ended) {
          return;
        }
        ended = true;
      }
      if (status.isOk()) {
        handOn();
      }
      if (status.isOk() && only != null) {
        listener.onMessage(only);
      }
      listener.onClose(status, trailers);
    }

    @Override
    public void onReady() {
      listener.onReady();
    }

    private void handOn() {
      if (!handedOn) {
        handedOn = true;
        listener.onHeaders(held == null ? new Metadata() : held);
      }
    }
  }
}
