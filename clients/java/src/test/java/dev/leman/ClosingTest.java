package dev.leman;

import static dev.leman.Served.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.common.util.concurrent.ListenableFuture;
import com.google.protobuf.ByteString;
import com.google.rpc.Code;
import dev.leman.v1.AppendRowsRequest;
import dev.leman.v1.AppendRowsResponse;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.DescribeTableRequest;
import dev.leman.v1.DescribeTableResponse;
import dev.leman.v1.Job;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.ReadRowsRequest;
import dev.leman.v1.ReadRowsResponse;
import dev.leman.v1.TableServiceGrpc;
import dev.leman.v1.WatchJobRequest;
import dev.leman.v1.WatchJobResponse;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Calls that run when a client is closed, and later calls, end as CLOSED. */
@Timeout(120)
class ClosingTest {
  private static final Duration LATER = Duration.ofSeconds(15);
  private static final Schema SCHEMA =
      new Schema(List.of(Field.nullable("n", new ArrowType.Int(64, true))));

  private final BufferAllocator memory = new RootAllocator();
  private final Semaphore begun = new Semaphore(0);

  @AfterEach
  void nothingIsLeftOfArrowsMemory() {
    memory.close();
  }

  @Test
  void whoReadsIsToldThatItIsClosed() throws Exception {
    for (int round = 0; round < 40; round++) {
      Served served = Served.of(new Tables());
      Table table = served.database().table("docs");
      List<CompletableFuture<Void>> readers = new ArrayList<>();
      for (int reader = 0; reader < 4; reader++) {
        readers.add(inThread(() -> readAgainAndAgain(table)));
      }
      awaitBegun(4 + round % 7);
      served.close();
      for (CompletableFuture<Void> reader : readers) {
        assertClosed(reader);
      }
    }
  }

  private void readAgainAndAgain(Table table) {
    while (true) {
      try (Rows rows = table.read(memory)) {
        rows.forEach(VectorSchemaRoot::getRowCount);
      }
    }
  }

  @Test
  void whoWaitsForRowsIsToldThatItIsClosed() throws Exception {
    Tables tables = new Tables();
    tables.held = true;
    Served served = Served.of(tables);
    Table table = served.database().table("docs");
    CompletableFuture<Void> reader = inThread(() -> readAgainAndAgain(table));
    Told<VectorSchemaRoot> idle = new Told<>(0);
    table.publish(ReadOptions.all(), memory).subscribe(idle);
    Told<VectorSchemaRoot> keen = new Told<>(Long.MAX_VALUE);
    table.publish(ReadOptions.all(), memory).subscribe(keen);
    awaitBegun(3);
    served.close();
    assertClosed(reader);
    assertClosed(idle.end);
    assertClosed(keen.end);
  }

  @Test
  void whatThrowsAtACloseKeepsNothingElseFromEnding() throws Exception {
    Tables tables = new Tables();
    tables.held = true;
    Served served = Served.of(tables);
    CompletableFuture<Void> reader =
        inThread(() -> readAgainAndAgain(served.database().table("docs")));
    awaitBegun(1);
    served.connections.atClose.add(
        () -> {
          throw new IllegalStateException("no");
        });
    assertEquals("no", assertThrows(IllegalStateException.class, served::close).getMessage());
    assertClosed(reader);
    assertTrue(served.connections.pool.isShutdown());
  }

  @Test
  void aCallThatBeginsAmidTheCloseEnds() throws Exception {
    List<Held> held = new ArrayList<>();
    List<CompletableFuture<Void>> calls = new ArrayList<>();
    for (int kind = 0; kind < 4; kind++) {
      Held between = new Held();
      Served served = Served.behind(between, new Catalog(), new Tables());
      Table table = served.database().table("docs");
      List<Runnable> kinds =
          List.of(
              () -> table.read(memory).close(),
              table::describe,
              () -> append(table),
              () -> stub(served).describeTable(DescribeTableRequest.getDefaultInstance()));
      calls.add(inThread(kinds.get(kind)));
      assertTrue(between.came.await(20, TimeUnit.SECONDS));
      served.close();
      held.add(between);
    }
    held.forEach(between -> between.free.countDown());
    for (CompletableFuture<Void> call : calls) {
      assertClosed(call);
    }
  }

