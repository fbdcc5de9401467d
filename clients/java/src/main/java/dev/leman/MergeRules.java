package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.MergeRowsHeader;
import dev.leman.v1.TableRef;

/**
 * What is to become of rows that match, and of those that do not: {@code
 * MergeRules.on("id").updateMatched().insertNotMatched()} updates rows that are there and adds the
 * others.
 */
public final class MergeRules {
  private final MergeRowsHeader told;

  private MergeRules(MergeRowsHeader told) {
    this.told = told;
  }

  /** Rows match that have the same values in these columns. */
  public static MergeRules on(String... columns) {
    Arguments.given("columns", columns);
    MergeRowsHeader.Builder header = MergeRowsHeader.newBuilder();
    for (String column : columns) {
      header.addOn(column);
    }
    return new MergeRules(header.build());
  }

  /** Rows of the table that match get the values that are sent. */
  public MergeRules updateMatched() {
    return updateMatched("");
  }

  /**
   * Those of them get these values for which this SQL is true, which names columns {@code target.n}
   * and {@code source.n}.
   */
  public MergeRules updateMatched(String condition) {
    Arguments.given("condition", condition);
    return with(told.toBuilder().setUpdateMatched(true).setUpdateWhere(condition));
  }

  /** Rows that are sent and match none of the table are added. */
  public MergeRules insertNotMatched() {
    return with(told.toBuilder().setInsertNotMatched(true));
  }

  /** Rows of the table that match none that is sent are deleted. */
  public MergeRules deleteNotMatchedBySource() {
    return deleteNotMatchedBySource("");
  }

  /** Those of them are deleted for which this SQL over the table's columns is true. */
  public MergeRules deleteNotMatchedBySource(String condition) {
    Arguments.given("condition", condition);
    return with(told.toBuilder().setDeleteNotMatchedBySource(true).setDeleteWhere(condition));
  }

  MergeRowsHeader header(TableRef table, String requestId) {
    return told.toBuilder().setTable(table).setRequestId(requestId).build();
  }

  private static MergeRules with(MergeRowsHeader.Builder header) {
    return new MergeRules(header.build());
  }
}
