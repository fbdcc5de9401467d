package dev.leman.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.google.protobuf.Message;
import com.google.protobuf.TypeRegistry;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.ErrorDetailsProto;
import dev.leman.LemanException;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.CommitServiceGrpc;
import dev.leman.v1.DatabaseServiceGrpc;
import dev.leman.v1.InfoServiceGrpc;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.PlannerServiceGrpc;
import dev.leman.v1.TableServiceGrpc;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Context;
import io.grpc.MethodDescriptor;
import io.grpc.ServiceDescriptor;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Raw calls: what generated stubs do, for a method that is named. */
final class StubCalls {
  private static final TypeRegistry DETAILS =
      TypeRegistry.newBuilder().add(ErrorDetailsProto.getDescriptor().getMessageTypes()).build();
  private static final JsonFormat.Printer PRINTER = JsonFormat.printer().usingTypeRegistry(DETAILS);
  private static final JsonFormat.Parser PARSER = JsonFormat.parser().usingTypeRegistry(DETAILS);
  private static final List<ServiceDescriptor> SERVICES =
      List.of(
          CatalogServiceGrpc.getServiceDescriptor(),
          CommitServiceGrpc.getServiceDescriptor(),
          DatabaseServiceGrpc.getServiceDescriptor(),
          InfoServiceGrpc.getServiceDescriptor(),
          JobServiceGrpc.getServiceDescriptor(),
          PlannerServiceGrpc.getServiceDescriptor(),
          TableServiceGrpc.getServiceDescriptor());

  private StubCalls() {}

  /** Make one call and give its answers. */
  static JsonNode call(Channel channel, JsonNode given, JsonNode timeout) throws Exception {
    MethodDescriptor<Message, Message> method = method(given.get("method").asText());
    CallOptions options = CallOptions.DEFAULT;
    if (timeout != null && !timeout.isNull()) {
      options = options.withDeadlineAfter((long) (timeout.asDouble() * 1e9), TimeUnit.NANOSECONDS);
    }
    List<Message> answers;
    try {
      answers =
          switch (method.getType()) {
            case UNARY ->
                List.of(
                    ClientCalls.blockingUnaryCall(
                        channel, method, options, message(method, given.path("request"))));
            case SERVER_STREAMING -> stream(channel, method, options, given);
            default -> List.of(upload(channel, method, options, given));
          };
    } catch (RuntimeException failure) {
      throw io.grpc.Status.fromThrowable(failure).getCode() == io.grpc.Status.Code.UNKNOWN
          ? failure
          : LemanException.from(failure);
    }
    ArrayNode responses = Runner.JSON.createArrayNode();
    for (Message answer : answers) {
      responses.add(Runner.JSON.readTree(PRINTER.print(answer)));
    }
    return Runner.JSON.createObjectNode().set("responses", responses);
  }

  private static List<Message> stream(
      Channel channel,
      MethodDescriptor<Message, Message> method,
      CallOptions options,
      JsonNode given)
      throws Exception {
    Message request = message(method, given.path("request"));
    int most = given.path("take").asInt(Integer.MAX_VALUE);
    List<Message> answers = new ArrayList<>();
    ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
    try (Context.CancellableContext context = Context.current().withCancellation()) {
      if (given.hasNonNull("cancel_after")) {
        long wait = (long) (given.get("cancel_after").asDouble() * 1000);
        timer.schedule(() -> context.cancel(null), wait, TimeUnit.MILLISECONDS);
      }
      context.call(
          () -> {
            Iterator<Message> found =
                ClientCalls.blockingServerStreamingCall(channel, method, options, request);
            while (answers.size() < most && found.hasNext()) {
              answers.add(found.next());
            }
            return answers;
          });
    } finally {
      timer.shutdownNow();
    }
    return answers;
  }

  private static Message upload(
      Channel channel,
      MethodDescriptor<Message, Message> method,
      CallOptions options,
      JsonNode given)
      throws IOException, InterruptedException {
    CompletableFuture<Message> answer = new CompletableFuture<>();
    StreamObserver<Message> requests =
        ClientCalls.asyncClientStreamingCall(
            channel.newCall(method, options),
            new StreamObserver<>() {
              @Override
              public void onNext(Message message) {
                answer.complete(message);
              }

              @Override
              public void onError(Throwable failure) {
                answer.completeExceptionally(failure);
              }

              @Override
              public void onCompleted() {
                answer.completeExceptionally(new IllegalStateException("no answer came"));
              }
            });
    for (JsonNode request : given.get("requests")) {
      requests.onNext(message(method, request));
    }
    requests.onCompleted();
    try {
      return answer.get();
    } catch (ExecutionException failure) {
      throw LemanException.from(failure);
    }
  }

  @SuppressWarnings("unchecked") // all methods of the services are of protobuf messages
  private static MethodDescriptor<Message, Message> method(String name) {
    String full = "leman.v1." + name;
    Stream<MethodDescriptor<?, ?>> all =
        SERVICES.stream().flatMap(service -> service.getMethods().stream());
    return (MethodDescriptor<Message, Message>)
        all.filter(method -> method.getFullMethodName().equals(full)).findFirst().orElseThrow();
  }

  private static Message message(MethodDescriptor<Message, Message> method, JsonNode text)
      throws IOException {
    Message prototype =
        ((MethodDescriptor.PrototypeMarshaller<Message>) method.getRequestMarshaller())
            .getMessagePrototype();
    Message.Builder message = prototype.newBuilderForType();
    if (!text.isMissingNode() && !text.isNull()) {
      PARSER.merge(text.toString(), message);
    }
    return message.build();
  }
}
