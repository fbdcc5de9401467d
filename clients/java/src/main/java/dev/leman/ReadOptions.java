package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.ReadRowsRequest;
import java.util.List;

/** Which rows and columns are read; all of the latest version, unless something is given. */
public final class ReadOptions {
  private static final ReadOptions ALL = new ReadOptions(ReadRowsRequest.getDefaultInstance());

  private final ReadRowsRequest told;

  private ReadOptions(ReadRowsRequest told) {
    this.told = told;
  }

  /** Everything. */
  public static ReadOptions all() {
    return ALL;
  }

  /** Only these columns, in this order. */
  public ReadOptions columns(String... names) {
    Arguments.given("names", names);
    return new ReadOptions(told.toBuilder().clearColumns().addAllColumns(List.of(names)).build());
  }

  /** Only rows for which this SQL condition is true. */
  public ReadOptions where(String condition) {
    Arguments.given("condition", condition);
    return new ReadOptions(told.toBuilder().setWhere(condition).build());
  }

  /** At most so many rows. */
  public ReadOptions limit(long rows) {
    return new ReadOptions(told.toBuilder().setLimit(rows).build());
  }

  /** Leave out so many rows. */
  public ReadOptions offset(long rows) {
    return new ReadOptions(told.toBuilder().setOffset(rows).build());
  }

  /** This version of the table. */
  public ReadOptions version(long version) {
    return new ReadOptions(told.toBuilder().setVersion(version).build());
  }

  /** The version that has this tag. */
  public ReadOptions tag(String tag) {
    Arguments.given("tag", tag);
    return new ReadOptions(told.toBuilder().setTag(tag).build());
  }

  /** At most so many rows in a batch. */
  public ReadOptions batchSize(int rows) {
    return new ReadOptions(told.toBuilder().setBatchSize(rows).build());
  }

  /** A column {@code _rowid} too, or {@code _rowaddr}. */
  public ReadOptions rowNumbers(boolean rowId, boolean rowAddress) {
    return new ReadOptions(
        told.toBuilder().setWithRowId(rowId).setWithRowAddress(rowAddress).build());
  }

  ReadRowsRequest told() {
    return told;
  }
}
