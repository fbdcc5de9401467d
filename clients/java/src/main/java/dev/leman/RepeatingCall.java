package dev.leman;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A call with one request. Until its first response is delivered, it is retried where that is
 * allowed: with pauses while the services are unavailable, and once with another token if the first
 * one was refused.
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
  private Connections.Pause pause;
  private Status cancelled;
  private volatile String token = "";

  /**
   * Set without the lock, because a holder of the lock may be within gRPC while a close ends the
   * call.
   */
  private final AtomicBoolean ended = new AtomicBoolean();

  private final Runnable atClose = () -> end(Status.CANCELLED, new Metadata());

  RepeatingCall(Connections connections, MethodDescriptor<Q, A> method, CallOptions options) {
    this.connections = connections;
    this.method = method;
    this.options = options;
    this.waiting = connections.patience();
  }

  /** The token that the last attempt carried, or an empty string. */
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
    connections.ends.add(atClose);
    if (ended.get()) {
      connections.ends.takeBack(atClose);
      return;
    }
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
      if (cancelled == null) {
        cancelled = Status.CANCELLED.withDescription(message).withCause(cause);
      }
      if (attempt != null) {
        attempt.cancel(message, cause); // no effect on an attempt that has just failed: see later
        return;
      }
      if (pause != null) {
        pause.cancel();
      }
    }
    end(cancelled, new Metadata());
  }

  /** Make an attempt once an endpoint is known to answer. */
  private void begin() {
    CallOptions timed = connections.timed(method, options);
    if (connections.isSettled() && connections.isTokenAtHand(headers)) {
      attempt(timed);
      return;
    }
    try {
      connections.pool.execute(() -> settle(timed));
    } catch (RejectedExecutionException closed) {
      attempt(timed); // which reports that it is closed
    }
  }

  /** Wait for the endpoint and token of an attempt, and make it. */
  private void settle(CallOptions timed) {
    Status none = Status.UNAVAILABLE.withDescription("none of the endpoints answers");
    try {
      if (!connections.isTokenAtHand(headers)) {
        connections.token(timed.getDeadline());
      }
      if (connections.settle(left())) {
        attempt(timed);
      } else if (!again(none, new Metadata())) {
        end(none, new Metadata());
      }
    } catch (LemanException failed) {
      end(LemanException.status(failed), new Metadata());
    }
  }

  /** How long to search for an endpoint that answers. */
  private Duration left() {
    Duration left = Endpoints.atLeast(waiting.left());
    if (options.getDeadline() == null) {
      return left;
    }
    long nanos = options.getDeadline().timeRemaining(TimeUnit.NANOSECONDS);
    return left.toNanos() < nanos ? left : Duration.ofNanos(Math.max(0, nanos));
  }

  private void attempt(CallOptions timed) {
    Metadata carried = new Metadata();
    carried.merge(headers);
    try {
      token = connections.carry(carried, timed.getDeadline());
    } catch (LemanException none) {
      end(LemanException.status(none), new Metadata());
      return;
    }
    synchronized (lock) {
      if (ended.get()) {
        return;
      }
      attempts++;
      try {
        ClientCall<Q, A> made = connections.bare(method, timed);
        attempt = made;
        made.start(new Attempt(), carried);
        if (asked > 0) {
          made.request(asked);
        }
        made.sendMessage(request);
        made.halfClose();
      } catch (RuntimeException failed) {
        attempt = null; // a channel that shuts down may have null in place of a call
        end(Status.fromThrowable(failed), new Metadata());
      }
    }
  }

  private void end(Status status, Metadata trailers) {
    if (ends()) {
      Executor executor = options.getExecutor();
      executor.execute(() -> listener.onClose(connections.told(status), trailers));
    }
  }

  /** Return true the first time; the caller must then notify the listener. */
  private boolean ends() {
    connections.ends.takeBack(atClose);
    return ended.compareAndSet(false, true);
  }

  /** Handle a failure; returns true if another attempt follows. */
  private boolean again(Status status, Metadata trailers) {
    LemanException failure = LemanException.from(new StatusRuntimeException(status, trailers));
    if (failure.code() == Status.Code.UNAUTHENTICATED && waiting.mayRenew()) {
      later(() -> renewed(status, trailers), Duration.ZERO);
      return true;
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
    later(this::begin, wanted);
    return true;
  }

  private void renewed(Status status, Metadata trailers) {
    try {
      if (connections.renew(token, connections.timed(method, options).getDeadline())) {
        begin();
      } else {
        end(status, trailers);
      }
    } catch (LemanException none) {
      end(LemanException.status(none), new Metadata());
    }
  }

  private void later(Runnable next, Duration wait) {
    synchronized (lock) {
      attempt = null;
      if (cancelled == null) {
        pause = connections.later(next, wait);
        return;
      }
    }
    end(cancelled, new Metadata());
  }

  /** Receives the events of one attempt. */
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
      if (ended.get()) {
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
      if (!ends()) {
        return;
      }
      if (status.isOk()) {
        handOn();
      }
      if (status.isOk() && only != null) {
        listener.onMessage(only);
      }
      listener.onClose(connections.told(status), trailers);
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
