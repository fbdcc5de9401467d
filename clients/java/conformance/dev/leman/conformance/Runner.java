package dev.leman.conformance;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.leman.JobException;
import dev.leman.LemanException;
import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;

/** Does the cases of a run; see tests/conformance/cases/README.md. */
public final class Runner {
  static final ObjectMapper JSON = new ObjectMapper();

  private final HttpClient http =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
  private final URI next;

  private Runner(URI next) {
    this.next = next;
  }

  /** Do all cases of the file that is named. */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    JsonNode run = JSON.readTree(Path.of(arguments[0]).toFile());
    Runner runner = new Runner(URI.create(run.get("control").asText() + "/next"));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (JsonNode id : run.get("cases")) {
      out.println(runner.doCase(id.asText()));
    }
  }

  private JsonNode doCase(String id) throws IOException, InterruptedException {
    JsonNode answer;
    try (Clients clients = new Clients()) {
      answer = ask(object("case", id));
      while (answer.has("step")) {
        ObjectNode done = object("case", id);
        done.set("result", result(answer.get("step"), clients));
        answer = ask(done);
      }
    }
    ObjectNode line = object("case", id);
    line.set("outcome", answer.get("outcome"));
    line.put("detail", answer.path("detail").asText(""));
    return line;
  }

  private JsonNode ask(JsonNode told) throws IOException, InterruptedException {
    HttpRequest request =
        HttpRequest.newBuilder(next)
            .timeout(Duration.ofMinutes(5))
            .header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(told)))
            .build();
    return JSON.readTree(http.send(request, HttpResponse.BodyHandlers.ofByteArray()).body());
  }

  private static ObjectNode result(JsonNode step, Clients clients) {
    ObjectNode result = JSON.createObjectNode();
    try {
      result.set("value", Operations.perform(step, clients));
    } catch (LemanException failure) {
      result.set("error", told(failure));
    } catch (UnsupportedTypeException missing) {
      result.put("skip", missing.getMessage());
    } catch (Exception | Error failure) {
      StringWriter trace = new StringWriter();
      failure.printStackTrace(new PrintWriter(trace));
      result.put("crash", trace.toString());
    }
    return result;
  }

  private static JsonNode told(LemanException failure) {
    ObjectNode error = object("code", failure.code().name());
    error.put("reason", failure.reason());
    error.put("message", failure.getMessage());
    error.set("metadata", JSON.valueToTree(failure.metadata()));
    ArrayNode fields = error.putArray("fields");
    failure.fields().forEach(field -> fields.add(JSON.valueToTree(field)));
    failure.retryDelay().ifPresent(delay -> error.put("retry_delay", delay.toNanos() / 1e9));
    if (failure instanceof JobException job) {
      error.put("job", job.jobId());
    }
    return error;
  }

  static ObjectNode object(String name, String value) {
    return JSON.createObjectNode().put(name, value);
  }
}
