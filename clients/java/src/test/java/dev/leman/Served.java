package dev.leman;

import com.google.protobuf.Any;
import com.google.protobuf.util.Durations;
import com.google.rpc.BadRequest;
import com.google.rpc.Code;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.BindableService;
import io.grpc.ClientInterceptor;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.StatusRuntimeException;
import io.grpc.inprocess.InProcessChannelBuilder;
import io.grpc.inprocess.InProcessServerBuilder;
import io.grpc.protobuf.StatusProto;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Services in this process, with a client of them. */
final class Served implements AutoCloseable {
  private final Server server;
  final Connections connections;
  final LemanClient client;

  /** The tokens of calls, in order; empty strings for calls without one. */
  final List<String> tokens = new CopyOnWriteArrayList<>();

  Served(Tokens given, Duration patience, BindableService... services) throws IOException {
    this(List.of(), given, patience, services);
  }

  private Served(
      List<ClientInterceptor> between, Tokens given, Duration patience, BindableService... services)
      throws IOException {
    String name = InProcessServerBuilder.generateName();
    InProcessServerBuilder builder = InProcessServerBuilder.forName(name).intercept(new Seen());
    for (BindableService service : services) {
      builder.addService(service);
    }
    server = builder.build().start();
    connections =
        Dialing.open(
            List.of(name),
            given,
            patience,
            pool ->
                endpoint ->
                    InProcessChannelBuilder.forName(endpoint)
                        .executor(pool)
                        .intercept(between)
                        .build());
    client = new LemanClient(connections);
  }

  static Served of(BindableService... services) throws IOException {
    return new Served(Tokens.fixed(""), Duration.ofSeconds(20), services);
  }

  /** Serve with an interceptor between the client and its channel. */
  static Served behind(ClientInterceptor between, BindableService... services) throws IOException {
    return new Served(List.of(between), Tokens.fixed(""), Duration.ofSeconds(20), services);
  }

  Database database() {
    return client.database("lake");
  }

  /** Make the error with which services refuse a call. */
  static StatusRuntimeException refusal(Code code, String reason) {
    return StatusProto.toStatusRuntimeException(
        com.google.rpc.Status.newBuilder()
            .setCode(code.getNumber())
            .setMessage("no")
            .addDetails(
                Any.pack(
                    ErrorInfo.newBuilder()
                        .setReason(reason)
                        .setDomain("leman")
                        .putMetadata("table", "docs")
                        .build()))
            .build());
  }

  static StatusRuntimeException refusal(Code code, String reason, Duration delay) {
    return StatusProto.toStatusRuntimeException(
        com.google.rpc.Status.newBuilder()
            .setCode(code.getNumber())
            .setMessage("later")
            .addDetails(
                Any.pack(ErrorInfo.newBuilder().setReason(reason).setDomain("leman").build()))
            .addDetails(
                Any.pack(
                    RetryInfo.newBuilder()
                        .setRetryDelay(Durations.fromNanos(delay.toNanos()))
                        .build()))
            .addDetails(
                Any.pack(
                    BadRequest.newBuilder()
                        .addFieldViolations(
                            BadRequest.FieldViolation.newBuilder()
                                .setField("table.table")
                                .setDescription("is no name"))
                        .build()))
            .build());
  }

  @Override
  public void close() {
    client.close();
    server.shutdownNow();
  }

  private final class Seen implements ServerInterceptor {
    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
      String found =
          headers.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER));
      tokens.add(found == null ? "" : found);
      return next.startCall(call, headers);
    }
  }
}
