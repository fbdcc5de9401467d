package dev.leman;

/**
 * Where tokens come from. It is asked before the first call, and again whenever what it gave was
 * refused; the call is then made again. It is asked by threads of the client, one at a time, and
 * may take its time: calls that may not wait for it so long end by their deadlines. When the client
 * is closed, its thread is interrupted.
 */
@FunctionalInterface
public interface TokenSource {
  /**
   * Give a token that holds now.
   *
   * @throws Exception where there is none: the call that needed it fails with it as the cause
   */
  String token() throws Exception;
}
