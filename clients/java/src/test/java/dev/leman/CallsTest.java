package dev.leman;

import static dev.leman.Served.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.rpc.Code;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.DeleteRowsRequest;
import dev.leman.v1.DeleteRowsResponse;
import dev.leman.v1.DescribeTableRequest;
import dev.leman.v1.DescribeTableResponse;
import dev.leman.v1.ErrorReason;
import dev.leman.v1.ListTablesRequest;
import dev.leman.v1.ListTablesResponse;
import dev.leman.v1.RegisterUdfRequest;
import dev.leman.v1.RegisterUdfResponse;
import dev.leman.v1.TableServiceGrpc;
import dev.leman.v1.UdfDefinition;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Calls with a single response: which are retried, with what, and with which errors they fail. */
@Timeout(30)
class CallsTest {
  private static final StatusRuntimeException AWAY = refusal(Code.UNAVAILABLE, "DRAINING");

  private final Catalog catalog = new Catalog();
  private final Tables tables = new Tables();

  @Test
  void aReadIsMadeAgainWhileTheServicesAreAway() throws IOException {
    catalog.failures.addAll(List.of(AWAY, AWAY, AWAY));
    try (Served served = Served.of(catalog)) {
      assertEquals(7, served.database().table("docs").describe().getVersion());
    }
    assertEquals(4, catalog.calls);
  }

  @Test
  void aCallOfAStubIsMadeAgainToo() throws IOException {
    catalog.failures.add(AWAY);
    try (Served served = Served.of(catalog)) {
      var stub = CatalogServiceGrpc.newBlockingStub(served.client.channel());
      assertEquals(7, stub.describeTable(DescribeTableRequest.getDefaultInstance()).getVersion());
    }
    assertEquals(2, catalog.calls);
  }

  @Test
  void aCallThatAProxyCutIsMadeAgain() throws IOException {
    catalog.failures.add(
        Status.INTERNAL
            .withDescription("RST_STREAM closed stream. HTTP/2 error code: INTERNAL_ERROR")
            .asRuntimeException());
    try (Served served = Served.of(catalog)) {
      assertEquals(7, served.database().table("docs").describe().getVersion());
    }
    assertEquals(2, catalog.calls);
  }

  @Test
  void theSecondLossOfAConnectionEndsACall() throws IOException {
    var lost =
        Status.UNAVAILABLE
            .withDescription("Network closed for unknown reason")
            .asRuntimeException();
    catalog.failures.addAll(List.of(lost, lost, lost));
    try (Served served = Served.of(catalog)) {
      var failure =
          assertThrows(LemanException.class, () -> served.database().table("docs").describe());
      assertEquals(Status.Code.UNAVAILABLE, failure.code());
    }
    assertEquals(2, catalog.calls);
  }

  @Test
  void aConnectionThatWasNeverMadeWasNotLost() {
    var io = Status.UNAVAILABLE.withDescription("io exception");
    var reset = new IOException("Connection reset by peer");
    assertTrue(LemanException.from(io.withCause(reset).asRuntimeException()).lostConnection());
    var pipeline = Status.UNAVAILABLE.withDescription("io exception\nChannel Pipeline: [x#0]");
    assertFalse(
        LemanException.from(pipeline.withCause(reset).asRuntimeException()).lostConnection());
    assertFalse(LemanException.from(AWAY).lostConnection());
  }

  @Test
  void aCallWhoseConnectionWasLostBeforeItWasSentMayBeMadeAgain() {
    Status lost = Status.UNKNOWN.withDescription("channel closed");
    var failure = lost.withCause(new ClosedChannelException()).asRuntimeException();
    assertEquals(Status.Code.UNAVAILABLE, LemanException.from(failure).code());
    assertEquals(
        Status.Code.UNKNOWN, LemanException.from(lost.asRuntimeException()).code(), "no cause");
    assertEquals(
        Status.Code.UNKNOWN,
        LemanException.from(new ClosedChannelException()).code(),
        "the caller's own connection");
  }

  @Test
  void whatTheServicesGiveAReasonWasNotCut() {
    String cut = "RST_STREAM closed stream. HTTP/2 error code: INTERNAL_ERROR";
    com.google.rpc.Status told = StatusProto.fromThrowable(refusal(Code.INTERNAL, "INTERNAL_BUG"));
    var failure = StatusProto.toStatusRuntimeException(told.toBuilder().setMessage(cut).build());
    assertEquals(Status.Code.INTERNAL, LemanException.from(failure).code());
    var other = Status.INTERNAL.withDescription("Invalid protobuf").asRuntimeException();
    assertEquals(Status.Code.INTERNAL, LemanException.from(other).code());
  }

