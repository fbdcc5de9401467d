package dev.leman.functions;

import dev.leman.internal.Arguments;

/**
 * What went wrong with a batch, with a type that the rules of an error policy name. Of any other
 * exception the type is the name of its class, without the package.
 */
public final class FunctionException extends Exception {
  private static final long serialVersionUID = 1L;
  private final String type;

  /**
   * An error.
   *
   * @param type what an error policy calls it, such as {@code ValueError}
   * @param message what was wrong; null: it does not say
   */
  public FunctionException(String type, String message) {
    super(message);
    Arguments.given("type", type);
    this.type = type;
  }

  /** What an error policy calls it. */
  public String type() {
    return type;
  }

  static String typeOf(Throwable cause) {
    return cause instanceof FunctionException own ? own.type : cause.getClass().getSimpleName();
  }
}
