package dev.leman.functions;

import dev.leman.internal.Arguments;

/**
 * An error of a batch with a type, which rules of an error policy can match. The type of any other
 * exception is the name of its class, without the package.
 */
public final class FunctionException extends Exception {
  private static final long serialVersionUID = 1L;
  private final String type;

  /**
   * An error.
   *
   * @param type the name for error policies, such as {@code ValueError}
   * @param message what was wrong; may be null
   */
  public FunctionException(String type, String message) {
    super(message);
    Arguments.given("type", type);
    this.type = type;
  }

  /** The name for error policies. */
  public String type() {
    return type;
  }

  static String typeOf(Throwable cause) {
    return cause instanceof FunctionException own ? own.type : cause.getClass().getSimpleName();
  }
}
