package dev.leman.functions;

import com.google.protobuf.ByteString;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.FutureTask;
import org.apache.arrow.flight.impl.Flight.FlightData;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;

/** The stream of one client: computes its batches in order, in a thread of its own. */
final class Exchange implements StreamObserver<FlightData> {
  private static final Status STOPS =
      Status.UNAVAILABLE.withDescription(
          "this function server stops: call another instance, or this one again");

  private final FlightFunctions service;
  private final ServerCallStreamObserver<FlightData> client;
  private final BufferAllocator memory;
  private final Inbox inbox;
  private final FutureTask<Void> work;
  private final Object readiness = new Object();
  private volatile boolean stopping;

  Exchange(
      FlightFunctions service,
      ServerCallStreamObserver<FlightData> client,
      BufferAllocator memory) {
    this.service = service;
    this.client = client;
    this.memory = memory;
    inbox = new Inbox(client::request);
    work = new FutureTask<>(this::run, null);
  }

  void start(ExecutorService pool) {
    client.disableAutoRequest();
    client.setOnReadyHandler(this::ready);
    client.setOnCancelHandler(() -> work.cancel(true));
    client.request(1);
    pool.execute(
        () -> {
          try {
            work.run();
          } finally {
            service.ended(this);
          }
        });
  }

  void stop() {
    stopping = true;
    inbox.fail(STOPS);
  }

  @Override
  public void onNext(FlightData message) {
    inbox.put(message);
  }

  @Override
  public void onError(Throwable gone) {
    inbox.fail(Status.fromThrowable(gone));
  }

  @Override
  public void onCompleted() {
    inbox.end();
  }

  private void run() {
    try {
      answer();
      client.onCompleted();
    } catch (StatusRuntimeException refused) {
      client.onError(refused);
    } catch (IOException | RuntimeException broken) {
      if (!client.isCancelled()) {
        client.onError(
            Status.INVALID_ARGUMENT
                .withDescription("what was sent is no stream of Arrow record batches: " + broken)
                .asRuntimeException());
      }
    }
  }

  private void answer() throws IOException {
    FlightData first = inbox.take();
    if (first == null) {
      throw FlightFunctions.refused(
          Status.INVALID_ARGUMENT, "send the schema of the inputs with a descriptor");
    }
    ServedFunction function = service.find(first.getFlightDescriptor());
    inbox.open(first);
    try (BufferAllocator own = memory.newChildAllocator(function.name, 0, Long.MAX_VALUE);
        ArrowStreamReader reader = new ArrowStreamReader(inbox, own)) {
      VectorSchemaRoot batch = reader.getVectorSchemaRoot();
      function.check(batch.getSchema());
      ByteBuffer schema =
          MessageSerializer.serializeMetadata(function.answers(), IpcOption.DEFAULT);
      send(FlightData.newBuilder().setDataHeader(ByteString.copyFrom(schema)));
      while (!stopping && reader.loadNextBatch()) {
        send(answer(function, batch, own));
      }
    }
    if (stopping) {
      throw STOPS.asRuntimeException();
    }
  }

  private FlightData.Builder answer(
      ServedFunction function, VectorSchemaRoot batch, BufferAllocator own) {
    try (FieldVector values = function.values(batch, own)) {
      return encoded(values);
    } catch (Exception | Error failed) {
      return explained(failed);
    }
  }

  private static FlightData.Builder encoded(FieldVector values) throws IOException {
    VectorSchemaRoot answer = new VectorSchemaRoot(List.of(values)); // closed by their owner
    try (ArrowRecordBatch batch = new VectorUnloader(answer).getRecordBatch()) {
      Outbox body = new Outbox(Math.toIntExact(batch.computeBodyLength()));
      MessageSerializer.writeBatchBuffers(new WriteChannel(body), batch);
      ByteBuffer header = MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT);
      return FlightData.newBuilder()
          .setDataHeader(ByteString.copyFrom(header))
          .setDataBody(body.content());
    }
  }

  private static FlightData.Builder explained(Throwable failed) {
    StringWriter trace = new StringWriter();
    failed.printStackTrace(new PrintWriter(trace));
    Struct told =
        Struct.newBuilder()
            .putFields("type", text(FunctionException.typeOf(failed)))
            .putFields("message", text(String.valueOf(failed.getMessage())))
            .putFields("traceback", text(trace.toString()))
            .build();
    Value error = Value.newBuilder().setStructValue(told).build();
    return FlightData.newBuilder()
        .setAppMetadata(
            FlightFunctions.json(Struct.newBuilder().putFields("error", error).build()));
  }

  private static Value text(String text) {
    return Value.newBuilder().setStringValue(text).build();
  }

  /** Send a message when the client accepts one. */
  private void send(FlightData.Builder message) throws IOException {
    synchronized (readiness) {
      while (!client.isReady() && !client.isCancelled()) {
        try {
          readiness.wait();
        } catch (InterruptedException cancelled) {
          Thread.currentThread().interrupt();
          throw new InterruptedIOException("the client went away");
        }
      }
    }
    if (client.isCancelled()) {
      throw Status.CANCELLED.asRuntimeException();
    }
    client.onNext(message.build());
  }

  private void ready() {
    synchronized (readiness) {
      readiness.notifyAll();
    }
  }
}
