package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.ListJobErrorsRequest;

/** Selects failed rows of a job, and what is returned about them; by default everything. */
public final class ErrorQuery {
  private static final ErrorQuery ALL = new ErrorQuery(ListJobErrorsRequest.getDefaultInstance());

  private final ListJobErrorsRequest told;

  private ErrorQuery(ListJobErrorsRequest told) {
    this.told = told;
  }

  /** All columns, with all stored details. */
  public static ErrorQuery all() {
    return ALL;
  }

  /** Only this column. */
  public ErrorQuery column(String name) {
    Arguments.given("name", name);
    return new ErrorQuery(told.toBuilder().setColumn(name).build());
  }

  /**
   * Return only the addresses of failed rows. So the list is complete even if the function's error
   * policy stores no errors.
   */
  public ErrorQuery placesOnly() {
    return new ErrorQuery(told.toBuilder().setPlacesOnly(true).build());
  }

  ListJobErrorsRequest.Builder told() {
    return told.toBuilder();
  }
}
