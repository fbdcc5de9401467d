package dev.leman.functions;

import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import java.util.function.Predicate;

/** Refuses calls whose token is not allowed. */
final class TokenCheck implements ServerInterceptor {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final String SCHEME = "Bearer ";
  private final Predicate<String> allows;

  TokenCheck(Predicate<String> allows) {
    this.allows = allows;
  }

  @Override
  public <Q, R> ServerCall.Listener<Q> interceptCall(
      ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
    String shown = headers.get(AUTHORIZATION);
    boolean bearer = shown != null && shown.regionMatches(true, 0, SCHEME, 0, SCHEME.length());
    if (allows.test(bearer ? shown.substring(SCHEME.length()) : "")) {
      return next.startCall(call, headers);
    }
    call.close(
        Status.UNAUTHENTICATED.withDescription(
            "this function server takes calls with its token only: send the header"
                + " authorization: Bearer TOKEN"),
        new Metadata());
    return new ServerCall.Listener<>() {};
  }
}
