package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leman.v1.AppendRowsRequest;
import dev.leman.v1.AppendRowsResponse;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.DescribeTableRequest;
import dev.leman.v1.DescribeTableResponse;
import dev.leman.v1.TableServiceGrpc;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Slow token sources: calls wait for them no longer than their deadlines. */
@Timeout(60)
class TokensTest {
  private static final Duration LONG = Duration.ofSeconds(20);

  private final CountDownLatch free = new CountDownLatch(1);
  private final AtomicInteger asked = new AtomicInteger();
  private final TokenSource slow =
      () -> {
        asked.incrementAndGet();
        free.await();
        return "late";
      };

  @Test
  void connectingEndsWithTheFirstContact() throws IOException {
    try (ServerSocket there = new ServerSocket(0)) {
      String at = "localhost:" + there.getLocalPort();
      for (String[] endpoints : List.of(new String[] {at}, new String[] {at, "localhost:1"})) {
        LemanClient.Builder builder =
            LemanClient.builder(endpoints).tokens(slow).firstContact(Duration.ofMillis(300));
        long begun = System.nanoTime();
        assertNoToken(assertThrows(LemanException.class, builder::connect));
        assertTrue(System.nanoTime() - begun < LONG.toNanos() / 2, "it was waited for");
      }
    }
  }

  @Test
  void aCallEndsByItsDeadline() throws Exception {
    try (Served served = new Served(Tokens.from(slow), LONG, new Catalog())) {
      StatusRuntimeException late =
          assertThrows(
              StatusRuntimeException.class,
              () ->
                  CatalogServiceGrpc.newBlockingStub(served.client.channel())
                      .withDeadlineAfter(200, TimeUnit.MILLISECONDS)
                      .describeTable(DescribeTableRequest.getDefaultInstance()));
      assertEquals(Status.Code.DEADLINE_EXCEEDED, late.getStatus().getCode());
      assertNoToken(LemanException.from(late));
      assertNoToken(sent(served));
      LemanException job =
          assertThrows(
              LemanException.class, () -> served.database().job("j").await(Duration.ofMillis(200)));
      assertEquals(Status.Code.DEADLINE_EXCEEDED, job.code());
      assertEquals(1, asked.get());
    }
  }

  /** Return the error of an upload with a stub. */
  private static LemanException sent(Served served) throws InterruptedException {
    CompletableFuture<Void> end = new CompletableFuture<>();
    TableServiceGrpc.newStub(served.client.channel())
        .withDeadlineAfter(200, TimeUnit.MILLISECONDS)
        .appendRows(
            new StreamObserver<AppendRowsResponse>() {
              @Override
              public void onNext(AppendRowsResponse answer) {}

              @Override
              public void onError(Throwable failure) {
                end.completeExceptionally(failure);
              }

              @Override
              public void onCompleted() {
                end.complete(null);
              }
            })
        .onNext(AppendRowsRequest.getDefaultInstance());
    return LemanException.from(assertThrows(ExecutionException.class, end::get));
  }

  @Test
  void callsThatMayWaitGoOnWithWhatItGives() throws Exception {
    try (Served served = new Served(Tokens.from(slow), LONG, new Catalog())) {
      Table table = served.database().table("docs");
      CompletableFuture<DescribeTableResponse> first = table.describeAsync();
      CompletableFuture<DescribeTableResponse> second = table.describeAsync();
      assertFalse(first.isDone(), "its caller did not wait");
      free.countDown();
      assertEquals(7, first.get().getVersion());
      assertEquals(7, second.get().getVersion());
      assertEquals(1, asked.get());
      assertEquals(List.of("Bearer late", "Bearer late"), served.tokens);
    }
  }

  @Test
  void aCloseEndsWhoeverWaitsForIt() throws Exception {
    CountDownLatch interrupted = new CountDownLatch(1);
    CountDownLatch begun = new CountDownLatch(1);
    TokenSource source =
        () -> {
          begun.countDown();
          try {
            free.await();
          } catch (InterruptedException closed) {
            interrupted.countDown();
          }
          return "late";
        };
    Served served = new Served(Tokens.from(source), LONG, new Catalog());
    Table table = served.database().table("docs");
    CompletableFuture<DescribeTableResponse> call = table.describeAsync();
    CompletableFuture<AppendRowsResponse> upload =
        table.appendAsync(() -> new RootReader(VectorSchemaRoot.of(), null));
    assertTrue(begun.await(10, TimeUnit.SECONDS));
    served.close();
    assertTrue(interrupted.await(10, TimeUnit.SECONDS));
    for (CompletableFuture<?> waiting : List.of(call, upload)) {
      ExecutionException ended =
          assertThrows(ExecutionException.class, () -> waiting.get(10, TimeUnit.SECONDS));
      assertEquals(LemanException.CLOSED, LemanException.from(ended).reason());
    }
  }

  @Test
  void anErrorOfTheSourceEndsTheCall() throws Exception {
    TokenSource source =
        () -> {
          throw new AssertionError("broken");
        };
    try (Served served = new Served(Tokens.from(source), LONG, new Catalog())) {
      LemanException failed =
          assertThrows(LemanException.class, () -> served.database().table("docs").describe());
      assertEquals(Status.Code.UNAUTHENTICATED, failed.code());
      assertEquals("the source of tokens failed: broken", failed.getMessage());
    }
  }

  @Test
  void aBuilderConnectsAgainAfterAClose() throws Exception {
    free.countDown();
    LemanClient.Builder builder =
        LemanClient.builder("localhost:1").tokens(slow).firstContact(Duration.ofMillis(100));
    for (int time = 1; time <= 2; time++) {
      LemanException away = assertThrows(LemanException.class, builder::connect);
      assertEquals(Status.Code.UNAVAILABLE, away.code(), away.getMessage());
      assertEquals(time, asked.get());
    }
  }

  private static void assertNoToken(LemanException failure) {
    assertEquals(Status.Code.DEADLINE_EXCEEDED, failure.code());
    assertTrue(failure.getMessage().contains("source of tokens"), failure.getMessage());
  }

  /** Describes tables. */
  private static final class Catalog extends CatalogServiceGrpc.CatalogServiceImplBase {
    @Override
    public void describeTable(
        DescribeTableRequest request, StreamObserver<DescribeTableResponse> answer) {
      CallsTest.answer(answer, null, DescribeTableResponse.newBuilder().setVersion(7).build());
    }
  }
}
