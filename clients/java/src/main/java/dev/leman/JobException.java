package dev.leman;

import dev.leman.v1.Job;
import io.grpc.Status;

/** A job failed or was cancelled. Its finished work is kept: a new job continues from there. */
public final class JobException extends LemanException {
  private static final long serialVersionUID = 1L;

  private final transient Job job;
  private final String jobId;

  private JobException(Status.Code code, String message, Details details, Job job) {
    super(code, message, details, null);
    this.job = job;
    this.jobId = job.getJobId();
  }

  /** Return the exception for an ended job. */
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

  /** The job at its end; null in a deserialized copy. */
  public Job job() {
    return job;
  }

  /** The id of the job. */
  public String jobId() {
    return jobId;
  }

  /** Return whether the job was cancelled; otherwise it failed. */
  public boolean cancelled() {
    return code() == Status.Code.CANCELLED && reason().isEmpty();
  }
}
