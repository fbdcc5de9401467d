package dev.leman.functions;

import com.google.protobuf.ByteString;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.impl.Flight.FlightData;
import org.apache.arrow.flight.impl.Flight.FlightDescriptor;
import org.apache.arrow.flight.impl.FlightServiceGrpc;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** A stream to a function server, with its raw messages. */
final class Caller implements ClientResponseObserver<FlightData, FlightData>, AutoCloseable {
  static final ArrowType INT64 = new ArrowType.Int(64, true);
  private static final Schema NUMBERS = new Schema(List.of(Field.nullable("n", INT64)));

  final ManagedChannel channel;
  private final BlockingQueue<Object> answers = new LinkedBlockingQueue<>();
  private ClientCallStreamObserver<FlightData> calls;
  private FlightData schema;

  Caller(FunctionServer server) {
    this(server, InsecureChannelCredentials.create());
  }

  Caller(FunctionServer server, ChannelCredentials credentials) {
    channel = Grpc.newChannelBuilder("127.0.0.1:" + server.port(), credentials).build();
  }

  Caller open() {
    FlightServiceGrpc.newStub(channel).doExchange(this);
    return this;
  }

  /**
   * Open a stream of numbers to version 1 of a function, and wait for the schema of the results.
   */
  Caller open(String function) throws InterruptedException {
    open();
    calls.onNext(
        FlightData.newBuilder()
            .setFlightDescriptor(command(function))
            .setDataHeader(
                ByteString.copyFrom(
                    MessageSerializer.serializeMetadata(NUMBERS, IpcOption.DEFAULT)))
            .build());
    schema = (FlightData) next();
    return this;
  }

  static FlightDescriptor command(String function) {
    String text =
        "{\"protocol\":\"leman.function.v1\",\"function\":\"" + function + "\",\"version\":\"1\"}";
    return FlightDescriptor.newBuilder()
        .setType(FlightDescriptor.DescriptorType.CMD)
        .setCmd(ByteString.copyFromUtf8(text))
        .build();
  }

  void send(FlightData message) {
    calls.onNext(message);
  }

  void send(long... values) throws IOException {
    try (BufferAllocator memory = new RootAllocator();
        BigIntVector numbers = new BigIntVector("n", memory)) {
      for (int row = 0; row < values.length; row++) {
        numbers.setSafe(row, values[row]);
      }
      numbers.setValueCount(values.length);
      VectorUnloader rows = new VectorUnloader(new VectorSchemaRoot(List.of(numbers)));
      try (ArrowRecordBatch batch = rows.getRecordBatch()) {
        Outbox body = new Outbox(Math.toIntExact(batch.computeBodyLength()));
        MessageSerializer.writeBatchBuffers(new WriteChannel(body), batch);
        calls.onNext(
            FlightData.newBuilder()
                .setDataHeader(
                    ByteString.copyFrom(
                        MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT)))
                .setDataBody(body.content())
                .build());
      }
    }
  }

  void end() {
    calls.onCompleted();
  }

  void cancel() {
    calls.cancel("gone", null);
  }

  /** Return the next message, or the status with which the stream ends. */
  Object next() throws InterruptedException {
    Object told = answers.poll(20, TimeUnit.SECONDS);
    return told == null ? "silence" : told;
  }

  /** Return the next message, which must be an error. */
  String failed() throws InterruptedException {
    FlightData message = (FlightData) next();
    return message.getDataHeader().isEmpty() ? message.getAppMetadata().toStringUtf8() : "values";
  }

  /** Return the next message, which must be numbers. */
  List<Long> values() throws InterruptedException, IOException {
    Inbox read = new Inbox(more -> {});
    read.put(schema);
    read.put((FlightData) next());
    read.end();
    List<Long> values = new ArrayList<>();
    try (BufferAllocator memory = new RootAllocator();
        ArrowStreamReader reader = new ArrowStreamReader(read, memory)) {
      reader.loadNextBatch();
      BigIntVector numbers = (BigIntVector) reader.getVectorSchemaRoot().getVector("value");
      for (int row = 0; row < numbers.getValueCount(); row++) {
        values.add(numbers.getObject(row));
      }
    }
    return values;
  }

  Status.Code ended() throws InterruptedException {
    return next() instanceof Status status ? status.getCode() : null;
  }

  @Override
  public void beforeStart(ClientCallStreamObserver<FlightData> stream) {
    calls = stream;
  }

  @Override
  public void onNext(FlightData message) {
    answers.add(message);
  }

  @Override
  public void onError(Throwable failed) {
    answers.add(Status.fromThrowable(failed));
  }

  @Override
  public void onCompleted() {
    answers.add(Status.OK);
  }

  @Override
  public void close() {
    channel.shutdownNow();
  }
}
