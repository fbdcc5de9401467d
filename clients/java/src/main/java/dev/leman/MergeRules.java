package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.MergeRowsHeader;
import dev.leman.v1.TableRef;

/**
 * What a merge does with rows that match, and with those that do not. For example, {@code
 * MergeRules.on("id").updateMatched().insertNotMatched()} updates existing rows and adds the
 * others.
 */
public final class MergeRules {
  private final MergeRowsHeader told;

  private MergeRules(MergeRowsHeader told) {
    this.told = told;
  }

  /** Match rows that have the same values in these columns. */
  public static MergeRules on(String... columns) {
    Arguments.given("columns", columns);
    MergeRowsHeader.Builder header = MergeRowsHeader.newBuilder();
    for (String column : columns) {
      header.addOn(column);
    }
    return new MergeRules(header.build());
  }

  /** Update rows of the table that match a sent row with its values. */
  public MergeRules updateMatched() {
    return updateMatched("");
  }

  /**
   * Update only matching rows for which this SQL condition over {@code target.n} and {@code
   * source.n} is true.
   */
  public MergeRules updateMatched(String condition) {
    Arguments.given("condition", condition);
    return with(told.toBuilder().setUpdateMatched(true).setUpdateWhere(condition));
  }

  /** Add the sent rows that match no row of the table. */
  public MergeRules insertNotMatched() {
    return with(told.toBuilder().setInsertNotMatched(true));
  }

  /** Delete rows of the table that match no sent row. */
  public MergeRules deleteNotMatchedBySource() {
    return deleteNotMatchedBySource("");
  }

  /** Delete only such rows for which this SQL condition over the table's columns is true. */
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
