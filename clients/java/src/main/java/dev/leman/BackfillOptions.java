package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.BackfillSpec;
import dev.leman.v1.CheckpointBounds;
import dev.leman.v1.CreateJobRequest;
import java.util.Map;

/** Options of a backfill; each one sets the field of {@link BackfillSpec} with its meaning. */
public final class BackfillOptions {
  private static final BackfillOptions USUAL =
      new BackfillOptions(BackfillSpec.getDefaultInstance(), CreateJobRequest.getDefaultInstance());

  private final BackfillSpec told;
  private final CreateJobRequest job;

  private BackfillOptions(BackfillSpec told, CreateJobRequest job) {
    this.told = told;
    this.job = job;
  }

  /** The defaults. */
  public static BackfillOptions usual() {
    return USUAL;
  }

  /** Compute with a registered function, {@code name@version}, instead of the column's own. */
  public BackfillOptions function(String nameAndVersion) {
    Arguments.given("nameAndVersion", nameAndVersion);
    return with(told.toBuilder().setUdf(ColumnFunction.ref(nameAndVersion)));
  }

  /** Compute only rows for which this SQL condition is true. */
  public BackfillOptions where(String condition) {
    Arguments.given("condition", condition);
    return with(told.toBuilder().setWhere(condition));
  }

  /** Read the inputs in this version of the table. */
  public BackfillOptions readVersion(long version) {
    return with(told.toBuilder().setReadVersion(version));
  }

  /** Read the inputs in the version that has this tag. */
  public BackfillOptions readTag(String tag) {
    Arguments.given("tag", tag);
    return with(told.toBuilder().setReadTag(tag));
  }

  /** The largest number of workers. */
  public BackfillOptions concurrency(int workers) {
    return with(told.toBuilder().setConcurrency(workers));
  }

  /** Rows between checkpoints. */
  public BackfillOptions checkpoint(CheckpointBounds bounds) {
    Arguments.given("bounds", bounds);
    return with(told.toBuilder().setCheckpoint(bounds));
  }

  /** Rows in a unit of work. */
  public BackfillOptions taskSize(long rows) {
    return with(told.toBuilder().setTaskSize(rows));
  }

  /** Fragments that are committed together. */
  public BackfillOptions commitGranularity(int fragments) {
    return with(told.toBuilder().setCommitGranularity(fragments));
  }

  /** Rows between commits, which then also commit parts of fragments; not with a filter. */
  public BackfillOptions commitRows(long rows) {
    return with(told.toBuilder().setCommitRows(rows));
  }

  /** The largest number of fragments to compute. */
  public BackfillOptions fragments(int most) {
    return with(told.toBuilder().setNumFrags(most));
  }

  /** Compute only rows that are marked as failed. */
  public BackfillOptions failedOnly(boolean only) {
    return with(told.toBuilder().setFailedOnly(only));
  }

  /** Update the indexes on the column afterwards. */
  public BackfillOptions optimizeIndices(boolean optimize) {
    return with(told.toBuilder().setOptimizeIndices(optimize));
  }

  /** Labels by which the job can be found; see {@link JobQuery#labels}. */
  public BackfillOptions labels(Map<String, String> given) {
    Arguments.given("given", given);
    return of(job.toBuilder().clearLabels().putAllLabels(given));
  }

  /** The priority, from −100 to 100. A waiting job starts before jobs of lower priority. */
  public BackfillOptions priority(int given) {
    return of(job.toBuilder().setPriority(given));
  }

  /**
   * Environment variables for the functions of the job, such as an API key. The values are secrets:
   * the services delete them when the job ends, and show only the names.
   */
  public BackfillOptions env(Map<String, String> variables) {
    Arguments.given("variables", variables);
    return of(job.toBuilder().clearEnv().putAllEnv(variables));
  }

  BackfillSpec.Builder told() {
    return told.toBuilder();
  }

  /** Make a request with the options that every job has. */
  CreateJobRequest.Builder job() {
    return job.toBuilder();
  }

  private BackfillOptions with(BackfillSpec.Builder changed) {
    return new BackfillOptions(changed.build(), job);
  }

  private BackfillOptions of(CreateJobRequest.Builder changed) {
    return new BackfillOptions(told, changed.build());
  }
}
