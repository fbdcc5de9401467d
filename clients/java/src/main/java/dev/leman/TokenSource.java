package dev.leman;

/**
 * Supplies tokens. The client calls it before the first call, and again when the services refuse
 * its token; then the client retries the call with the new token. A source runs in a thread of the
 * client, and never concurrently. It may take its time: calls wait for it until their deadlines.
 * When the client is closed, the thread is interrupted.
 */
@FunctionalInterface
public interface TokenSource {
  /**
   * Return a valid token.
   *
   * @throws Exception if there is none: the call that needed it fails with this cause
   */
  String token() throws Exception;
}
