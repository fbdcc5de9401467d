package dev.leman;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.UUID;

/** The id by which the services know a change that is asked for again. */
final class RequestId {
  /** No caller gave one: each change has one of its own. */
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

  /** Whether the caller gave it, and may ask for the change again. */
  boolean isGiven() {
    return given != null;
  }

  /** That of a change. */
  String next() {
    return given == null ? UUID.randomUUID().toString() : given;
  }

  /** That of a further change of one call; no other caller gives that by chance. */
  RequestId derived(String what) {
    if (given == null) {
      return this;
    }
    String said = given + "-" + what;
    try {
      byte[] digest =
          MessageDigest.getInstance("SHA-256").digest(said.getBytes(StandardCharsets.UTF_8));
      return new RequestId(said + "-" + HexFormat.of().formatHex(digest, 0, 6));
    } catch (NoSuchAlgorithmException impossible) { // every Java has it
      throw new IllegalStateException(impossible);
    }
  }
}
