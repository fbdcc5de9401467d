package dev.leman.functions;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.protobuf.util.JsonFormat;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.arrow.flight.impl.Flight.Action;
import org.apache.arrow.flight.impl.Flight.ActionType;
import org.apache.arrow.flight.impl.Flight.Empty;
import org.apache.arrow.flight.impl.Flight.FlightData;
import org.apache.arrow.flight.impl.Flight.FlightDescriptor;
import org.apache.arrow.flight.impl.Flight.Result;
import org.apache.arrow.flight.impl.FlightServiceGrpc;
import org.apache.arrow.memory.BufferAllocator;

/**
 * The Flight service of a server. It uses gRPC directly, because arrow-java's own server frees a
 * batch that a function still reads when the client disconnects.
 */
final class FlightFunctions extends FlightServiceGrpc.FlightServiceImplBase {
  static final String PROTOCOL = "leman.function.v1";
  private static final String DESCRIBE = PROTOCOL + ".describe";
  private static final JsonFormat.Printer PRINTER =
      JsonFormat.printer().omittingInsignificantWhitespace();

  private final Map<String, ServedFunction> functions;
  private final List<String> names;
  private final ExecutorService pool;
  private final BufferAllocator memory;
  private final Set<Exchange> open = ConcurrentHashMap.newKeySet();
  private final Phaser ends = new Phaser(1);
  private volatile boolean stopping;

  FlightFunctions(
      Map<String, ServedFunction> functions, ExecutorService pool, BufferAllocator memory) {
    this.functions = Map.copyOf(functions);
    names = List.copyOf(functions.keySet());
    this.pool = pool;
    this.memory = memory;
  }

  /** Let each stream end after the batch that is being computed. */
  void stop() {
    stopping = true;
    open.forEach(Exchange::stop);
  }

  /** Wait until all streams have ended, except those of functions that ignore an interrupt. */
  boolean awaitEnd() throws InterruptedException {
    try {
      ends.awaitAdvanceInterruptibly(ends.arrive(), 1, TimeUnit.SECONDS);
      return true;
    } catch (TimeoutException late) {
      return false;
    }
  }

  @Override
  public void listActions(Empty request, StreamObserver<ActionType> answers) {
    answers.onNext(
        ActionType.newBuilder()
            .setType(DESCRIBE)
            .setDescription("The functions of this server, as JSON")
            .build());
    answers.onCompleted();
  }

  @Override
  public void doAction(Action action, StreamObserver<Result> answers) {
    if (!action.getType().equals(DESCRIBE)) {
      answers.onError(
          refused(
              Status.UNIMPLEMENTED,
              "there is no action " + action.getType() + ", only " + DESCRIBE));
      return;
    }
    for (String name : names) {
      answers.onNext(Result.newBuilder().setBody(json(functions.get(name).described())).build());
    }
    answers.onCompleted();
  }

  @Override
  public StreamObserver<FlightData> doExchange(StreamObserver<FlightData> answers) {
    Exchange exchange = new Exchange(this, (ServerCallStreamObserver<FlightData>) answers, memory);
    ends.register();
    open.add(exchange);
    exchange.start(pool);
    if (stopping) {
      exchange.stop();
    }
    return exchange;
  }

  void ended(Exchange exchange) {
    open.remove(exchange);
    ends.arriveAndDeregister();
  }

  /** Return the function that a descriptor names. */
  ServedFunction find(FlightDescriptor descriptor) {
    Struct.Builder told = Struct.newBuilder();
    try {
      JsonFormat.parser().merge(descriptor.getCmd().toStringUtf8(), told);
    } catch (InvalidProtocolBufferException broken) {
      told.clear();
    }
    if (descriptor.getType() != FlightDescriptor.DescriptorType.CMD
        || !told(told, "protocol").equals(PROTOCOL)) {
      throw refused(Status.INVALID_ARGUMENT, "the descriptor is no command of " + PROTOCOL);
    }
    String name = told(told, "function");
    ServedFunction found = functions.get(name);
    if (found == null) {
      throw refused(
          Status.NOT_FOUND,
          "there is no function \"" + name + "\" here, but " + String.join(", ", names));
    }
    String version = told(told, "version");
    if (!found.version.equals(version)) {
      throw refused(
          Status.FAILED_PRECONDITION,
          name
              + " is here in version "
              + found.version
              + ", and version "
              + version
              + " was asked for");
    }
    return found;
  }

  private static String told(Struct.Builder told, String field) {
    return told.getFieldsOrDefault(field, Value.getDefaultInstance()).getStringValue();
  }

  static ByteString json(Struct told) {
    try {
      return ByteString.copyFromUtf8(PRINTER.print(told));
    } catch (InvalidProtocolBufferException impossible) {
      throw new IllegalStateException("text cannot be printed", impossible);
    }
  }

  static StatusRuntimeException refused(Status status, String message) {
    return status.withDescription(message).asRuntimeException();
  }
}
