package dev.leman;

import com.google.protobuf.ListValue;
import com.google.protobuf.Struct;
import com.google.protobuf.util.JsonFormat;
import io.grpc.Status;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/** The published retry policy ({@code service_config.json}). */
final class RetryPolicy {
  static final String RESOURCE = "service_config.json";

  /** The rule for one method. */
  record Rule(int maxAttempts, Set<Status.Code> codes) {}

  private final Map<String, Rule> rules;

  private RetryPolicy(Map<String, Rule> rules) {
    this.rules = Map.copyOf(rules);
  }

  /**
   * Return the rule for a method by its full name, such as {@code leman.v1.JobService/GetJob}; null
   * if there is none.
   */
  Rule rule(String method) {
    return rules.get(method);
  }

  /** The policy with which this client was built. */
  static RetryPolicy published() {
    try (InputStream file = RetryPolicy.class.getResourceAsStream(RESOURCE);
        Reader text = new InputStreamReader(file, StandardCharsets.UTF_8)) {
      Struct.Builder found = Struct.newBuilder();
      JsonFormat.parser().merge(text, found);
      return of(found.build());
    } catch (IOException broken) {
      throw new IllegalStateException("the client's own " + RESOURCE + " cannot be read", broken);
    }
  }

  private static RetryPolicy of(Struct config) {
    Map<String, Rule> rules = new HashMap<>();
    for (var item : list(config, "methodConfig").getValuesList()) {
      Struct method = item.getStructValue();
      Struct policy = method.getFieldsOrThrow("retryPolicy").getStructValue();
      Set<Status.Code> codes = EnumSet.noneOf(Status.Code.class);
      for (var code : list(policy, "retryableStatusCodes").getValuesList()) {
        codes.add(Status.Code.valueOf(code.getStringValue()));
      }
      Rule rule = new Rule((int) policy.getFieldsOrThrow("maxAttempts").getNumberValue(), codes);
      for (var name : list(method, "name").getValuesList()) {
        Map<String, com.google.protobuf.Value> parts = name.getStructValue().getFieldsMap();
        rules.put(
            parts.get("service").getStringValue() + "/" + parts.get("method").getStringValue(),
            rule);
      }
    }
    return new RetryPolicy(rules);
  }

  private static ListValue list(Struct struct, String name) {
    return struct.getFieldsOrThrow(name).getListValue();
  }
}
