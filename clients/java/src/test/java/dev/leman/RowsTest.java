package dev.leman;

import static dev.leman.Served.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.rpc.Code;
import dev.leman.v1.AppendRowsRequest;
import dev.leman.v1.AppendRowsResponse;
import dev.leman.v1.CreateTableRequest;
import dev.leman.v1.CreateTableResponse;
import dev.leman.v1.DropTableRequest;
import dev.leman.v1.DropTableResponse;
import dev.leman.v1.ReadRowsRequest;
import dev.leman.v1.ReadRowsResponse;
import dev.leman.v1.TableServiceGrpc;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Reading and sending rows, with interrupted streams; no memory of Arrow is leaked. */
@Timeout(30)
class RowsTest {
  private static final int ROWS = 100;
  private static final int BATCH = 10;
  private static final StatusRuntimeException AWAY = refusal(Code.UNAVAILABLE, "DRAINING");
  private static final Schema SCHEMA =
      new Schema(List.of(Field.nullable("n", new ArrowType.Int(64, true))));

  private final BufferAllocator memory = new RootAllocator();
  private final Tables tables = new Tables();

  @AfterEach
  void nothingIsLeftOfArrowsMemory() {
    memory.close();
  }

  @Test
  void aReadThatIsCutGoesOnWhereItWas() throws IOException {
    tables.cuts.addAll(List.of(700, 1100, 5));
    try (Served served = Served.of(tables)) {
      try (Rows rows = served.database().table("docs").read(memory)) {
        assertEquals(LongStream.range(0, ROWS).boxed().toList(), numbers(rows));
        assertEquals(3, rows.version());
      }
    }
    assertEquals(4, tables.reads.size());
    assertEquals(
        List.of(0L, 3L, 3L, 3L), tables.reads.stream().map(ReadRowsRequest::getVersion).toList());
    assertEquals(0, tables.reads.get(0).getOffset());
    assertEquals("", tables.reads.get(0).getIncarnation());
    assertEquals("this one", tables.reads.get(3).getIncarnation());
    assertTrue(tables.reads.get(3).getOffset() > tables.reads.get(1).getOffset());
  }

  @Test
  void aLimitHoldsOverACut() throws IOException {
    tables.cuts.add(900);
    try (Served served = Served.of(tables)) {
      ReadOptions options = ReadOptions.all().offset(5).limit(50).columns("n").where("n >= 0");
      try (Rows rows = served.database().table("docs").read(options, memory)) {
        assertEquals(LongStream.range(5, 55).boxed().toList(), numbers(rows));
      }
    }
    ReadRowsRequest second = tables.reads.get(1);
    assertEquals(50 + 5, second.getLimit() + second.getOffset());
    assertEquals("n >= 0", second.getWhere());
  }

  @Test
  void aReadThatCannotGoOnFails() throws IOException {
    tables.cuts.add(900);
    tables.failure = refusal(Code.DATA_LOSS, "TABLE_DAMAGED");
    try (Served served = Served.of(tables)) {
      try (Rows rows = served.database().table("docs").read(memory)) {
        assertEquals(
            "TABLE_DAMAGED", assertThrows(LemanException.class, () -> numbers(rows)).reason());
      }
      LemanException refused =
          assertThrows(LemanException.class, () -> served.database().table("docs").read(memory));
      assertEquals("TABLE_DAMAGED", refused.reason());
    }
  }

