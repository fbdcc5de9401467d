package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.Job;

/** What can be told of a {@link Job} that was looked at. */
public final class Jobs {
  private Jobs() {}

  /** Whether it has ended, however it did. */
  public static boolean hasEnded(Job job) {
    Arguments.given("job", job);
    return JobWatch.hasEnded(job.getState());
  }

  /** Why a job failed, or that it was cancelled; null of any other one. */
  public static JobException error(Job job) {
    Arguments.given("job", job);
    return switch (job.getState()) {
      case STATE_FAILED, STATE_CANCELLED -> JobException.of(job);
      default -> null;
    };
  }
}