  @Test
  void aCallThatGrpcLosesEnds() throws Exception {
    Lost between = new Lost(() -> {});
    Served served = Served.behind(between, new Catalog(), new Tables());
    List<CompletableFuture<Void>> calls = callsOf(served, between);
    served.close();
    for (CompletableFuture<Void> call : calls) {
      assertClosed(call);
    }
    assertClosed(inThread(() -> append(served.database().table("docs"))));
  }

  @Test
  void aCallThatGrpcCannotBeginFails() throws Exception {
    Lost between =
        new Lost(
            () -> {
              throw new NullPointerException("no stream");
            });
    Served served = Served.behind(between, new Catalog(), new Tables());
    for (CompletableFuture<Void> call : callsOf(served, between)) {
      LemanException told = LemanException.from(cause(call));
      assertEquals(Status.Code.UNKNOWN, told.code());
    }
    served.close();
    assertClosed(inThread(() -> append(served.database().table("docs"))));
  }

  @Test
  void aCallWhoseOwnExecutorHasEndedIsToldThatItIsClosed() throws Exception {
    Lost between = new Lost(() -> {});
    Served served = Served.behind(between, new Catalog(), new Tables());
    served.database().table("docs").describe();
    between.loses = true;
    ExecutorService own = Executors.newSingleThreadExecutor();
    ListenableFuture<?> call =
        CatalogServiceGrpc.newFutureStub(served.client.channel())
            .withExecutor(own)
            .describeTable(DescribeTableRequest.getDefaultInstance());
    assertTrue(between.came.tryAcquire(20, TimeUnit.SECONDS));
    own.shutdown();
    served.close();
    assertClosed(
        assertThrows(ExecutionException.class, () -> call.get(20, TimeUnit.SECONDS)).getCause());
  }

  /** Start a call of each kind, and wait until all have reached the point where they are lost. */
  private List<CompletableFuture<Void>> callsOf(Served served, Lost between) throws Exception {
    Table table = served.database().table("docs");
    table.describe();
    between.loses = true;
    Told<VectorSchemaRoot> told = new Told<>(1);
    table.publish(ReadOptions.all(), memory).subscribe(told);
    List<CompletableFuture<Void>> calls =
        List.of(
            inThread(() -> readAgainAndAgain(table)),
            inThread(() -> stub(served).describeTable(DescribeTableRequest.getDefaultInstance())),
            inThread(() -> append(table)),
            table.describeAsync().thenAccept(any -> {}),
            told.end);
    assertTrue(between.came.tryAcquire(calls.size(), 20, TimeUnit.SECONDS), "a call was not made");
    return calls;
  }

  @Test
  void aPauseBeforeTheNextAttemptEnds() throws Exception {
    Catalog catalog = new Catalog();
    Tables tables = new Tables();
    catalog.failure = refusal(Code.UNAVAILABLE, "DRAINING", LATER);
    tables.failure = refusal(Code.RESOURCE_EXHAUSTED, "TOO_MANY_UPLOADS", LATER);
    Served served = Served.of(catalog, tables);
    Table table = served.database().table("docs");
    CompletableFuture<Void> call = table.describeAsync().thenAccept(any -> {});
    CompletableFuture<Void> upload = inThread(() -> append(table));
    CompletableFuture<Void> stub =
        inThread(() -> stub(served).describeTable(DescribeTableRequest.getDefaultInstance()));
    awaitBegun(3);
    long at = System.nanoTime();
    served.close();
    for (CompletableFuture<Void> paused : List.of(call, upload, stub)) {
      assertClosed(paused);
    }
    assertTrue(System.nanoTime() - at < LATER.toNanos() / 2, "the pause was waited for");
  }

  @Test
  void whoWaitsForAJobIsToldThatItIsClosed() throws Exception {
    Served served = Served.of(new Executor());
    JobHandle job = served.database().job("job");
    List<CompletableFuture<Void>> waiting =
        List.of(
            inThread(() -> job.watch().forEachRemaining(update -> {})),
            inThread(job::await),
            job.awaitAsync().thenAccept(ended -> {}));
    Told<JobUpdate> told = new Told<>(Long.MAX_VALUE);
    job.updates().subscribe(told);
    awaitBegun(4);
    served.close();
    for (CompletableFuture<Void> one : waiting) {
      assertClosed(one);
    }
    assertClosed(told.end);
  }

