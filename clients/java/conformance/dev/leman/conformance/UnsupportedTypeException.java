package dev.leman.conformance;

/** Rows have a type that Arrow for Java does not know. */
final class UnsupportedTypeException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  UnsupportedTypeException(Throwable cause) {
    super("Arrow for Java does not have a type of these rows: " + cause.getMessage(), cause);
  }
}
