package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.Job;

/** Questions about a {@link Job} that the services returned. */
public final class Jobs {
  private Jobs() {}

  /** Return whether the job has ended, in whatever state. */
  public static boolean hasEnded(Job job) {
    Arguments.given("job", job);
    return JobWatch.hasEnded(job.getState());
  }

  /** Return the error of a job that failed or was cancelled; null for any other job. */
  public static JobException error(Job job) {
    Arguments.given("job", job);
    return switch (job.getState()) {
      case STATE_FAILED, STATE_CANCELLED -> JobException.of(job);
      default -> null;
    };
  }
}
