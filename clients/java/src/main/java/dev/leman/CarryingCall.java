package dev.leman;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
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
      token = connections.carry(headers, options.getDeadline());
    } catch (LemanException none) {
      failed = true;
      super.start(new Listener<A>() {}, new Metadata());
      super.cancel("it cannot be sent", none);
      Status status = LemanException.status(none);
      options.getExecutor().execute(() -> listener.onClose(status, new Metadata()));
      return;
    }
    super.start(
        new SimpleForwardingClientCallListener<A>(listener) {
          @Override
          public void onClose(Status status, Metadata trailers) {
            super.onClose(connections.told(status), trailers);
          }
        },
        headers);
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
