package dev.leman;

/**
 * Where tokens come from. It is asked before the first call, and again whenever what it gave was
 * refused; the call is then made once more. It may be asked by any thread, and may take its time.
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
