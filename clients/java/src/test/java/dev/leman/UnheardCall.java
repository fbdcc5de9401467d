package dev.leman;

import io.grpc.ClientCall;

/** A call on a broken channel, which does nothing. */
abstract class UnheardCall<Q, A> extends ClientCall<Q, A> {
  @Override
  public void request(int messages) {}

  @Override
  public void cancel(String message, Throwable cause) {}

  @Override
  public void halfClose() {}

  @Override
  public void sendMessage(Q message) {}
}
