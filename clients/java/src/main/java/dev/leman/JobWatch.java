package dev.leman;

import dev.leman.v1.Job;
import dev.leman.v1.JobEvent;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.WatchJobRequest;
import dev.leman.v1.WatchJobResponse;
import io.grpc.Status;
import java.time.Duration;
import java.util.List;
import java.util.NoSuchElementException;

/**
 * The state of a job now and after each change; the last update has a terminal state. If the
 * services restart or the connection breaks, the watch continues. Used by one thread; closing it
 * ends the call, and the job continues.
 *
 * <pre>{@code
 * try (JobWatch watch = job.watch()) {
 *   watch.forEachRemaining(update -> System.out.println(update.job().getState()));
 * }
 * }</pre>
 */
public final class JobWatch implements IteratorPublisher.Source<JobUpdate> {
  /** The stream is reopened once a minute, so that a dead connection is noticed. */
  private static final Duration STREAM = Duration.ofMinutes(1);

  private final Connections connections;
  private final WatchJobRequest.Builder request;
  private final Patience waiting;
  private final Long end;
  private Answers<WatchJobRequest, WatchJobResponse> answers;
  private long lastEvent;
  private JobUpdate held;
  private boolean ended;

  JobWatch(Connections connections, String database, String job, long after, Duration time) {
    this.connections = connections;
    this.request =
        WatchJobRequest.newBuilder().setDatabase(database).setJobId(job).setAfterSequence(after);
    this.waiting = connections.patience();
    this.end = time == null ? null : System.nanoTime() + time.toNanos();
  }

  @Override
  public boolean hasNext() {
    while (held == null && !ended) {
      try {
        WatchJobResponse message = open().next();
        if (message == null) {
          reopen();
          connections.sleep(Duration.ofMillis(50));
        } else {
          take(message);
        }
      } catch (LemanException broken) {
        recover(broken);
      }
    }
    return held != null;
  }

  @Override
  public JobUpdate next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    JobUpdate update = held;
    held = null;
    return update;
  }

  /** End the watch. */
  @Override
  public void close() {
    ended = true;
    held = null;
    reopen();
  }

  private Answers<WatchJobRequest, WatchJobResponse> open() {
    if (answers == null) {
      answers =
          connections.answers(JobServiceGrpc.getWatchJobMethod(), request.build(), streamTime());
    }
    return answers;
  }

  private Duration streamTime() {
    if (end == null) {
      return STREAM;
    }
    Duration left = Duration.ofNanos(end - System.nanoTime());
    if (left.isNegative() || left.isZero()) {
      ended = true;
      String message = "job " + request.getJobId() + " has not ended in the time that was given";
      throw new LemanException(Status.Code.DEADLINE_EXCEEDED, "", message, null);
    }
    return left.compareTo(STREAM) < 0 ? left : STREAM;
  }

  private void take(WatchJobResponse message) {
    waiting.reset();
    request.setAfterSequence(Math.max(request.getAfterSequence(), message.getSequence()));
    List<JobEvent> fresh =
        message.getEventsList().stream().filter(event -> event.getSequence() > lastEvent).toList();
    for (JobEvent event : fresh) {
      lastEvent = Math.max(lastEvent, event.getSequence());
    }
    held =
        new JobUpdate(message.getSequence(), message.getJob(), fresh, message.getEventsMissing());
    if (hasEnded(message.getJob().getState())) {
      ended = true;
      reopen();
    }
  }

  private void recover(LemanException broken) {
    if (ended) {
      throw broken;
    }
    String token = answers == null ? "" : answers.token();
    reopen();
    if (broken.code() == Status.Code.DEADLINE_EXCEEDED && broken.reason().isEmpty()) {
      return; // expected: the stream reached its time, see STREAM
    }
    try {
      connections.beforeNextStream(broken, waiting, token);
    } catch (LemanException last) {
      ended = true;
      throw last;
    }
  }

  private void reopen() {
    if (answers != null) {
      answers.close();
      answers = null;
    }
  }

  /** Return whether a job in this state has ended. */
  static boolean hasEnded(Job.State state) {
    return switch (state) {
      case STATE_DONE, STATE_DONE_WITH_ERRORS, STATE_FAILED, STATE_CANCELLED -> true;
      default -> false;
    };
  }
}
