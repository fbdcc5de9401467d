package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.CreateJobRequest;
import dev.leman.v1.RefreshSpec;
import java.util.Map;

/** What a refresh may be told; each value has the meaning of its field in {@link RefreshSpec}. */
public final class RefreshOptions {
  private static final RefreshOptions USUAL =
      new RefreshOptions(RefreshSpec.getDefaultInstance(), CreateJobRequest.getDefaultInstance());

  private final RefreshSpec told;
  private final CreateJobRequest job;

  private RefreshOptions(RefreshSpec told, CreateJobRequest job) {
    this.told = told;
    this.job = job;
  }

  /** Nothing is given. */
  public static RefreshOptions usual() {
    return USUAL;
  }

  /** Bring the view to this version of its source. */
  public RefreshOptions sourceVersion(long version) {
    return with(told.toBuilder().setSrcVersion(version));
  }

  /** Whether the whole view may, or has to, be recomputed. */
  public RefreshOptions policy(RefreshSpec.Policy policy) {
    Arguments.given("policy", policy);
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
    Arguments.given("given", given);
    return of(job.toBuilder().clearLabels().putAllLabels(given));
  }

  /** From −100 to 100: of jobs that wait for their turn, those with a higher one go first. */
  public RefreshOptions priority(int given) {
    return of(job.toBuilder().setPriority(given));
  }

  /**
   * Environment variables of the job's functions, such as an API key. The values are secrets: the
   * services forget them when the job ends, and tell no one more than the names.
   */
  public RefreshOptions env(Map<String, String> variables) {
    Arguments.given("variables", variables);
    return of(job.toBuilder().clearEnv().putAllEnv(variables));
  }

  RefreshSpec.Builder told() {
    return told.toBuilder();
  }

  /** A request with what is said of the job beside what it does. */
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
