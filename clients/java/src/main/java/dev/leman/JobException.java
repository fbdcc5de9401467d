package dev.leman;

import dev.leman.v1.Job;
import io.grpc.Status;

/**
 * A job that was waited for failed or was cancelled. What it had finished is kept: the same call
 * continues from there.
 */
public final class JobException extends LemanException {
  private static final long serialVersionUID = 1L;

  private final transient Job job;
  private final String jobId;

  private JobException(Status.Code code, String message, Details details, Job job) {
    super(code, message, details, null);
    this.job = job;
    this.jobId = job.getJobId();
  }

  /** The exception for a job as it ended. */
  static JobException of(Job job) {
    String what =
        job.hasRefresh()
            ? "the refresh of " + job.getRefresh().getView().getTable()
            : "the backfill of "
                + job.getBackfill().getTable().getTable()
                + "."
                + job.getBackfill().getColumn();
    if (job.getState() == Job.State.STATE_CANCELLED) {
      Details none = Details.of(com.google.rpc.Status.getDefaultInstance());
      return new JobException(
          Status.Code.CANCELLED,
          what + " was cancelled (" + job.getJobId() + "); what it had finished is kept",
          none,
          job);
    }
    Details details = Details.of(job.getError());
    Status.Code code = Status.fromCodeValue(job.getError().getCode()).getCode();
    return new JobException(
        code,
        what + " failed (" + job.getJobId() + "): " + job.getError().getMessage(),
        details,
        job);
  }

  /** The job as it ended; null in a copy that was serialized. */
  public Job job() {
    return job;
  }

  /** Its id. */
  public String jobId() {
    return jobId;
  }

  /** Shows whether it was cancelled; otherwise it failed. */
  public boolean cancelled() {
    return code() == Status.Code.CANCELLED && reason().isEmpty();
  }
}
