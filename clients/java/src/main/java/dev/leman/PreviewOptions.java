package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.PreviewFunctionRequest;
import java.time.Duration;
import java.util.Map;

/**
 * Options of a preview; each one sets the field of {@link PreviewFunctionRequest} with its meaning.
 */
public final class PreviewOptions {
  private static final PreviewOptions USUAL =
      new PreviewOptions(PreviewFunctionRequest.getDefaultInstance());

  private final PreviewFunctionRequest told;

  private PreviewOptions(PreviewFunctionRequest told) {
    this.told = told;
  }

  /** The defaults: the first five rows. */
  public static PreviewOptions usual() {
    return USUAL;
  }

  /** The number of rows, 1 to 100. */
  public PreviewOptions rows(int most) {
    return new PreviewOptions(told.toBuilder().setRows(most).build());
  }

  /** Use only rows for which this SQL condition is true. */
  public PreviewOptions where(String condition) {
    Arguments.given("condition", condition);
    return new PreviewOptions(told.toBuilder().setWhere(condition).build());
  }

  /** Use rows of this version of the table. */
  public PreviewOptions readVersion(long version) {
    return new PreviewOptions(told.toBuilder().setReadVersion(version).build());
  }

  /** Use rows of the version that has this tag. */
  public PreviewOptions readTag(String tag) {
    Arguments.given("tag", tag);
    return new PreviewOptions(told.toBuilder().setReadTag(tag).build());
  }

  /** The number of workers for which a backfill is estimated. */
  public PreviewOptions concurrency(int workers) {
    return new PreviewOptions(told.toBuilder().setConcurrency(workers).build());
  }

  /** The time limit of the whole preview. */
  public PreviewOptions timeout(Duration most) {
    Arguments.given("most", most);
    var time =
        com.google.protobuf.Duration.newBuilder()
            .setSeconds(most.getSeconds())
            .setNanos(most.getNano());
    return new PreviewOptions(told.toBuilder().setTimeout(time).build());
  }

  /** Environment variables of the function for this preview: see {@link BackfillOptions#env}. */
  public PreviewOptions env(Map<String, String> variables) {
    Arguments.given("variables", variables);
    return new PreviewOptions(told.toBuilder().clearEnv().putAllEnv(variables).build());
  }

  PreviewFunctionRequest.Builder told() {
    return told.toBuilder();
  }
}
