package dev.leman.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.leman.LemanClient;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Works with services that restart again and again, by the public surface of the client: see
 * "Restarts" in tests/conformance/cases/README.md. It is given the path of a file, and told on its
 * standard input what to do.
 */
public final class Soak {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

  private final SoakRounds rounds;
  private Thread working = new Thread();
  private volatile boolean stopping;

  private Soak(SoakRounds rounds) {
    this.rounds = rounds;
  }

  /** Work until standard input ends. */
  public static void main(String[] arguments) throws Exception {
    JsonNode told = JSON.readTree(Path.of(arguments[0]).toFile());
    List<LemanClient> clients = new ArrayList<>();
    for (JsonNode endpoint : told.get("endpoints")) {
      String token = told.get("token").asText();
      clients.add(LemanClient.builder(endpoint.asText()).token(token).connect());
    }
    try (SoakRounds rounds =
        new SoakRounds(clients, told.get("database").asText(), told.get("rows").asInt())) {
      Soak soak = new Soak(rounds);
      BufferedReader lines =
          new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        soak.obey(line);
      }
    }
    clients.forEach(LemanClient::close);
    say(Map.of("closed", Map.of("threads", threads().get("pooled"))));
  }

  private static void say(Map<String, ?> what) throws IOException {
    OUT.println(JSON.writeValueAsString(what));
  }

  private void obey(String line) throws Exception {
    switch (line) {
      case "work" -> {
        stopping = false;
        working = new Thread(this::work, "soak");
        working.start();
      }
      case "rest" -> {
        stopping = true;
        working.join();
        rounds.call();
        say(Map.of("resting", threads()));
      }
      default -> throw new IllegalArgumentException("it is not known what " + line + " means");
    }
  }

  /** Do round after round, until a line says to stop. */
  private void work() {
    try {
      do {
        say(Map.of("round", rounds.next()));
      } while (!stopping);
    } catch (Throwable failure) { // whatever it is, the harness is to are notified
      failure.printStackTrace();
      OUT.println(JSON.createObjectNode().put("failed", failure.toString()));
      Runtime.getRuntime().halt(1);
    }
  }

  /**
   * How many threads there are: in the pools of the clients, which let them go after a while, and
   * others.
   */
  private static Map<String, Integer> threads() {
    List<String> names = Thread.getAllStackTraces().keySet().stream().map(Thread::getName).toList();
    int pooled = (int) names.stream().filter(name -> name.startsWith("leman-client-")).count();
    return Map.of("pooled", pooled, "threads", names.size() - pooled);
  }
}
