package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leman.v1.GetInfoRequest;
import dev.leman.v1.GetInfoResponse;
import dev.leman.v1.InfoServiceGrpc;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Connecting to real sockets, and what is left after that. */
@Timeout(60)
class ConnectingTest {
  @Test
  void aClosedClientLeavesNoThread() throws Exception {
    Server server = served();
    Set<Thread> before = Thread.getAllStackTraces().keySet();
    LemanClient client = LemanClient.builder("localhost:" + server.getPort()).connect();
    assertEquals("planner", client.info().getService());
    assertTrue(threads(before).contains("leman-client"), () -> "there are " + threads(before));
    client.close();
    assertFalse(threads(before).contains("leman-client"), () -> "there are " + threads(before));
    server.shutdownNow().awaitTermination();
    long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    while (!threads(before).isEmpty() && System.nanoTime() < end) {
      Thread.onSpinWait();
    }
    assertEquals("", threads(before));
  }

  @Test
  void aThreadOfTheClientMayCloseIt() throws Exception {
    Connections connections =
        new Dialing().open(List.of("localhost:1"), Tokens.fixed(""), Duration.ofSeconds(1));
    Future<Boolean> interrupted =
        connections.pool.submit(
            () -> {
              connections.close();
              return Thread.interrupted();
            });
    assertFalse(interrupted.get());
  }

  @Test
  void whereOneEndpointIsAwayTheNextIsCalled() throws Exception {
    Server server = served();
    try (LemanClient client =
        LemanClient.builder("localhost:" + freePort(), "localhost:" + server.getPort()).connect()) {
      assertEquals("planner", client.info().getService());
    } finally {
      server.shutdownNow().awaitTermination();
    }
  }

  @Test
  void whereNothingAnswersConnectingEnds() throws IOException {
    LemanClient.Builder builder =
        LemanClient.builder("localhost:" + freePort()).firstContact(Duration.ofMillis(200));
    assertEquals(
        Status.Code.UNAVAILABLE, assertThrows(LemanException.class, builder::connect).code());
  }

  @Test
  void whatDoesNotGoTogetherIsRefused() {
    Path file = Path.of("nowhere.pem");
    for (LemanClient.Builder builder :
        new LemanClient.Builder[] {
          LemanClient.builder(),
          LemanClient.builder("localhost"),
          LemanClient.builder("localhost:1").tls(file),
          LemanClient.builder("localhost:1").certificate(file, file),
        }) {
      LemanException refused = assertThrows(LemanException.class, builder::connect);
      assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
      assertFalse(refused.getMessage().isEmpty());
    }
  }

  /** Names of threads that were not there before. */
  private static String threads(Set<Thread> before) {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> !before.contains(thread))
        .map(Thread::getName)
        .sorted()
        .collect(Collectors.joining(", "));
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0)) {
      return socket.getLocalPort();
    }
  }

  private static Server served() throws IOException {
    return Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
        .addService(
            new InfoServiceGrpc.InfoServiceImplBase() {
              @Override
              public void getInfo(GetInfoRequest request, StreamObserver<GetInfoResponse> answer) {
                CallsTest.answer(
                    answer, null, GetInfoResponse.newBuilder().setService("planner").build());
              }
            })
        .build()
        .start();
  }
}