  @Test
  void noMoreIsTakenThanIsRead() throws Exception {
    try (Served served = Served.of(tables)) {
      Rows rows = served.database().table("docs").read(memory);
      rows.iterator().next();
      assertTrue(tables.sent.get() < 20, "of some 90 answers " + tables.sent + " were sent");
      rows.close();
      assertTrue(tables.ended.await(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void aSubscriberGetsWhatItAsksForAndOwnsIt() throws Exception {
    LinkedBlockingQueue<Object> told = new LinkedBlockingQueue<>();
    Flow.Subscription[] held = new Flow.Subscription[1];
    try (Served served = Served.of(tables)) {
      served
          .database()
          .table("docs")
          .publish(ReadOptions.all(), memory)
          .subscribe(
              new Flow.Subscriber<>() {
                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                  held[0] = subscription;
                  subscription.request(1);
                }

                @Override
                public void onNext(VectorSchemaRoot batch) {
                  told.add(batch);
                }

                @Override
                public void onError(Throwable failure) {
                  told.add(failure);
                }

                @Override
                public void onComplete() {
                  told.add("end");
                }
              });
      try (VectorSchemaRoot first = (VectorSchemaRoot) told.poll(10, TimeUnit.SECONDS)) {
        held[0].request(2);
        VectorSchemaRoot second = (VectorSchemaRoot) told.poll(10, TimeUnit.SECONDS);
        VectorSchemaRoot third = (VectorSchemaRoot) told.poll(10, TimeUnit.SECONDS);
        assertEquals(0L, first.getVector(0).getObject(0));
        assertEquals(10L, second.getVector(0).getObject(0));
        assertEquals(20L, third.getVector(0).getObject(0));
        second.close();
        third.close();
      }
      assertEquals(0, told.size());
      held[0].cancel();
      assertTrue(tables.ended.await(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void rowsAreSentAgainUnderTheirRequestId() throws IOException {
    tables.lost.add(AWAY);
    try (Served served = Served.of(tables);
        VectorSchemaRoot rows = rows(0, 3)) {
      assertEquals(3, served.database().table("docs").append(RowSource.of(rows)).getRowsAdded());
    }
    assertEquals(List.of(3L, 3L), tables.appended);
    assertEquals(1, tables.ids.stream().distinct().count());
    assertEquals(2, tables.ids.size());
  }

  @Test
  void whatAReaderGaveIsNotSentAgain() throws IOException {
    tables.lost.add(AWAY);
    try (Served served = Served.of(tables);
        VectorSchemaRoot rows = rows(0, 3)) {
      ArrowReader reader = new ArrowStreamReader(new ByteArrayInputStream(written(rows)), memory);
      LemanException failure =
          assertThrows(
              LemanException.class,
              () -> served.database().table("docs").append(RowSource.once(reader)));
      assertEquals("DRAINING", failure.reason());
    }
    assertEquals(1, tables.ids.size());
  }

  @Test
  void rowsThatCannotBeReadAreRefusedByTheirName() throws IOException {
    RowSource used = RowSource.once(new RootReader(VectorSchemaRoot.of(), null));
    used.open();
    RowSource broken =
        () -> {
          throw new IllegalStateException("the file is gone");
        };
    RowSource late = () -> new RootReader(new Broken(), null);
    try (Served served = Served.of(tables)) {
      Database lake = served.database();
      Table table = lake.table("docs");
      for (RowSource rows : List.of(used, () -> null)) {
        assertRefused("rows", "has no reader", () -> table.append(rows));
        assertRefused("rows", "has no reader", () -> table.merge(rows, MergeRules.on("n")));
        assertRefused("rows", "has no reader", () -> lake.createTable("docs", rows));
      }
      assertRefused("rows", "the file is gone", () -> table.append(broken));
      assertRefused("rows", "the file is gone", () -> lake.createTable("docs", broken));
      assertRefused("rows", "is torn", () -> table.append(late));
      ExecutionException failed =
          assertThrows(ExecutionException.class, () -> table.appendAsync(broken).get());
      assertRefused("rows", "the file is gone", LemanException.from(failed));
    }
    assertEquals(List.of(), tables.appended);
  }

  @Test
  void aDictionaryThatIsNotGivenIsRefused() throws IOException {
    DictionaryEncoding seventh = new DictionaryEncoding(7, false, new ArrowType.Int(32, true));
    Field field =
        new Field("n", new FieldType(true, new ArrowType.Int(32, true), seventh), List.of());
    try (Served served = Served.of(tables);
        VectorSchemaRoot rows = VectorSchemaRoot.create(new Schema(List.of(field)), memory)) {
      Database lake = served.database();
      RowSource source = RowSource.of(rows);
      assertRefused("dictionaries", "dictionary 7", () -> lake.table("docs").append(source));
      assertRefused("dictionaries", "dictionary 7", () -> lake.createTable("docs", source));
    }
    assertEquals(List.of(), tables.changes);
  }

  private static void assertRefused(String argument, String told, Executable call) {
    assertRefused(argument, told, assertThrows(LemanException.class, call));
  }

  private static void assertRefused(String argument, String told, LemanException refused) {
    assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
    assertEquals("BAD_REQUEST", refused.reason());
    assertEquals(argument, refused.fields().get(0).field());
    assertTrue(refused.getMessage().contains(told), refused.getMessage());
  }

  /** Has a schema, but no rows. */
  private static final class Broken extends VectorSchemaRoot {
    Broken() {
      super(List.of());
    }

    @Override
    public List<FieldVector> getFieldVectors() {
      throw new IllegalStateException("the batch is torn");
    }
  }

  @Test
  void closedRowsGiveNothingAndTakeNoMemory() throws IOException {
    try (Served served = Served.of(tables)) {
      Table table = served.database().table("docs");
      for (int read = 0; read < 3; read++) {
        Rows rows = table.read(memory);
        Iterator<VectorSchemaRoot> batches = rows.iterator();
        for (int batch = 0; batch < read; batch++) {
          assertTrue(batches.hasNext());
          batches.next();
        }
        rows.close();
        assertThrows(IllegalStateException.class, batches::hasNext);
        assertThrows(IllegalStateException.class, batches::next);
        assertThrows(IllegalStateException.class, rows.reader()::loadNextBatch);
        rows.close();
        assertEquals(0, memory.getAllocatedMemory());
      }
      Rows unread = table.read(memory);
      unread.reader().close();
      assertThrows(IllegalStateException.class, () -> unread.iterator().hasNext());
      unread.close();
    }
  }

  @Test
  void aLargeBatchIsSentInParts() throws IOException {
    int many = 5 << 20;
    try (Served served = Served.of(tables);
        VectorSchemaRoot rows = rows(0, many)) {
      served.database().table("docs").append(RowSource.of(rows));
    }
    assertEquals(List.of((long) many), tables.appended);
    assertTrue(tables.largest.get() <= 16 << 17, "a batch of " + tables.largest + " rows");
  }

  @Test
  void aTableWhoseRowsAreRefusedGoesAgain() throws IOException {
    tables.lost.add(refusal(Code.FAILED_PRECONDITION, "NULL_VALUE"));
    try (Served served = Served.of(tables);
        VectorSchemaRoot rows = rows(0, 3)) {
      LemanException failure =
          assertThrows(
              LemanException.class,
              () -> served.database().createTable("docs", RowSource.of(rows)));
      assertEquals("NULL_VALUE", failure.reason());
    }
    assertEquals(List.of("create docs", "drop docs"), tables.changes);
  }

  private List<Object> numbers(Rows rows) {
    List<Object> found = new ArrayList<>();
    for (VectorSchemaRoot batch : rows) {
      for (int at = 0; at < batch.getRowCount(); at++) {
        found.add(batch.getVector("n").getObject(at));
      }
    }
    return found;
  }

  private VectorSchemaRoot rows(long from, int count) {
    VectorSchemaRoot rows = VectorSchemaRoot.create(SCHEMA, memory);
    BigIntVector numbers = (BigIntVector) rows.getVector(0);
    numbers.allocateNew(count);
    for (int at = 0; at < count; at++) {
      numbers.set(at, from + at);
    }
    rows.setRowCount(count);
    return rows;
  }

  private byte[] written(VectorSchemaRoot... batches) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ArrowStreamWriter writer = new ArrowStreamWriter(batches[0], null, bytes)) {
      writer.writeBatch();
    }
    return bytes.toByteArray();
  }

  /**
   * A table of a hundred numbers, in messages of 64 bytes, whose streams are interrupted on
   * request.
   */
  private final class Tables extends TableServiceGrpc.TableServiceImplBase {
    final Queue<Integer> cuts = new ArrayDeque<>();
    final Queue<StatusRuntimeException> lost = new ArrayDeque<>();
    final List<ReadRowsRequest> reads = new ArrayList<>();
    final List<String> ids = new ArrayList<>();
    final List<Long> appended = new ArrayList<>();
    final List<String> changes = new ArrayList<>();
    final AtomicInteger sent = new AtomicInteger();
    final AtomicInteger largest = new AtomicInteger();
    final CountDownLatch ended = new CountDownLatch(1);
    StatusRuntimeException failure;

    @Override
    public void readRows(ReadRowsRequest request, StreamObserver<ReadRowsResponse> answer) {
      reads.add(request);
      Integer cut = cuts.poll();
      if (cut == null && failure != null) {
        answer.onError(failure);
        return;
      }
      byte[] bytes = stream(request);
      int end = cut == null ? bytes.length : Math.min(cut, bytes.length);
      var call = (ServerCallStreamObserver<ReadRowsResponse>) answer;
      int[] at = {0};
      call.setOnCancelHandler(ended::countDown);
      call.setOnReadyHandler(
          () -> {
            while (call.isReady() && at[0] <= end) {
              if (at[0] == end && cut != null) {
                at[0]++;
                call.onError(AWAY);
                return;
              }
              if (at[0] == end) {
                at[0]++;
                call.onCompleted();
                return;
              }
              int size = Math.min(64, end - at[0]);
              call.onNext(
                  ReadRowsResponse.newBuilder()
                      .setVersion(3)
                      .setIncarnation("this one")
                      .setArrowIpc(ByteString.copyFrom(bytes, at[0], size))
                      .build());
              sent.incrementAndGet();
              at[0] += size;
            }
          });
    }

    private byte[] stream(ReadRowsRequest request) {
      long from = request.getOffset();
      long end = request.hasLimit() ? Math.min(ROWS, from + request.getLimit()) : ROWS;
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      try (BufferAllocator own = new RootAllocator();
          VectorSchemaRoot batch = VectorSchemaRoot.create(SCHEMA, own);
          ArrowStreamWriter writer = new ArrowStreamWriter(batch, null, bytes)) {
        for (long at = from; at < end; at += BATCH) {
          BigIntVector numbers = (BigIntVector) batch.getVector(0);
          int count = (int) Math.min(BATCH, end - at);
          numbers.allocateNew(count);
          for (int i = 0; i < count; i++) {
            numbers.set(i, at + i);
          }
          batch.setRowCount(count);
          writer.writeBatch();
        }
        writer.end();
      } catch (IOException impossible) {
        throw new IllegalStateException(impossible);
      }
      return bytes.toByteArray();
    }

    @Override
    public StreamObserver<AppendRowsRequest> appendRows(StreamObserver<AppendRowsResponse> answer) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      return new StreamObserver<>() {
        @Override
        public void onNext(AppendRowsRequest request) {
          if (request.hasHeader()) {
            ids.add(request.getHeader().getRequestId());
          } else {
            bytes.writeBytes(request.getArrowIpc().toByteArray());
          }
        }

        @Override
        public void onError(Throwable failure) {}

        @Override
        public void onCompleted() {
          long rows = count(bytes.toByteArray());
          appended.add(rows);
          CallsTest.answer(
              answer, lost.poll(), AppendRowsResponse.newBuilder().setRowsAdded(rows).build());
        }
      };
    }

    private long count(byte[] bytes) {
      long rows = 0;
      try (BufferAllocator own = new RootAllocator();
          ArrowStreamReader reader = new ArrowStreamReader(new ByteArrayInputStream(bytes), own)) {
        while (reader.loadNextBatch()) {
          int batch = reader.getVectorSchemaRoot().getRowCount();
          assertEquals(rows, reader.getVectorSchemaRoot().getVector(0).getObject(0));
          rows += batch;
          largest.accumulateAndGet(batch, Math::max);
        }
      } catch (IOException broken) {
        throw new IllegalStateException(broken);
      }
      return rows;
    }

    @Override
    public void createTable(
        CreateTableRequest request, StreamObserver<CreateTableResponse> answer) {
      assertEquals(SCHEMA, Schemas.read(request.getSchema()));
      changes.add("create " + request.getTable().getTable());
      CallsTest.answer(answer, null, CreateTableResponse.getDefaultInstance());
    }

    @Override
    public void dropTable(DropTableRequest request, StreamObserver<DropTableResponse> answer) {
      changes.add("drop " + request.getTable().getTable());
      CallsTest.answer(answer, null, DropTableResponse.getDefaultInstance());
    }
  }

  @Test
  void theClientWaitsNoLongerThanItIsTold() throws IOException {
    tables.cuts.addAll(List.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    try (Served served = new Served(Tokens.fixed(""), Duration.ofMillis(100), tables)) {
      LemanException failure =
          assertThrows(LemanException.class, () -> served.database().table("docs").read(memory));
      assertEquals("DRAINING", failure.reason());
    }
  }
}
