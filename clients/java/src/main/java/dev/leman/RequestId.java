package dev.leman;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.UUID;

/** The request id by which the services recognize a retried change. */
final class RequestId {
  /** The client generates an id for each change. */
  static final RequestId MADE_UP = new RequestId(null);

  private final String given;

  private RequestId(String given) {
    this.given = given;
  }

  static RequestId of(String given) {
    if (given == null || given.isEmpty()) {
      throw Addresses.refused(
          "id", "the request id is empty: leave withRequestId out to have one made up", null);
    }
    return new RequestId(given);
  }

  /** Return whether the caller set it, and so may repeat the change. */
  boolean isGiven() {
    return given != null;
  }

  /** Return the id of a change. */
  String next() {
    return given == null ? UUID.randomUUID().toString() : given;
  }

  /** Return the id of a further change of one call. Other callers cannot produce it by accident. */
  RequestId derived(String what) {
    if (given == null) {
      return this;
    }
    String said = given + "-" + what;
    try {
      byte[] digest =
          MessageDigest.getInstance("SHA-256").digest(said.getBytes(StandardCharsets.UTF_8));
      return new RequestId(said + "-" + HexFormat.of().formatHex(digest, 0, 6));
    } catch (NoSuchAlgorithmException impossible) { // every JVM has SHA-256
      throw new IllegalStateException(impossible);
    }
  }
}
