package dev.leman;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.Metadata;
import io.grpc.Status;

/** A call that is sent a stream: it carries the token, and is made once. */
final class CarryingCall<Q, A> extends SimpleForwardingClientCall<Q, A> {
  private final Connections connections;
  private final CallOptions options;
  private volatile String token = "";
  private boolean failed;

  CarryingCall(Connections connections, CallOptions options, ClientCall<Q, A> call) {
    super(call);
    this.connections = connections;
    this.options = options;
  }

  /** The token that it carried; empty: none. */
  String token() {
    return token;
  }

  @Override
  public void start(Listener<A> listener, Metadata headers) {
    try {
      token = connections.carry(headers);
    } catch (LemanException none) {
      failed = true;
      super.start(new Listener<A>() {}, new Metadata());
      super.cancel("there is no token", none);
      Status status = Status.UNAUTHENTICATED.withCause(none);
      options.getExecutor().execute(() -> listener.onClose(status, new Metadata()));
      return;
    }
    super.start(listener, headers);
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
}
