package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.CreateJobRequest;
import dev.leman.v1.RefreshSpec;
import java.util.Map;

/** Options of a refresh; each one sets the field of {@link RefreshSpec} with its meaning. */
public final class RefreshOptions {
  private static final RefreshOptions USUAL =
      new RefreshOptions(RefreshSpec.getDefaultInstance(), CreateJobRequest.getDefaultInstance());

  private final RefreshSpec told;
  private final CreateJobRequest job;

  private RefreshOptions(RefreshSpec told, CreateJobRequest job) {
    this.told = told;
    this.job = job;
  }

  /** The defaults. */
  public static RefreshOptions usual() {
    return USUAL;
  }

  /** Refresh the view to this version of its source. */
  public RefreshOptions sourceVersion(long version) {
    return with(told.toBuilder().setSrcVersion(version));
  }

  /** Whether the refresh may, or must, recompute the whole view. */
  public RefreshOptions policy(RefreshSpec.Policy policy) {
    Arguments.given("policy", policy);
    return with(told.toBuilder().setPolicy(policy));
  }

  /** The largest number of workers. */
  public RefreshOptions concurrency(int workers) {
    return with(told.toBuilder().setConcurrency(workers));
  }

  /** The largest number of rows in a fragment. */
  public RefreshOptions maxRowsPerFragment(long rows) {
    return with(told.toBuilder().setMaxRowsPerFragment(rows));
  }

  /** Update the view's indexes afterwards. */
  public RefreshOptions optimizeIndices(boolean optimize) {
    return with(told.toBuilder().setOptimizeIndices(optimize));
  }

  /** Labels by which the job can be found. */
  public RefreshOptions labels(Map<String, String> given) {
    Arguments.given("given", given);
    return of(job.toBuilder().clearLabels().putAllLabels(given));
  }

  /** The priority, from −100 to 100. A waiting job starts before jobs of lower priority. */
  public RefreshOptions priority(int given) {
    return of(job.toBuilder().setPriority(given));
  }

  /**
   * Environment variables for the functions of the job, such as an API key. The values are secrets:
   * the services delete them when the job ends, and show only the names.
   */
  public RefreshOptions env(Map<String, String> variables) {
    Arguments.given("variables", variables);
    return of(job.toBuilder().clearEnv().putAllEnv(variables));
  }

  RefreshSpec.Builder told() {
    return told.toBuilder();
  }

  /** Make a request with the options that every job has. */
  CreateJobRequest.Builder job() {
    return job.toBuilder();
  }

  private RefreshOptions with(RefreshSpec.Builder changed) {
    return new RefreshOptions(changed.build(), job);
  }

  private RefreshOptions of(CreateJobRequest.Builder changed) {
    return new RefreshOptions(told, changed.build());
  }
}
