package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.ListJobErrorsRequest;

/**
 * Which failed rows of a job are meant, and what is told of them; all, unless it says otherwise.
 */
public final class ErrorQuery {
  private static final ErrorQuery ALL = new ErrorQuery(ListJobErrorsRequest.getDefaultInstance());

  private final ListJobErrorsRequest told;

  private ErrorQuery(ListJobErrorsRequest told) {
    this.told = told;
  }

  /** Of all columns, and all that is stored of them. */
  public static ErrorQuery all() {
    return ALL;
  }

  /** Only of this column. */
  public ErrorQuery column(String name) {
    Arguments.given("name", name);
    return new ErrorQuery(told.toBuilder().setColumn(name).build());
  }

  /**
   * Only where the rows are, and that of all of them: also of a function whose error policy stores
   * no errors.
   */
  public ErrorQuery placesOnly() {
    return new ErrorQuery(told.toBuilder().setPlacesOnly(true).build());
  }

  ListJobErrorsRequest.Builder told() {
    return told.toBuilder();
  }
}
