package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.protobuf.util.JsonFormat;
import dev.leman.v1.GetInfoRequest;
import dev.leman.v1.InfoServiceGrpc;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Where a token may be sent without TLS. */
class PlaintextTest {
  private static final Duration SECOND = Duration.ofSeconds(1);
  private static final Path VECTORS = Path.of("../../tests/conformance/vectors/addresses.json");
  private static Struct known;

  @BeforeAll
  static void read() throws IOException {
    Struct.Builder told = Struct.newBuilder();
    JsonFormat.parser().merge(Files.readString(VECTORS), told);
    known = told.build();
  }

  @Test
  void itDoesNotGoToOtherMachines() {
    TokenSource source = () -> fail("asked for a token that is not to be shown");
    assertTrue(addresses("elsewhere").size() > 5);
    for (String address : addresses("elsewhere")) {
      assertRefused(LemanClient.builder(address).token("t"));
      assertRefused(LemanClient.builder(address).tokens(source));
      assertRefused(LemanClient.builder("localhost:1", address).token("t"));
    }
  }

  @Test
  void itGoesToThisMachineAndWhereThatIsPermitted() {
    Dialing permitted = new Dialing();
    permitted.plaintext = true;
    for (String address : addresses("loopback")) {
      open(new Dialing(), address, Tokens.fixed("t")).close();
    }
    for (String address : addresses("elsewhere")) {
      open(permitted, address, Tokens.fixed("t")).close();
      open(new Dialing(), address, Tokens.fixed("")).close();
    }
  }

  @Test
  void oneThatACallBringsIsRefusedToo() {
    Metadata own = new Metadata();
    own.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer t");
    Connections connections = open(new Dialing(), "0.0.0.0:1", Tokens.fixed(""));
    try {
      var stub =
          InfoServiceGrpc.newBlockingStub(connections)
              .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(own));
      RuntimeException failed =
          assertThrows(
              RuntimeException.class, () -> stub.getInfo(GetInfoRequest.getDefaultInstance()));
      assertEquals(LemanException.PLAINTEXT_TOKEN, LemanException.from(failed).reason());
    } finally {
      connections.close();
    }
  }

  @Test
  void itCannotBePermittedBesideTls() {
    LemanClient.Builder both =
        LemanClient.builder("localhost:1").tls(Path.of("ca.pem")).plaintext(true);
    LemanException refused = assertThrows(LemanException.class, both::connect);
    assertTrue(refused.getMessage().contains("contradict"), refused.getMessage());
  }

  private static void assertRefused(LemanClient.Builder builder) {
    LemanException refused = assertThrows(LemanException.class, builder::connect);
    assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
    assertEquals(LemanException.PLAINTEXT_TOKEN, refused.reason());
    assertFalse(refused.getMessage().contains("Bearer"));
  }

  private static Connections open(Dialing dialing, String address, Tokens tokens) {
    return dialing.open(Addresses.checked(address), tokens, SECOND);
  }

  private static List<String> addresses(String name) {
    return known.getFieldsOrThrow(name).getListValue().getValuesList().stream()
        .map(Value::getStringValue)
        .toList();
  }
}
