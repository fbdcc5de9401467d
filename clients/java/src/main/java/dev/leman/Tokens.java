package dev.leman;

import io.grpc.Status;

/**
 * The token that calls carry now. Safe for use by several threads: what a source said last counts
 * for all of them.
 */
final class Tokens {
  private final TokenSource source;
  private final boolean renewable;
  private String last;

  private Tokens(TokenSource source, boolean renewable, String last) {
    this.source = source;
    this.renewable = renewable;
    this.last = last;
  }

  static Tokens fixed(String token) {
    return new Tokens(() -> token, false, checked(token));
  }

  static Tokens from(TokenSource source) {
    return new Tokens(source, true, null);
  }

  /** Whether there is a token, or a source of them. */
  boolean given() {
    return renewable || !last.isEmpty();
  }

  /** The token; empty: none. */
  synchronized String current() {
    if (last == null) {
      last = ask();
    }
    return last;
  }

  /**
   * Ask the source again, unless another call did so since {@code refused} was sent; false: there
   * is no source.
   */
  synchronized boolean renew(String refused) {
    if (!renewable) {
      return false;
    }
    if (refused.equals(last)) {
      last = ask();
    }
    return true;
  }

  private String ask() {
    String found;
    try {
      found = source.token();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw failed(interrupted);
    } catch (Exception failure) {
      throw failed(failure);
    }
    if (found == null) {
      throw new LemanException(
          Status.Code.UNAUTHENTICATED, "", "the source of tokens gave null", null);
    }
    return checked(found);
  }

  /** The token, which no message shows; refused where no call can carry it. */
  private static String checked(String token) {
    if (token == null || !token.chars().allMatch(letter -> letter > ' ' && letter < 0x7f)) {
      throw Addresses.refused(
          "the token is null, or has a blank, a line end or a letter beyond ASCII: no token of"
              + " services has; give it without, such as by strip()",
          null);
    }
    return token;
  }

  private static LemanException failed(Exception failure) {
    return new LemanException(
        Status.Code.UNAUTHENTICATED,
        "",
        "the source of tokens failed: " + failure.getMessage(),
        failure);
  }
}
