package dev.leman;

import io.grpc.ClientCall;

/** A call of a broken channel: whatever it is told, nothing comes of it. */
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
