package dev.leman.functions;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import dev.leman.internal.TlsFiles;
import io.grpc.ChannelCredentials;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.Key;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.impl.Flight.Action;
import org.apache.arrow.flight.impl.Flight.FlightData;
import org.apache.arrow.flight.impl.Flight.Result;
import org.apache.arrow.flight.impl.FlightServiceGrpc;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class FunctionServerTest {
  private static final Action DESCRIBE =
      Action.newBuilder().setType("leman.function.v1.describe").build();

  private static ServedFunction.Builder number(String name) {
    return ServedFunction.named(name).input("n", Caller.INT64).output(Caller.INT64);
  }

  private static FunctionServer serving(ServedFunction.Compute compute) throws IOException {
    ServedFunction function = number("f").version("1").computedBy(compute);
    return FunctionServer.builder().port(0).add(function).start();
  }

  @Test
  void withoutAVersionItIsThatOfTheClassFile() throws Exception {
    ServedFunction own = number("own").description("ours").computedBy((batch, values) -> {});
    ServedFunction same = number("same").computedBy((batch, values) -> values.setNull(0));
    ServedFunction told = number("told").version("v-1.0_b").computedBy((batch, values) -> {});
    FunctionServer.Builder builder = FunctionServer.builder().port(0).add(own).add(same).add(told);
    try (FunctionServer server = builder.start();
        Caller caller = new Caller(server)) {
      List<String> described = new ArrayList<>();
      for (Result result :
          (Iterable<Result>)
              () -> FlightServiceGrpc.newBlockingStub(caller.channel).doAction(DESCRIBE)) {
        described.add(result.getBody().toStringUtf8());
      }
      assertEquals(3, described.size());
      assertTrue(described.get(0).contains("\"description\":\"ours\""));
      assertTrue(described.get(0).contains("\"version\":\"" + own.version + "\""));
      assertTrue(own.version.matches("[0-9a-f]{12}"));
      assertEquals(own.version, same.version);
      assertTrue(described.get(2).contains("v-1.0_b"));
    }
  }

  @Test
  void aBatchThatFailsIsAnsweredWithTheTypeOfItsException() throws Exception {
    ServedFunction.Compute fails =
        (batch, values) -> {
          long first = ((BigIntVector) batch.getVector(0)).get(0);
          if (first == 1) {
            throw new FunctionException("Odd", "é");
          }
          if (first == 2) {
            throw new IllegalStateException();
          }
          if (first == 3) {
            throw new AssertionError("three");
          }
        };
    try (FunctionServer server = serving(fails);
        Caller caller = new Caller(server).open("f")) {
      for (long value = 1; value < 5; value++) {
        caller.send(value, 0);
      }
      caller.send();
      caller.end();
      assertTrue(caller.failed().startsWith("{\"error\":{\"type\":\"Odd\",\"message\":\"é\","));
      assertTrue(caller.failed().contains("\"type\":\"IllegalStateException\""));
      String error = caller.failed();
      assertTrue(error.contains("\"AssertionError\"") && error.contains("FunctionServerTest"));
      assertEquals(Arrays.asList(null, null), caller.values(), "rows that are not set are NULL");
      assertEquals(List.of(), caller.values());
      assertEquals(Status.Code.OK, caller.ended());
    }
  }

  @Test
  void whatIsSetInsideOfAValueThatIsNotIsRefused() throws Exception {
    Field item = Field.nullable("a", Caller.INT64);
    Field struct = new Field("s", FieldType.nullable(new ArrowType.Struct()), List.of(item));
    Field list =
        new Field("l", FieldType.nullable(new ArrowType.FixedSizeList(2)), List.of(struct));
    ServedFunction.Compute ofStruct =
        (batch, values) -> ((StructVector) values).getChild("a", BigIntVector.class).setSafe(1, 7);
    ServedFunction.Compute ofVector =
        (batch, values) -> {
          FixedSizeListVector vectors = (FixedSizeListVector) values;
          StructVector structs = (StructVector) vectors.getDataVector();
          structs.setIndexDefined(2);
          structs.getChild("a", BigIntVector.class).setSafe(2, 7);
        };
    ServedFunction.Builder deep = ServedFunction.named("l").input("n", Caller.INT64).output(list);
    ServedFunction.Builder flat = ServedFunction.named("s").input("n", Caller.INT64).output(struct);
    FunctionServer.Builder servers = FunctionServer.builder().port(0);
    servers.add(flat.version("1").computedBy(ofStruct));
    servers.add(deep.version("1").computedBy(ofVector));
    try (FunctionServer server = servers.start()) {
      for (String name : List.of("s", "l")) {
        try (Caller caller = new Caller(server).open(name)) {
          caller.send(1, 2);
          caller.end();
          String error = caller.failed();
          assertTrue(error.contains("value 1 of \\\"value\\\" is NULL, and its "), error);
          assertTrue(error.contains(name.equals("s") ? "setIndexDefined(1)" : "setNotNull(1)"));
        }
      }
    }
  }

  @Test
  void whoGoesAwayInterruptsTheFunction() throws Exception {
    CountDownLatch began = new CountDownLatch(1);
    CountDownLatch interrupted = new CountDownLatch(1);
    ServedFunction.Compute waits =
        (batch, values) -> {
          began.countDown();
          try {
            new CountDownLatch(1).await();
          } catch (InterruptedException gone) {
            interrupted.countDown();
            throw gone;
          }
        };
    try (FunctionServer server = serving(waits);
        Caller caller = new Caller(server).open("f");
        Caller idle = new Caller(server).open("f")) {
      caller.send(1);
      began.await();
      caller.cancel();
      idle.cancel();
      assertTrue(interrupted.await(20, TimeUnit.SECONDS));
    }
  }

  @Test
  void aStopAnswersTheBatchAndSendsClientsAway() throws Exception {
    CountDownLatch began = new CountDownLatch(1);
    CountDownLatch goOn = new CountDownLatch(1);
    ServedFunction.Compute waits =
        (batch, values) -> {
          began.countDown();
          goOn.await();
          ((BigIntVector) values).set(0, 7);
        };
    try (FunctionServer server = serving(waits);
        Caller busy = new Caller(server).open("f");
        Caller idle = new Caller(server).open("f")) {
      busy.send(1);
      began.await();
      CompletableFuture<Void> closed = CompletableFuture.runAsync(server::close);
      assertEquals(Status.Code.UNAVAILABLE, idle.ended());
      goOn.countDown();
      assertEquals(List.of(7L), busy.values());
      assertEquals(Status.Code.UNAVAILABLE, busy.ended());
      closed.get(20, TimeUnit.SECONDS);
    }
  }

  @Test
  void aStopWaitsNoLongerThanItsGrace() throws Exception {
    CountDownLatch began = new CountDownLatch(1);
    ServedFunction function =
        number("f")
            .version("1")
            .computedBy(
                (batch, values) -> {
                  began.countDown();
                  new CountDownLatch(1).await();
                });
    FunctionServer.Builder builder =
        FunctionServer.builder().port(0).add(function).grace(Duration.ofMillis(1));
    try (FunctionServer server = builder.start();
        Caller caller = new Caller(server).open("f")) {
      caller.send(1);
      began.await();
      CompletableFuture.runAsync(server::close).get(20, TimeUnit.SECONDS);
      server.awaitTermination();
    }
  }

  @Test
  void whatIsNoStreamOfBatchesIsRefused() throws Exception {
    FlightData named = FlightData.newBuilder().setFlightDescriptor(Caller.command("f")).build();
    FlightData garbage =
        named.toBuilder().setDataHeader(ByteString.copyFromUtf8("no flatbuffer")).build();
    try (FunctionServer server = serving((batch, values) -> {})) {
      for (List<FlightData> messages :
          List.of(
              List.<FlightData>of(),
              List.of(named),
              List.of(garbage),
              List.of(FlightData.getDefaultInstance()))) {
        try (Caller caller = new Caller(server).open()) {
          messages.forEach(caller::send);
          caller.end();
          assertEquals(Status.Code.INVALID_ARGUMENT, caller.ended(), messages.toString());
        }
      }
    }
  }

  @Test
  void faultsOfTheProgramAreToldAtOnce() {
    Field encoded =
        new Field(
            "x",
            new FieldType(true, new ArrowType.Utf8(), new DictionaryEncoding(1, false, null)),
            null);
    ServedFunction.Builder bare = ServedFunction.named("f").output(Caller.INT64);
    for (ServedFunction.Builder wrong :
        List.of(
            bare,
            number(""),
            number("f").version("é"),
            number("f").output(encoded),
            ServedFunction.named("f").input("n", Caller.INT64))) {
      assertThrows(IllegalArgumentException.class, () -> wrong.computedBy((batch, values) -> {}));
    }
    ServedFunction function = number("f").computedBy((batch, values) -> {});
    FunctionServer.Builder server = FunctionServer.builder().add(function);
    assertThrows(IllegalArgumentException.class, () -> server.add(function));
    assertThrows(IllegalArgumentException.class, () -> server.token(""));
    assertThrows(
        IllegalArgumentException.class, () -> server.clientAuthority(Path.of("ca")).start());
  }

  @Test
  void callersMayHaveToShowACertificate(@TempDir Path folder) throws Exception {
    Path cert = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    sign(cert, key);
    FunctionServer.Builder builder =
        FunctionServer.builder().port(0).tls(cert, key).clientAuthority(cert);
    TlsChannelCredentials.Builder trusting =
        TlsChannelCredentials.newBuilder().trustManager(cert.toFile());
    try (FunctionServer server = builder.start();
        Caller without = new Caller(server, trusting.build());
        Caller with =
            new Caller(server, trusting.keyManager(cert.toFile(), key.toFile()).build())) {
      assertTrue(!FlightServiceGrpc.newBlockingStub(with.channel).doAction(DESCRIBE).hasNext());
      StatusRuntimeException refused =
          assertThrows(
              StatusRuntimeException.class,
              () -> FlightServiceGrpc.newBlockingStub(without.channel).doAction(DESCRIBE).next());
      assertEquals(Status.Code.UNAVAILABLE, refused.getStatus().getCode());
    }
  }

  @Test
  void certificatesMayBeRenewedInPlace(@TempDir Path folder) throws Exception {
    Path cert = folder.resolve("cert.pem");
    Path key = folder.resolve("key.pem");
    sign(cert, key);
    TlsFiles files = new TlsFiles(cert, cert, key);
    ChannelCredentials shown =
        TlsChannelCredentials.newBuilder()
            .trustManager(files.trust())
            .keyManager(files.keys())
            .build();
    try (FunctionServer server =
        FunctionServer.builder().port(0).tls(cert, key).clientAuthority(cert).start()) {
      assertTrue(answers(server, shown));
      ChannelCredentials old =
          TlsChannelCredentials.newBuilder()
              .trustManager(cert.toFile())
              .keyManager(cert.toFile(), key.toFile())
              .build();
      String first = Files.readString(cert);

      Path newer = folder.resolve("newer.pem");
      Path newerKey = folder.resolve("newer-key.pem");
      sign(newer, newerKey);
      Files.move(newer, cert, StandardCopyOption.REPLACE_EXISTING);
      assertTrue(answers(server, shown), "half of it is renewed");
      Files.move(newerKey, key, StandardCopyOption.REPLACE_EXISTING);

      long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
      while (answers(server, old)) {
        assertTrue(System.nanoTime() < deadline, "the certificate of before is shown and believed");
        Thread.onSpinWait();
      }
      while (!answers(server, shown)) { // each side rereads its files at its own time
        assertTrue(System.nanoTime() < deadline, "the new certificate is not believed");
        Thread.onSpinWait();
      }
      assertNotEquals(first, Files.readString(cert));
    }
  }

  private static boolean answers(FunctionServer server, ChannelCredentials shown) throws Exception {
    try (Caller caller = new Caller(server, shown)) {
      return !FlightServiceGrpc.newBlockingStub(caller.channel).doAction(DESCRIBE).hasNext();
    } catch (StatusRuntimeException refused) {
      assertEquals(Status.Code.UNAVAILABLE, refused.getStatus().getCode());
      return false;
    }
  }

  /** Write a self-signed certificate and its key. */
  private static void sign(Path cert, Path key) throws Exception {
    Path store = cert.resolveSibling(UUID.randomUUID() + ".p12");
    String command =
        "keytool -genkeypair -keyalg EC -alias own -dname CN=own -ext san=ip:127.0.0.1"
            + " -storetype PKCS12 -storepass secret -keystore ";
    List<String> words = new ArrayList<>(List.of(command.strip().split(" ")));
    words.set(0, Path.of(System.getProperty("java.home"), "bin", "keytool").toString());
    words.add(store.toString());
    assertEquals(0, new ProcessBuilder(words).redirectErrorStream(true).start().waitFor());
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream content = Files.newInputStream(store)) {
      keys.load(content, "secret".toCharArray());
    }
    Key secret = keys.getKey("own", "secret".toCharArray());
    pem(key, "PRIVATE KEY", secret.getEncoded());
    pem(cert, "CERTIFICATE", keys.getCertificate("own").getEncoded());
  }

  private static void pem(Path file, String kind, byte[] content) throws IOException {
    String text = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
    Files.writeString(
        file, "-----BEGIN " + kind + "-----\n" + text + "\n-----END " + kind + "-----\n");
  }
}
