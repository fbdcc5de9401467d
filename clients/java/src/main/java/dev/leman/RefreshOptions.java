package dev.leman;

import dev.leman.v1.RefreshSpec;
import java.util.Map;

/** What a refresh may be told; each value has the meaning of its field in {@link RefreshSpec}. */
public final class RefreshOptions {
  private static final RefreshOptions USUAL =
      new RefreshOptions(RefreshSpec.getDefaultInstance(), Map.of(), 0);

  private final RefreshSpec told;
  private final Map<String, String> labels;
  private final int priority;

  private RefreshOptions(RefreshSpec told, Map<String, String> labels, int priority) {
    this.told = told;
    this.labels = labels;
    this.priority = priority;
  }

  /** Nothing is given. */
  public static RefreshOptions usual() {
    return USUAL;
  }

  /** Bring the view to this version of its source. */
  public RefreshOptions sourceVersion(long version) {
    return with(told.toBuilder().setSrcVersion(version));
  }

  /** Whether the whole view may, or has to, be computed anew. */
  public RefreshOptions policy(RefreshSpec.Policy policy) {
    return with(told.toBuilder().setPolicy(policy));
  }

  /** At most so many workers. */
  public RefreshOptions concurrency(int workers) {
    return with(told.toBuilder().setConcurrency(workers));
  }

  /** At most so many rows in a fragment. */
  public RefreshOptions maxRowsPerFragment(long rows) {
    return with(told.toBuilder().setMaxRowsPerFragment(rows));
  }

  /** Bring indexes of the view up to date. */
  public RefreshOptions optimizeIndices(boolean optimize) {
    return with(told.toBuilder().setOptimizeIndices(optimize));
  }

  /** By what the job is found. */
  public RefreshOptions labels(Map<String, String> given) {
    return new RefreshOptions(told, Map.copyOf(given), priority);
  }

  /** From −100 to 100: of jobs that wait for their turn, those with a higher one go first. */
  public RefreshOptions priority(int given) {
    return new RefreshOptions(told, labels, given);
  }

  RefreshSpec.Builder told() {
    return told.toBuilder();
  }

  Map<String, String> labels() {
    return labels;
  }

  int priority() {
    return priority;
  }

  private RefreshOptions with(RefreshSpec.Builder changed) {
    return new RefreshOptions(changed.build(), labels, priority);
  }
}
