package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.ReadRowsRequest;
import java.util.List;

/** Options of reading; by default all rows and columns of the latest version. */
public final class ReadOptions {
  private static final ReadOptions ALL = new ReadOptions(ReadRowsRequest.getDefaultInstance());

  private final ReadRowsRequest told;

  private ReadOptions(ReadRowsRequest told) {
    this.told = told;
  }

  /** All rows and columns. */
  public static ReadOptions all() {
    return ALL;
  }

  /** Read only these columns, in this order. */
  public ReadOptions columns(String... names) {
    Arguments.given("names", names);
    return new ReadOptions(told.toBuilder().clearColumns().addAllColumns(List.of(names)).build());
  }

  /** Read only rows for which this SQL condition is true. */
  public ReadOptions where(String condition) {
    Arguments.given("condition", condition);
    return new ReadOptions(told.toBuilder().setWhere(condition).build());
  }

  /** Read at most this number of rows. */
  public ReadOptions limit(long rows) {
    return new ReadOptions(told.toBuilder().setLimit(rows).build());
  }

  /** Skip this number of rows. */
  public ReadOptions offset(long rows) {
    return new ReadOptions(told.toBuilder().setOffset(rows).build());
  }

  /** Read this version of the table. */
  public ReadOptions version(long version) {
    return new ReadOptions(told.toBuilder().setVersion(version).build());
  }

  /** Read the version that has this tag. */
  public ReadOptions tag(String tag) {
    Arguments.given("tag", tag);
    return new ReadOptions(told.toBuilder().setTag(tag).build());
  }

  /** The largest number of rows in a batch. */
  public ReadOptions batchSize(int rows) {
    return new ReadOptions(told.toBuilder().setBatchSize(rows).build());
  }

  /** Add a column {@code _rowid}, and a column {@code _rowaddr}. */
  public ReadOptions rowNumbers(boolean rowId, boolean rowAddress) {
    return new ReadOptions(
        told.toBuilder().setWithRowId(rowId).setWithRowAddress(rowAddress).build());
  }

  ReadRowsRequest told() {
    return told;
  }
}