  @Test
  void anUploadIsToldThatItIsClosed() throws Exception {
    Tables tables = new Tables();
    tables.held = true;
    Served served = Served.of(tables);
    Table table = served.database().table("docs");
    CompletableFuture<Void> here = inThread(() -> append(table));
    CompletableFuture<Void> there = table.appendAsync(this::rows).thenAccept(any -> {});
    awaitBegun(2);
    served.close();
    assertClosed(here);
    assertClosed(there);
  }

  @Test
  void workThatHeedsNoInterruptDoesNotHoldItsFuture() throws Exception {
    Served served = Served.of(new Tables());
    CountDownLatch free = new CountDownLatch(1);
    CompletableFuture<AppendRowsResponse> future =
        served
            .database()
            .table("docs")
            .appendAsync(
                () -> {
                  begun.release();
                  awaitUninterruptibly(free);
                  return null;
                });
    awaitBegun(1);
    served.close();
    assertClosed(future);
    free.countDown();
  }

  @Test
  void whatIsAskedLaterIsRefused() throws Exception {
    Served served = Served.of(new Catalog(), new Tables(), new Executor());
    Database lake = served.database();
    Table table = lake.table("docs");
    served.close();
    Told<VectorSchemaRoot> rows = new Told<>(1);
    table.publish(ReadOptions.all(), memory).subscribe(rows);
    List<Runnable> calls =
        List.of(
            table::describe,
            () -> append(table),
            () -> table.merge(this::rows, MergeRules.on("n")),
            () -> table.read(memory),
            () -> lake.uploadBundle(new byte[3]),
            () -> lake.createTable("other", this::rows),
            () -> lake.tables().toList(),
            () -> lake.verify().hasNext(),
            () -> lake.job("j").await(),
            () -> lake.job("j").watch().hasNext(),
            () -> stub(served).describeTable(DescribeTableRequest.getDefaultInstance()));
    for (Runnable call : calls) {
      assertClosed(assertThrows(RuntimeException.class, call::run));
    }
    assertClosed(table.describeAsync());
    assertClosed(table.appendAsync(this::rows));
    assertClosed(lake.uploadBundleAsync(new byte[3]));
    assertClosed(rows.end);
  }

  @Test
  void stubsOfAClosedClientHaveItsCode() throws Exception {
    Served served = Served.of(new Catalog(), new Tables());
    served.close();
    StatusRuntimeException refused =
        assertThrows(
            StatusRuntimeException.class,
            () -> stub(served).describeTable(DescribeTableRequest.getDefaultInstance()));
    assertEquals(Status.Code.CANCELLED, refused.getStatus().getCode());
    assertEquals("the client was closed", refused.getStatus().getDescription());
    Ended<AppendRowsResponse> ended = new Ended<>();
    TableServiceGrpc.newStub(served.client.channel())
        .appendRows(ended)
        .onNext(AppendRowsRequest.getDefaultInstance());
    assertClosed(ended.end);
    assertEquals(Status.Code.CANCELLED, Status.fromThrowable(cause(ended.end)).getCode());
  }

  private static CatalogServiceGrpc.CatalogServiceBlockingStub stub(Served served) {
    return CatalogServiceGrpc.newBlockingStub(served.client.channel());
  }

  private void append(Table table) {
    table.append(this::rows);
  }

  private ArrowReader rows() {
    return new ArrowStreamReader(new ByteArrayInputStream(numbers()), memory);
  }

  private void awaitBegun(int calls) throws InterruptedException {
    assertTrue(begun.tryAcquire(calls, 20, TimeUnit.SECONDS), "nothing began");
  }

  private static void awaitUninterruptibly(CountDownLatch latch) {
    while (true) {
      try {
        latch.await();
        return;
      } catch (InterruptedException unheeded) {
        continue;
      }
    }
  }

