package dev.leman.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import dev.leman.Database;
import dev.leman.LemanClient;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/** The clients of one case, by the name of the connection. */
final class Clients implements AutoCloseable {
  private final Map<String, LemanClient> open = new HashMap<>();

  /** The client for a step, connected when its name comes first. */
  LemanClient client(JsonNode step) {
    JsonNode connection = step.get("connection");
    String name = connection.get("name").asText();
    LemanClient known = open.get(name);
    if (known == null) {
      known = connect(connection);
      open.put(name, known);
    }
    return known;
  }

  /** What a step is about. */
  Database database(JsonNode step) {
    return client(step).database(step.get("database").asText());
  }

  private static LemanClient connect(JsonNode told) {
    LemanClient.Builder builder = LemanClient.builder(told.get("endpoint").asText());
    if (told.hasNonNull("tokens")) {
      Iterator<JsonNode> tokens = told.get("tokens").iterator();
      String[] last = {""};
      builder.tokens(() -> last[0] = tokens.hasNext() ? tokens.next().asText() : last[0]);
    } else if (told.hasNonNull("token")) {
      builder.token(told.get("token").asText());
    }
    if (told.hasNonNull("plaintext")) {
      builder.plaintext(told.get("plaintext").asBoolean());
    }
    if (told.hasNonNull("ca")) {
      builder.tls(Path.of(told.get("ca").asText()));
    }
    if (told.hasNonNull("cert")) {
      builder.certificate(Path.of(told.get("cert").asText()), Path.of(told.get("key").asText()));
    }
    return builder.connect();
  }

  @Override
  public void close() {
    open.values().forEach(LemanClient::close);
  }
}
