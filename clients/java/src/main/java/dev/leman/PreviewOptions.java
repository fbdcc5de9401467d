package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.PreviewFunctionRequest;
import java.time.Duration;
import java.util.Map;

/**
 * What a preview may be told; each value has the meaning of its field in {@link
 * PreviewFunctionRequest}.
 */
public final class PreviewOptions {
  private static final PreviewOptions USUAL =
      new PreviewOptions(PreviewFunctionRequest.getDefaultInstance());

  private final PreviewFunctionRequest told;

  private PreviewOptions(PreviewFunctionRequest told) {
    this.told = told;
  }

  /** Nothing is given: the first five rows. */
  public static PreviewOptions usual() {
    return USUAL;
  }

  /** So many rows, 1 to 100. */
  public PreviewOptions rows(int most) {
    return new PreviewOptions(told.toBuilder().setRows(most).build());
  }

  /** Only rows for which this SQL condition is true. */
  public PreviewOptions where(String condition) {
    Arguments.given("condition", condition);
    return new PreviewOptions(told.toBuilder().setWhere(condition).build());
  }

  /** Rows of this version of the table. */
  public PreviewOptions readVersion(long version) {
    return new PreviewOptions(told.toBuilder().setReadVersion(version).build());
  }

  /** Rows of the version that has this tag. */
  public PreviewOptions readTag(String tag) {
    Arguments.given("tag", tag);
    return new PreviewOptions(told.toBuilder().setReadTag(tag).build());
  }

  /** Workers of the backfill that is projected. */
  public PreviewOptions concurrency(int workers) {
    return new PreviewOptions(told.toBuilder().setConcurrency(workers).build());
  }

  /** How long all of it may take. */
  public PreviewOptions timeout(Duration most) {
    Arguments.given("most", most);
    var time =
        com.google.protobuf.Duration.newBuilder()
            .setSeconds(most.getSeconds())
            .setNanos(most.getNano());
    return new PreviewOptions(told.toBuilder().setTimeout(time).build());
  }

  /** Environment variables of the function, for this preview: see {@link BackfillOptions#env}. */
  public PreviewOptions env(Map<String, String> variables) {
    Arguments.given("variables", variables);
    return new PreviewOptions(told.toBuilder().clearEnv().putAllEnv(variables).build());
  }

  PreviewFunctionRequest.Builder told() {
    return told.toBuilder();
  }
}