  private static CompletableFuture<Void> inThread(Runnable work) {
    CompletableFuture<Void> result = new CompletableFuture<>();
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
                result.complete(null);
              } catch (Throwable failure) {
                result.completeExceptionally(failure);
              }
            },
            "caller");
    thread.setDaemon(true);
    thread.start();
    return result;
  }

  private static void assertClosed(CompletableFuture<?> future) {
    assertClosed(cause(future));
  }

  private static Throwable cause(CompletableFuture<?> future) {
    return assertThrows(ExecutionException.class, () -> future.get(5, TimeUnit.SECONDS)).getCause();
  }

  private static void assertClosed(Throwable failure) {
    LemanException told = LemanException.from(failure);
    assertEquals(LemanException.CLOSED, told.reason(), () -> "it was " + failure);
    assertEquals(Status.Code.CANCELLED, told.code());
  }

  /** Holds calls back from the channel until they are released. */
  private static final class Held implements ClientInterceptor {
    final CountDownLatch came = new CountDownLatch(1);
    final CountDownLatch free = new CountDownLatch(1);

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(
        MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      came.countDown();
      awaitUninterruptibly(free);
      return next.newCall(method, options);
    }
  }

  /** From a given moment, a broken channel: its calls never end, and may fail when they start. */
  private static final class Lost implements ClientInterceptor {
    final Semaphore came = new Semaphore(0);
    volatile boolean loses;
    private final Runnable begins;

    Lost(Runnable begins) {
      this.begins = begins;
    }

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(
        MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      if (!loses) {
        return next.newCall(method, options);
      }
      return new UnheardCall<>() {
        @Override
        public void start(Listener<A> listener, Metadata headers) {
          came.release();
          begins.run();
        }
      };
    }
  }

  private static class Ended<T> implements StreamObserver<T> {
    final CompletableFuture<Void> end = new CompletableFuture<>();

    @Override
    public void onNext(T item) {}

    @Override
    public void onError(Throwable failure) {
      end.completeExceptionally(failure);
    }

    @Override
    public void onCompleted() {
      end.complete(null);
    }
  }

  private static final class Told<T> implements Flow.Subscriber<T> {
    final CompletableFuture<Void> end = new CompletableFuture<>();
    private final long items;

    Told(long items) {
      this.items = items;
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
      if (items > 0) {
        subscription.request(items);
      }
    }

    @Override
    public void onNext(T item) {
      if (item instanceof VectorSchemaRoot batch) {
        batch.close();
      }
    }

    @Override
    public void onError(Throwable failure) {
      end.completeExceptionally(failure);
    }

    @Override
    public void onComplete() {
      end.complete(null);
    }
  }

  private static byte[] numbers() {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (BufferAllocator own = new RootAllocator();
        VectorSchemaRoot batch = VectorSchemaRoot.create(SCHEMA, own);
        ArrowStreamWriter writer = new ArrowStreamWriter(batch, null, bytes)) {
      BigIntVector numbers = (BigIntVector) batch.getVector(0);
      numbers.allocateNew(1);
      numbers.set(0, 7);
      batch.setRowCount(1);
      writer.writeBatch();
      writer.writeBatch();
      writer.end();
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
    return bytes.toByteArray();
  }

  /** Describes tables, unless there is a failure. */
  private final class Catalog extends CatalogServiceGrpc.CatalogServiceImplBase {
    StatusRuntimeException failure;

    @Override
    public void describeTable(
        DescribeTableRequest request, StreamObserver<DescribeTableResponse> answer) {
      CallsTest.answer(answer, failure, DescribeTableResponse.getDefaultInstance());
      begun.release();
    }
  }

  /** Has two batches; can hold back the second one, and the responses to uploads. */
  private final class Tables extends TableServiceGrpc.TableServiceImplBase {
    volatile boolean held;
    StatusRuntimeException failure;

    @Override
    public void readRows(ReadRowsRequest request, StreamObserver<ReadRowsResponse> answer) {
      byte[] bytes = numbers();
      int sent = held ? bytes.length - 100 : bytes.length;
      answer.onNext(
          ReadRowsResponse.newBuilder()
              .setVersion(1)
              .setArrowIpc(ByteString.copyFrom(bytes, 0, sent))
              .build());
      if (!held) {
        answer.onCompleted();
      }
      begun.release();
    }

    @Override
    public StreamObserver<AppendRowsRequest> appendRows(StreamObserver<AppendRowsResponse> answer) {
      begun.release();
      if (!held) {
        CallsTest.answer(answer, failure, AppendRowsResponse.getDefaultInstance());
      }
      return new Ended<>();
    }
  }

  /** Has a job that does not end. */
  private final class Executor extends JobServiceGrpc.JobServiceImplBase {
    @Override
    public void watchJob(WatchJobRequest request, StreamObserver<WatchJobResponse> answer) {
      Job job = Job.newBuilder().setState(Job.State.STATE_RUNNING).build();
      answer.onNext(WatchJobResponse.newBuilder().setSequence(1).setJob(job).build());
      begun.release();
    }
  }
}
