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
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Connects to real sockets, and checks what remains afterwards. */
@Timeout(60)
class ConnectingTest {
  /** Accepts connections and never responds. */
  private ServerSocket silent;

  @BeforeEach
  void listen() throws IOException {
    silent = new ServerSocket(0);
  }

  @AfterEach
  void close() throws IOException {
    silent.close();
  }

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
  void anEndpointThatHangsIsNotWaitedFor() throws Exception {
    Server first = served();
    Server last = served();
    ServerSocket another = new ServerSocket(0);
    String hung = "localhost:" + silent.getLocalPort();
    String then = "localhost:" + another.getLocalPort();
    long begun = System.nanoTime();
    try (LemanClient client = LemanClient.builder(hung, at(first), then, at(last)).connect()) {
      first.shutdownNow().awaitTermination();
      assertEquals("planner", client.info().getService());
    } finally {
      last.shutdownNow().awaitTermination();
      another.close();
    }
    assertTrue(System.nanoTime() - begun < Duration.ofSeconds(9).toNanos(), "it was waited for");
  }

  @Test
  void whereAllHangConnectingEnds() {
    String hung = "localhost:" + silent.getLocalPort();
    for (LemanClient.Builder builder :
        List.of(LemanClient.builder(hung), LemanClient.builder(hung, "localhost:1"))) {
      long begun = System.nanoTime();
      LemanException away =
          assertThrows(LemanException.class, builder.firstContact(Duration.ofMillis(200))::connect);
      assertEquals(Status.Code.UNAVAILABLE, away.code());
      assertTrue(away.getMessage().startsWith("nothing answers at " + hung), away.getMessage());
      assertTrue(System.nanoTime() - begun < Duration.ofSeconds(30).toNanos(), "it took longer");
    }
  }

  @Test
  void whereOthersAnswerConnectingSaysSo() throws Exception {
    Server foreign = Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).build();
    foreign.start();
    try (ServerSocket redis = new ServerSocket(0);
        ServerSocket web = new ServerSocket(0)) {
      answering(redis, "-ERR unknown command 'PRI'\r\n");
      answering(web, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
      for (int port : List.of(redis.getLocalPort(), web.getLocalPort(), foreign.getPort())) {
        String at = "localhost:" + port;
        assertNoServices("nothing of Leman answers at " + at + ":", LemanClient.builder(at));
        assertNoServices("nothing answers at " + at, LemanClient.builder(at, "localhost:1"));
      }
      Server server = served();
      String at = "localhost:" + redis.getLocalPort();
      LemanClient.builder(at, "localhost:" + foreign.getPort(), at(server)).connect().close();
      server.shutdownNow().awaitTermination();
    } finally {
      foreign.shutdownNow().awaitTermination();
    }
  }

  private static void assertNoServices(String told, LemanClient.Builder builder) {
    LemanException away =
        assertThrows(LemanException.class, builder.firstContact(Duration.ofSeconds(2))::connect);
    assertEquals(Status.Code.UNAVAILABLE, away.code());
    assertTrue(away.getMessage().startsWith(told), away.getMessage());
  }

  /** Send a text to everyone who connects and sends something, until the socket is closed. */
  private static void answering(ServerSocket socket, String told) {
    Thread thread =
        new Thread(
            () -> {
              while (true) {
                try (Socket one = socket.accept()) {
                  one.getInputStream().read();
                  one.getOutputStream().write(told.getBytes(StandardCharsets.US_ASCII));
                  one.getInputStream().readAllBytes();
                } catch (IOException closed) {
                  if (socket.isClosed()) {
                    return;
                  }
                }
              }
            });
    thread.setDaemon(true);
    thread.start();
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
    LemanClient.Builder without = LemanClient.builder("localhost:1").certificate(file, file);
    assertRefused("a certificate goes with its key", without);
    assertRefused("cannot be read", LemanClient.builder("localhost:1").tls(file));
  }

  @Test
  void whatIsNoAddressIsToldWithWhatToDo() {
    String noPort = "has no possible port: one is from 1 to 65535";
    String noAddress = "is not host:port, such as leman.internal:7443";
    Map<String, List<String>> wrong =
        Map.of(
            noPort,
            List.of("a:0", "localhost:99999"),
            noAddress,
            List.of("", " ", "localhost", "a:", ":1", "::1:7443", "a b:1"),
            "name a:1 (for TLS with tls())",
            List.of("http://a:1", "https://a:1/"),
            "name them one by one, as builder(\"a:1\", \"b:2\")",
            List.of("a:1,b:2", "a:1, b:2"));
    wrong.forEach(
        (told, endpoints) ->
            endpoints.forEach(endpoint -> assertRefused(told, LemanClient.builder(endpoint))));
    assertRefused("there is no endpoint", LemanClient.builder());
    assertRefused("there is no endpoint", LemanClient.builder((String[]) null));
    assertRefused("an endpoint is null", LemanClient.builder("a:1", null));
    assertRefused("cannot be called", LemanClient.builder("localhost:1", "a_b:1"));
    assertEquals(
        List.of("a:1", "[::1]:7443"), Addresses.checked("a:1", " [::1]:7443", "a:1", "a:1 "));
    assertEquals(List.of("a:1", "b:2"), Addresses.checked("dns:///a:1", "b:2", " dns:///a:1"));
  }

  @Test
  void whatIsNoRequestIdIsRefused() {
    for (String id : new String[] {null, ""}) {
      LemanException refused = assertThrows(LemanException.class, () -> RequestId.of(id));
      assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
      assertEquals("BAD_REQUEST", refused.reason());
      assertEquals("id", refused.fields().get(0).field());
    }
  }

  private static void assertRefused(String told, LemanClient.Builder builder) {
    LemanException refused = assertThrows(LemanException.class, builder::connect);
    assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
    assertEquals("BAD_REQUEST", refused.reason());
    assertEquals(1, refused.fields().size());
    assertTrue(refused.getMessage().contains(told), refused.getMessage());
  }

  /** Return the names of threads that are new. */
  private static String threads(Set<Thread> before) {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> !before.contains(thread))
        .map(Thread::getName)
        .sorted()
        .collect(Collectors.joining(", "));
  }

  private static String at(Server server) {
    return "localhost:" + server.getPort();
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
