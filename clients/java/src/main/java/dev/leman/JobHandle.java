package dev.leman;

import com.google.protobuf.FieldMask;
import dev.leman.internal.Arguments;
import dev.leman.v1.CancelJobRequest;
import dev.leman.v1.CancelJobResponse;
import dev.leman.v1.DeleteJobRequest;
import dev.leman.v1.GetJobRequest;
import dev.leman.v1.GetJobResponse;
import dev.leman.v1.GroupJobErrorsRequest;
import dev.leman.v1.Job;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.ListJobErrorsRequest;
import dev.leman.v1.PauseJobRequest;
import dev.leman.v1.PauseJobResponse;
import dev.leman.v1.Progress;
import dev.leman.v1.ResumeJobRequest;
import dev.leman.v1.ResumeJobResponse;
import dev.leman.v1.RetryJobRequest;
import dev.leman.v1.RowError;
import dev.leman.v1.RowErrorGroup;
import dev.leman.v1.UpdateJobRequest;
import dev.leman.v1.UpdateJobResponse;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.function.Consumer;

/** A handle for a job of a database. The job runs in the services, independent of this object. */
public final class JobHandle {
  private final Connections connections;
  private final String database;
  private final String id;
  private final RequestId requestId;

  JobHandle(Connections connections, String database, String id) {
    this(connections, database, id, RequestId.MADE_UP);
  }

  private JobHandle(Connections connections, String database, String id, RequestId requestId) {
    this.connections = connections;
    this.database = database;
    this.id = id;
    this.requestId = requestId;
  }

  /**
   * Return a handle whose next {@link #retry()} carries this request id. The services apply calls
   * with equal ids once, so another process can retry the call, for example after this one died.
   */
  public JobHandle withRequestId(String id) {
    Arguments.given("id", id);
    return new JobHandle(connections, database, this.id, RequestId.of(id));
  }

  /** The id of the job. */
  public String id() {
    return id;
  }

  /** Return the current state of the job. */
  public Job get() {
    return Futures.get(getAsync());
  }

  /** Like {@link #get}. */
  public CompletableFuture<Job> getAsync() {
    GetJobRequest request = GetJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(JobServiceGrpc.getGetJobMethod(), request, GetJobResponse::getJob);
  }

  /** Return the current state, and the state after each change, until the job has ended. */
  public JobWatch watch() {
    return watch(0);
  }

  /**
   * Like {@link #watch()}, but start after an update that this process, or another one, received
   * earlier.
   */
  public JobWatch watch(long afterSequence) {
    return new JobWatch(connections, database, id, afterSequence, null);
  }

  /** Like {@link #watch()}, but fail with DEADLINE_EXCEEDED after this time; the job continues. */
  public JobWatch watch(Duration time) {
    return new JobWatch(connections, database, id, 0, time);
  }

  /** Publish the updates of {@link #watch()} to each subscriber, as fast as it requests them. */
  public Flow.Publisher<JobUpdate> updates() {
    return new IteratorPublisher<>(connections, this::watch);
  }

  /** Wait until the job has ended; see {@link #await(Duration, Consumer)}. */
  public Job await() {
    return await(null, progress -> {});
  }

  /** Wait until the job has ended, at most this long; see {@link #await(Duration, Consumer)}. */
  public Job await(Duration time) {
    return await(time, progress -> {});
  }

  /**
   * Wait until the job has ended, and return it, also as DONE_WITH_ERRORS. A paused job is waited
   * for.
   *
   * @param time the longest time to wait; null: no limit
   * @param progress called with the progress, whenever it has changed and at least every 15 seconds
   * @throws JobException if the job failed or was cancelled
   * @throws LemanException DEADLINE_EXCEEDED after {@code time}; the job continues
   */
  public Job await(Duration time, Consumer<Progress> progress) {
    Arguments.given("progress", progress);
    Job last = Job.getDefaultInstance();
    try (JobWatch watch = watch(time)) {
      while (watch.hasNext()) {
        last = watch.next().job();
        progress.accept(last.getProgress());
      }
    }
    if (last.getState() == Job.State.STATE_FAILED || last.getState() == Job.State.STATE_CANCELLED) {
      throw JobException.of(last);
    }
    return last;
  }

  /** Like {@link #await()}; cancelling the future ends the wait, and the job continues. */
  public CompletableFuture<Job> awaitAsync() {
    return awaitAsync(null, progress -> {});
  }

  /** Like {@link #await(Duration)}; cancelling the future ends the wait, and the job continues. */
  public CompletableFuture<Job> awaitAsync(Duration time) {
    return awaitAsync(time, progress -> {});
  }

  /**
   * Like {@link #await(Duration, Consumer)}; {@code progress} is called in a thread of the client.
   */
  public CompletableFuture<Job> awaitAsync(Duration time, Consumer<Progress> progress) {
    Arguments.given("progress", progress);
    return Futures.run(connections, () -> await(time, progress));
  }

  /** Cancel the job; finished work is kept. Returns the updated job. */
  public Job cancel() {
    return Futures.get(cancelAsync());
  }

  /** Like {@link #cancel}. */
  public CompletableFuture<Job> cancelAsync() {
    CancelJobRequest request =
        CancelJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(
        JobServiceGrpc.getCancelJobMethod(), request, CancelJobResponse::getJob);
  }

  /** Pause the job until it is resumed or cancelled. Returns the updated job. */
  public Job pause() {
    return Futures.get(pauseAsync());
  }

  /** Like {@link #pause}. */
  public CompletableFuture<Job> pauseAsync() {
    PauseJobRequest request =
        PauseJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(JobServiceGrpc.getPauseJobMethod(), request, PauseJobResponse::getJob);
  }

