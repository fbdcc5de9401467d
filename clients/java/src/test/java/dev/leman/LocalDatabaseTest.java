package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.rpc.Code;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.GetInfoRequest;
import dev.leman.v1.GetInfoResponse;
import dev.leman.v1.InfoServiceGrpc;
import dev.leman.v1.ListTablesRequest;
import dev.leman.v1.ListTablesResponse;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class LocalDatabaseTest {
  private static final String LAKE = "/data/lake";

  /** The tokens of calls, without those of the first contact. */
  private final List<String> shown = new CopyOnWriteArrayList<>();

  @Test
  void itSaysWhereItsServicesAreAndFindsThemAgain(@TempDir Path folder) throws Exception {
    Server first = ranFor(folder, "first", LAKE);
    try (LocalDatabase local = LocalDatabase.connect(folder)) {
      assertEquals(LAKE, local.database().name());
      assertEquals(List.of("docs"), local.database().tables().stream().toList());
      assertEquals(List.of("Bearer first"), shown);

      first.shutdownNow().awaitTermination();
      Files.delete(file(folder));
      shown.clear();
      CompletableFuture<List<String>> asked =
          CompletableFuture.supplyAsync(() -> local.database().tables().stream().toList());
      Server second = ranFor(folder, "second", LAKE);
      assertEquals(List.of("docs"), asked.get());
      assertEquals(List.of("Bearer first", "Bearer second"), shown);
      second.shutdownNow().awaitTermination();
    }
  }

  @Test
  void servicesOfManyDatabasesAreToldByTheirAddresses(@TempDir Path folder) throws Exception {
    Server shared = ranFor(folder, "token", "");
    try (LocalDatabase local = LocalDatabase.connect(folder)) {
      assertEquals(LAKE, local.database().name());
    }
    String told = Files.readString(file(folder));
    Files.writeString(
        file(folder),
        told.replaceFirst("\"executor\": \"[^\"]*\"", "\"executor\": \"127.0.0.1:1\""));
    assertAway(folder, "others answer");
    shared.shutdownNow().awaitTermination();
  }

  @Test
  void whatNobodyServesIsToldWithWhatToDo(@TempDir Path folder) throws Exception {
    assertAway(folder, "leman up " + folder);
    Server others = ranFor(folder, "token", "/data/another");
    assertAway(folder, "others answer");
    others.shutdownNow().awaitTermination();
    assertAway(folder, "leman up " + folder);
    Files.writeString(file(folder), "{}");
    assertAway(folder, "does not say");
    Files.writeString(file(folder), "{");
    assertAway(folder, "leman up " + folder);
  }

  private static void assertAway(Path folder, String told) {
    LemanException away =
        assertThrows(
            LemanException.class, () -> LocalDatabase.connect(folder, Duration.ofMillis(200)));
    assertEquals(Status.Code.UNAVAILABLE, away.code());
    assertTrue(away.getMessage().contains(told), away.getMessage());
  }

  private static Path file(Path folder) {
    return folder.resolve("_leman").resolve("service.json");
  }

  /** Start services of a folder, which write their addresses there and accept only the token. */
  private Server ranFor(Path folder, String token, String database) throws IOException {
    CompletableFuture<Integer> port = new CompletableFuture<>();
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(
                new InfoServiceGrpc.InfoServiceImplBase() {
                  @Override
                  public void getInfo(
                      GetInfoRequest request, StreamObserver<GetInfoResponse> answer) {
                    String at = "127.0.0.1:" + port.join();
                    GetInfoResponse told =
                        GetInfoResponse.newBuilder()
                            .setDatabase(database)
                            .setPlannerAddress(at)
                            .setExecutorAddress(at)
                            .setCommitCoordinatorAddress(at)
                            .build();
                    CallsTest.answer(answer, null, told);
                  }
                })
            .addService(
                new CatalogServiceGrpc.CatalogServiceImplBase() {
                  @Override
                  public void listTables(
                      ListTablesRequest request, StreamObserver<ListTablesResponse> answer) {
                    boolean known = shown.get(shown.size() - 1).equals("Bearer " + token);
                    CallsTest.answer(
                        answer,
                        known ? null : Served.refusal(Code.UNAUTHENTICATED, "TOKEN_INVALID"),
                        ListTablesResponse.newBuilder().addTables("docs").build());
                  }
                })
            .intercept(new Seen())
            .build()
            .start();
    port.complete(server.getPort());
    Files.createDirectories(folder.resolve("_leman"));
    String at = "127.0.0.1:" + server.getPort();
    Files.writeString(
        file(folder),
        """
        {"token": "%s", "planner": "%s", "executor": "%s", "commit_coordinator": "%s",
         "database": "%s", "pid": 1}
        """
            .formatted(token, at, at, at, LAKE));
    return server;
  }

  private final class Seen implements ServerInterceptor {
    @Override
    public <Q, A> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, A> call, Metadata headers, ServerCallHandler<Q, A> next) {
      if (call.getMethodDescriptor().getServiceName().endsWith("CatalogService")) {
        shown.add(headers.get(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER)));
      }
      return next.startCall(call, headers);
    }
  }
}
