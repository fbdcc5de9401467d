package dev.leman;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.concurrent.atomic.AtomicBoolean;

/** A call that sends a stream: it carries the token and is not retried. */
final class CarryingCall<Q, A> extends SimpleForwardingClientCall<Q, A> {
  private final Connections connections;
  private final CallOptions options;
  private final AtomicBoolean ended = new AtomicBoolean();
  private final Runnable atClose = () -> end(Status.CANCELLED);
  private Listener<A> listener;
  private volatile String token = "";
  private boolean failed; // it was never started, and ignores messages

  CarryingCall(Connections connections, CallOptions options, ClientCall<Q, A> call) {
    super(call);
    this.connections = connections;
    this.options = options;
  }

  /** The token that the call carried, or an empty string. */
  String token() {
    return token;
  }

  @Override
  public void start(Listener<A> answered, Metadata headers) {
    listener = answered;
    try {
      token = connections.carry(headers, options.getDeadline());
    } catch (LemanException none) {
      failed = true;
      end(LemanException.status(none));
      return;
    }
    connections.ends.add(atClose);
    try {
      super.start(new Handed(), headers);
    } catch (RuntimeException thrown) {
      failed = true; // a channel that shuts down may have null in place of a call
      end(Status.fromThrowable(thrown));
    }
  }

  @Override
  public boolean isReady() {
    return !failed && super.isReady();
  }

  @Override
  public void request(int messages) {
    if (!failed) {
      super.request(messages);
    }
  }

  @Override
  public void sendMessage(Q message) {
    if (!failed) {
      super.sendMessage(message);
    }
  }

  @Override
  public void halfClose() {
    if (!failed) {
      super.halfClose();
    }
  }

  private void end(Status status) {
    if (ends()) {
      Status told = connections.told(status);
      options.getExecutor().execute(() -> listener.onClose(told, new Metadata()));
    }
  }

  /** Return true the first time; the caller must then notify the listener. */
  private boolean ends() {
    connections.ends.takeBack(atClose);
    return ended.compareAndSet(false, true);
  }

  /** Passes events on to the listener until the call ends. */
  private final class Handed extends SimpleForwardingClientCallListener<A> {
    Handed() {
      super(listener);
    }

    @Override
    public void onMessage(A answer) {
      if (!ended.get()) {
        super.onMessage(answer);
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      if (ends()) {
        super.onClose(connections.told(status), trailers);
      }
    }
  }
}