  /** Continue a paused job. Returns the updated job. */
  public Job resume() {
    return Futures.get(resumeAsync());
  }

  /** Like {@link #resume}. */
  public CompletableFuture<Job> resumeAsync() {
    ResumeJobRequest request =
        ResumeJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(
        JobServiceGrpc.getResumeJobMethod(), request, ResumeJobResponse::getJob);
  }

  /** Replace all labels. */
  public Job updateLabels(Map<String, String> labels) {
    return Futures.get(updateLabelsAsync(labels));
  }

  /** Like {@link #updateLabels}. */
  public CompletableFuture<Job> updateLabelsAsync(Map<String, String> labels) {
    Arguments.given("labels", labels);
    return update(UpdateJobRequest.newBuilder().putAllLabels(labels), "labels");
  }

  /** Change the priority, which counts while the job waits to start. */
  public Job updatePriority(int priority) {
    return Futures.get(updatePriorityAsync(priority));
  }

  /** Like {@link #updatePriority}. */
  public CompletableFuture<Job> updatePriorityAsync(int priority) {
    return update(UpdateJobRequest.newBuilder().setPriority(priority), "priority");
  }

  private CompletableFuture<Job> update(UpdateJobRequest.Builder request, String field) {
    FieldMask mask = FieldMask.newBuilder().addPaths(field).build();
    return connections.unary(
        JobServiceGrpc.getUpdateJobMethod(),
        request.setDatabase(database).setJobId(id).setUpdateMask(mask).build(),
        UpdateJobResponse::getJob);
  }

  /** Remove an ended job from the history for good. The computed values stay. */
  public void delete() {
    Futures.get(deleteAsync());
  }

  /** Like {@link #delete}. */
  public CompletableFuture<Void> deleteAsync() {
    DeleteJobRequest request =
        DeleteJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(JobServiceGrpc.getDeleteJobMethod(), request, answer -> null);
  }

  /**
   * Start a job that calls the function again for the rows that failed. This job must have ended.
   */
  public JobHandle retry() {
    return Futures.get(retryAsync());
  }

  /** Like {@link #retry()}. */
  public CompletableFuture<JobHandle> retryAsync() {
    return retryAsync(Map.of());
  }

  /**
   * Like {@link #retry()}, with environment variables for the function.
   *
   * @param env see {@link BackfillOptions#env}; a retried job does not inherit them
   */
  public JobHandle retry(Map<String, String> env) {
    return Futures.get(retryAsync(env));
  }

  /** Like {@link #retry(Map)}. */
  public CompletableFuture<JobHandle> retryAsync(Map<String, String> env) {
    Arguments.given("env", env);
    return retry(RetryJobRequest.newBuilder().putAllEnv(env));
  }

  /**
   * Like {@link #retry()}, with another registered function, {@code name@version}.
   *
   * @param keepOthers whether the values of the rows that did not fail stay current
   */
  public JobHandle retry(String nameAndVersion, boolean keepOthers) {
    return Futures.get(retryAsync(nameAndVersion, keepOthers));
  }

  /** Like {@link #retry(String, boolean)}. */
  public CompletableFuture<JobHandle> retryAsync(String nameAndVersion, boolean keepOthers) {
    return retryAsync(nameAndVersion, keepOthers, Map.of());
  }

  /** Like {@link #retry(String, boolean)}, with environment variables for the function. */
  public JobHandle retry(String nameAndVersion, boolean keepOthers, Map<String, String> env) {
    return Futures.get(retryAsync(nameAndVersion, keepOthers, env));
  }

  /** Like {@link #retry(String, boolean, Map)}. */
  public CompletableFuture<JobHandle> retryAsync(
      String nameAndVersion, boolean keepOthers, Map<String, String> env) {
    Arguments.given("nameAndVersion", nameAndVersion);
    Arguments.given("env", env);
    return retry(
        RetryJobRequest.newBuilder()
            .setUdf(ColumnFunction.ref(nameAndVersion))
            .setKeepOthers(keepOthers)
            .putAllEnv(env));
  }

  private CompletableFuture<JobHandle> retry(RetryJobRequest.Builder request) {
    return connections.unary(
        JobServiceGrpc.getRetryJobMethod(),
        request.setDatabase(database).setJobId(id).setRequestId(requestId.next()).build(),
        answer -> new JobHandle(connections, database, answer.getJob().getJobId()));
  }

  /** List the rows on which the function failed, by address. */
  public Pages<RowError> errors() {
    return errors(ErrorQuery.all());
  }

  /** Like {@link #errors()}, for some of the rows, or only their addresses. */
  public Pages<RowError> errors(ErrorQuery query) {
    Arguments.given("query", query);
    ListJobErrorsRequest.Builder request = query.told().setDatabase(database).setJobId(id);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                JobServiceGrpc.getListJobErrorsMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer -> new Pages.Page<>(answer.getErrorsList(), answer.getNextPageToken())));
  }

  /**
   * Count the failed rows by error, and list the largest group first. The service does the
   * counting, and sends only an example row of each group.
   */
  public Pages<RowErrorGroup> errorGroups() {
    return errorGroups("", 1);
  }

  /** Like {@link #errorGroups()}, for one column, with 0 to 5 example rows in each group. */
  public Pages<RowErrorGroup> errorGroups(String column, int examples) {
    Arguments.given("column", column);
    GroupJobErrorsRequest.Builder request =
        GroupJobErrorsRequest.newBuilder()
            .setDatabase(database)
            .setJobId(id)
            .setColumn(column)
            .setExamples(examples);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                JobServiceGrpc.getGroupJobErrorsMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer -> new Pages.Page<>(answer.getGroupsList(), answer.getNextPageToken())));
  }

  @Override
  public String toString() {
    return "job " + id + " of " + database;
  }
}