  @Test
  void patienceEnds() throws IOException {
    catalog.failures.add(refusal(Code.UNAVAILABLE, "DRAINING", Duration.ofSeconds(30)));
    try (Served served = Served.of(catalog)) {
      LemanException failure =
          assertThrows(LemanException.class, () -> served.database().table("docs").describe());
      assertEquals(Status.Code.UNAVAILABLE, failure.code());
      assertEquals(Duration.ofSeconds(30), failure.retryDelay().orElseThrow());
    }
    assertEquals(1, catalog.calls);
  }

  @Test
  void theServicesDelayIsKept() throws IOException {
    Duration delay = Duration.ofMillis(300);
    catalog.failures.add(refusal(Code.UNAVAILABLE, "DRAINING", delay));
    long begun = System.nanoTime();
    try (Served served = Served.of(catalog)) {
      served.database().table("docs").describe();
    }
    assertTrue(System.nanoTime() - begun >= delay.toNanos());
  }

  @Test
  void aCallThatCameTooOftenIsMadeAgainWhenTheServicesSayWhen() throws IOException {
    catalog.failures.add(refusal(Code.RESOURCE_EXHAUSTED, "CALLER_RATE", Duration.ofMillis(1)));
    catalog.failures.add(refusal(Code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"));
    try (Served served = Served.of(catalog)) {
      LemanException failure =
          assertThrows(LemanException.class, () -> served.database().table("docs").describe());
      assertEquals("MESSAGE_TOO_LARGE", failure.reason());
    }
    assertEquals(2, catalog.calls);
  }

  @Test
  void otherFailuresAreToldAtOnceWithAllThatCameWithThem() throws IOException {
    catalog.failures.add(refusal(Code.NOT_FOUND, "TABLE_NOT_FOUND"));
    catalog.failures.add(refusal(Code.INVALID_ARGUMENT, "BAD_TABLE_NAME", Duration.ofSeconds(1)));
    try (Served served = Served.of(catalog)) {
      Table table = served.database().table("docs");
      LemanException missing = assertThrows(LemanException.class, table::describe);
      assertEquals(Status.Code.NOT_FOUND, missing.code());
      assertTrue(missing.is(ErrorReason.TABLE_NOT_FOUND));
      assertEquals("no", missing.getMessage());
      assertEquals("docs", missing.metadata().get("table"));
      LemanException wrong = assertThrows(LemanException.class, table::describe);
      assertEquals(
          List.of(new LemanException.FieldViolation("table.table", "is no name")), wrong.fields());
    }
    assertEquals(2, catalog.calls);
  }

  @Test
  void aRemoteFunctionIsToldAsItIsStored() throws IOException {
    FunctionDefinition asked =
        FunctionDefinition.remote("grpc://a:1", "grpc+tls://b:2")
            .name("embed")
            .servedAs("embed_text")
            .inputs("body")
            .batchSize(64)
            .build();
    try (Served served = Served.of(catalog)) {
      UdfDefinition stored = served.database().registerRemote(asked);
      assertEquals("3f9c21ab04de", stored.getVersion());
      assertEquals(UdfDefinition.Kind.KIND_REMOTE, stored.getKind());
      assertEquals("embed_text", stored.getRemoteFunction().getFunction());
      assertEquals(
          List.of("grpc://a:1", "grpc+tls://b:2"),
          List.copyOf(stored.getRemoteFunction().getAddressesList()));
      assertEquals(List.of("body"), List.copyOf(stored.getInputColumnsList()));
      assertEquals(64, stored.getBatchSize());
    }
  }

  @Test
  void aMutationWhoseReplyWasLostIsMadeAgainUnderItsRequestId() throws IOException {
    tables.failures.add(AWAY);
    try (Served served = Served.of(tables)) {
      Table table = served.database().table("docs");
      assertEquals(2, table.delete("n > 1"));
      assertEquals(2, table.delete("n > 1"));
    }
    assertEquals(3, tables.ids.size());
    assertEquals(tables.ids.get(0), tables.ids.get(1));
    assertEquals(2, new HashSet<>(tables.ids).size());
  }

  @Test
  void aMutationWithoutRequestIdIsMadeOnce() throws IOException {
    tables.failures.add(AWAY);
    try (Served served = Served.of(tables)) {
      var stub = TableServiceGrpc.newBlockingStub(served.client.channel());
      StatusRuntimeException failure =
          assertThrows(
              StatusRuntimeException.class,
              () -> stub.deleteRows(DeleteRowsRequest.getDefaultInstance()));
      assertEquals("DRAINING", LemanException.from(failure).reason());
    }
    assertEquals(1, tables.ids.size());
  }

  @Test
  void aTokenThatIsRefusedIsRenewedOnce() throws IOException {
    catalog.failures.add(refusal(Code.UNAUTHENTICATED, "TOKEN_EXPIRED"));
    Queue<String> given = new ArrayDeque<>(List.of("first", "second", "third"));
    try (Served served = new Served(Tokens.from(given::remove), Duration.ofSeconds(20), catalog)) {
      Table table = served.database().table("docs");
      table.describe();
      table.describe();
      assertEquals(List.of("Bearer first", "Bearer second", "Bearer second"), served.tokens);
      catalog.failures.addAll(
          List.of(
              refusal(Code.UNAUTHENTICATED, "TOKEN_INVALID"),
              refusal(Code.UNAUTHENTICATED, "TOKEN_INVALID")));
      LemanException failure = assertThrows(LemanException.class, table::describe);
      assertTrue(failure.is(ErrorReason.TOKEN_INVALID));
      assertEquals(5, served.tokens.size());
    }
  }

  @Test
  void aTokenThatStaysIsNotSentAgain() throws IOException {
    catalog.failures.add(refusal(Code.UNAUTHENTICATED, "TOKEN_INVALID"));
    try (Served served = new Served(Tokens.fixed("one"), Duration.ofSeconds(20), catalog)) {
      assertThrows(LemanException.class, () -> served.database().table("docs").describe());
    }
    assertEquals(1, catalog.calls);
  }

  @Test
  void whatASourceOfTokensThrowsIsTheCause() throws IOException {
    IOException gone = new IOException("the issuer is away");
    TokenSource source =
        () -> {
          throw gone;
        };
    try (Served served = new Served(Tokens.from(source), Duration.ofSeconds(20), catalog)) {
      LemanException failure =
          assertThrows(LemanException.class, () -> served.database().table("docs").describe());
      assertEquals(Status.Code.UNAUTHENTICATED, failure.code());
      assertEquals(gone, failure.getCause());
    }
  }

  @Test
  void cancellingAFutureEndsTheCall() throws Exception {
    catalog.silent = true;
    try (Served served = Served.of(catalog)) {
      CompletableFuture<DescribeTableResponse> future =
          served.database().table("docs").describeAsync();
      assertTrue(catalog.came.await(10, TimeUnit.SECONDS));
      future.cancel(true);
      assertTrue(future.isCancelled());
      assertTrue(catalog.cancelled.await(10, TimeUnit.SECONDS));
    }
  }

  /** The first attempt has failed and ignores the cancel, and the second one has not started. */
  @Test
  void aCallThatIsCancelledBetweenTwoAttemptsIsNotMadeAgain() throws Exception {
    Unheard attempts = new Unheard();
    try (Served served = Served.behind(attempts, catalog)) {
      RepeatingCall<DescribeTableRequest, DescribeTableResponse> call =
          new RepeatingCall<>(
              served.connections,
              CatalogServiceGrpc.getDescribeTableMethod(),
              CallOptions.DEFAULT.withExecutor(Runnable::run));
      CompletableFuture<Status> told = new CompletableFuture<>();
      call.start(
          new ClientCall.Listener<>() {
            @Override
            public void onClose(Status status, Metadata trailers) {
              told.complete(status);
            }
          },
          new Metadata());
      call.sendMessage(DescribeTableRequest.getDefaultInstance());
      call.halfClose();
      ClientCall.Listener<?> attempt = attempts.begun.poll(10, TimeUnit.SECONDS);
      call.cancel("no longer wanted", null);
      attempt.onClose(Status.UNAVAILABLE, new Metadata());
      assertEquals(Status.Code.CANCELLED, told.get(10, TimeUnit.SECONDS).getCode());
      assertTrue(attempts.begun.isEmpty());
    }
  }

  @Test
  void anInterruptedThreadEndsItsCallAndStaysInterrupted() throws Exception {
    catalog.silent = true;
    try (Served served = Served.of(catalog)) {
      Thread.currentThread().interrupt();
      LemanException failure =
          assertThrows(LemanException.class, () -> served.database().table("docs").describe());
      assertTrue(Thread.interrupted());
      assertEquals(Status.Code.CANCELLED, failure.code());
    }
  }

  @Test
  void listsAreAskedForPageByPage() throws IOException {
    try (Served served = Served.of(catalog)) {
      Pages<String> pages = served.database().tables();
      assertEquals(List.of("a", "b", "c"), pages.toList());
      assertEquals(2, catalog.pages.size());
      assertEquals(List.of("a"), pages.limit(1).toList());
      assertEquals(1, catalog.pages.get(2).getPageSize());
      assertEquals("a", pages.iterator().next());
      assertEquals(4, catalog.pages.size());
    }
  }

  @Test
  void callsOfAClosedClientSayThatItIsClosed() throws IOException {
    Served served = Served.of(catalog);
    served.close();
    Table table = served.database().table("docs");
    assertEquals(
        LemanException.CLOSED, assertThrows(LemanException.class, table::describe).reason());
    ExecutionException failed =
        assertThrows(ExecutionException.class, () -> table.appendAsync(() -> null).get());
    assertEquals(LemanException.CLOSED, LemanException.from(failed).reason());
  }

  /** Starts calls that receive nothing, and end when the test wants. */
  private static final class Unheard implements ClientInterceptor {
    final BlockingQueue<ClientCall.Listener<?>> begun = new LinkedBlockingQueue<>();

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(
        MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      return new UnheardCall<>() {
        @Override
        public void start(Listener<A> listener, Metadata headers) {
          begun.add(listener);
        }
      };
    }
  }

  /** Describes each table, after the failures that are left. */
  private static final class Catalog extends CatalogServiceGrpc.CatalogServiceImplBase {
    final Queue<StatusRuntimeException> failures = new ArrayDeque<>();
    final List<ListTablesRequest> pages = new ArrayList<>();
    final CountDownLatch came = new CountDownLatch(1);
    final CountDownLatch cancelled = new CountDownLatch(1);
    volatile boolean silent;
    volatile int calls;

    @Override
    public void describeTable(
        DescribeTableRequest request, StreamObserver<DescribeTableResponse> answer) {
      calls++;
      if (silent) {
        io.grpc.Context.current().addListener(context -> cancelled.countDown(), Runnable::run);
        came.countDown();
        return;
      }
      answer(answer, failures.poll(), DescribeTableResponse.newBuilder().setVersion(7).build());
    }

    @Override
    public void registerUdf(
        RegisterUdfRequest request, StreamObserver<RegisterUdfResponse> answer) {
      UdfDefinition stored = request.getDefinition().toBuilder().setVersion("3f9c21ab04de").build();
      answer(answer, null, RegisterUdfResponse.newBuilder().setDefinition(stored).build());
    }

    @Override
    public void listTables(ListTablesRequest request, StreamObserver<ListTablesResponse> answer) {
      pages.add(request);
      ListTablesResponse page =
          request.getPageToken().isEmpty()
              ? ListTablesResponse.newBuilder()
                  .addTables("a")
                  .addTables("b")
                  .setNextPageToken("2")
                  .build()
              : ListTablesResponse.newBuilder().addTables("c").build();
      answer(answer, null, page);
    }
  }

  /** Deletes two rows, and loses replies. */
  private static final class Tables extends TableServiceGrpc.TableServiceImplBase {
    final Queue<StatusRuntimeException> failures = new ArrayDeque<>();
    final List<String> ids = new ArrayList<>();

    @Override
    public void deleteRows(DeleteRowsRequest request, StreamObserver<DeleteRowsResponse> answer) {
      ids.add(request.getRequestId());
      answer(answer, failures.poll(), DeleteRowsResponse.newBuilder().setRowsDeleted(2).build());
    }
  }

  static <A> void answer(StreamObserver<A> answer, StatusRuntimeException failure, A message) {
    if (failure != null) {
      answer.onError(failure);
      return;
    }
    answer.onNext(message);
    answer.onCompleted();
  }
}
