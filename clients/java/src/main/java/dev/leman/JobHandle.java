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

/** A job of a database. It runs in the services, whatever becomes of this object. */
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
   * The same job, whose next {@link #retry()} is made under this id: once, however often it is
   * asked for, also by another process after this one died.
   */
  public JobHandle withRequestId(String id) {
    Arguments.given("id", id);
    return new JobHandle(connections, database, this.id, RequestId.of(id));
  }

  /** Its id. */
  public String id() {
    return id;
  }

  /** The job as it stands now. */
  public Job get() {
    return Futures.get(getAsync());
  }

  /** As {@link #get}. */
  public CompletableFuture<Job> getAsync() {
    GetJobRequest request = GetJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(JobServiceGrpc.getGetJobMethod(), request, GetJobResponse::getJob);
  }

  /** The job now, and whenever something changed, until it has ended. */
  public JobWatch watch() {
    return watch(0);
  }

  /** As {@link #watch()}, behind an update that was seen before, by this process or another one. */
  public JobWatch watch(long afterSequence) {
    return new JobWatch(connections, database, id, afterSequence, null);
  }

  /** As {@link #watch()}; after so long it fails with DEADLINE_EXCEEDED, and the job goes on. */
  public JobWatch watch(Duration time) {
    return new JobWatch(connections, database, id, 0, time);
  }

  /** The updates of {@link #watch()} for each subscriber, as fast as it asks for them. */
  public Flow.Publisher<JobUpdate> updates() {
    return new IteratorPublisher<>(connections, this::watch);
  }

  /** Wait until the job has ended; see {@link #await(Duration, Consumer)}. */
  public Job await() {
    return await(null, progress -> {});
  }

  /** Wait until the job has ended, so long at the most; see {@link #await(Duration, Consumer)}. */
  public Job await(Duration time) {
    return await(time, progress -> {});
  }

  /**
   * Wait until the job has ended, and give it as it stands then. One that ended as DONE_WITH_ERRORS
   * is given too; one that is paused is waited for.
   *
   * @param time how long; null: for ever
   * @param progress is told how far the job is, whenever something changed and at least every 15
   *     seconds
   * @throws JobException where it failed or was cancelled
   * @throws LemanException DEADLINE_EXCEEDED after {@code time}; the job goes on
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

  /** As {@link #await()}; cancelling the future ends the waiting, and the job goes on. */
  public CompletableFuture<Job> awaitAsync() {
    return awaitAsync(null, progress -> {});
  }

  /** As {@link #await(Duration)}; cancelling the future ends the waiting, and the job goes on. */
  public CompletableFuture<Job> awaitAsync(Duration time) {
    return awaitAsync(time, progress -> {});
  }

  /** As {@link #await(Duration, Consumer)}; {@code progress} is told in a thread of the client. */
  public CompletableFuture<Job> awaitAsync(Duration time, Consumer<Progress> progress) {
    Arguments.given("progress", progress);
    return Futures.run(connections, () -> await(time, progress));
  }

  /** Ask it to stop; finished work is kept. Gives the job after that. */
  public Job cancel() {
    return Futures.get(cancelAsync());
  }

  /** As {@link #cancel}. */
  public CompletableFuture<Job> cancelAsync() {
    CancelJobRequest request =
        CancelJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(
        JobServiceGrpc.getCancelJobMethod(), request, CancelJobResponse::getJob);
  }

  /**
   * Have it stop for a while; it stays paused until it is resumed or cancelled. Gives the job after
   * that.
   */
  public Job pause() {
    return Futures.get(pauseAsync());
  }

  /** As {@link #pause}. */
  public CompletableFuture<Job> pauseAsync() {
    PauseJobRequest request =
        PauseJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(JobServiceGrpc.getPauseJobMethod(), request, PauseJobResponse::getJob);
  }

  /** Have it go on after a pause. Gives the job after that. */
  public Job resume() {
    return Futures.get(resumeAsync());
  }

  /** As {@link #resume}. */
  public CompletableFuture<Job> resumeAsync() {
    ResumeJobRequest request =
        ResumeJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(
        JobServiceGrpc.getResumeJobMethod(), request, ResumeJobResponse::getJob);
  }

  /** Give it these labels, and no others. */
  public Job updateLabels(Map<String, String> labels) {
    return Futures.get(updateLabelsAsync(labels));
  }

  /** As {@link #updateLabels}. */
  public CompletableFuture<Job> updateLabelsAsync(Map<String, String> labels) {
    Arguments.given("labels", labels);
    return update(UpdateJobRequest.newBuilder().putAllLabels(labels), "labels");
  }

  /** Give it another priority, which counts while it waits for its turn. */
  public Job updatePriority(int priority) {
    return Futures.get(updatePriorityAsync(priority));
  }

  /** As {@link #updatePriority}. */
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

  /** Once it has ended: take it out of the history for good. What it computed stays. */
  public void delete() {
    Futures.get(deleteAsync());
  }

  /** As {@link #delete}. */
  public CompletableFuture<Void> deleteAsync() {
    DeleteJobRequest request =
        DeleteJobRequest.newBuilder().setDatabase(database).setJobId(id).build();
    return connections.unary(JobServiceGrpc.getDeleteJobMethod(), request, answer -> null);
  }

  /** Once it has ended: start a job that calls the function again for the rows that failed. */
  public JobHandle retry() {
    return Futures.get(retryAsync());
  }

  /** As {@link #retry()}. */
  public CompletableFuture<JobHandle> retryAsync() {
    return retryAsync(Map.of());
  }

  /**
   * As {@link #retry()}, with environment variables of the function.
   *
   * @param env as for {@link BackfillOptions#env}: those of this job are not known any more
   */
  public JobHandle retry(Map<String, String> env) {
    return Futures.get(retryAsync(env));
  }

  /** As {@link #retry(Map)}. */
  public CompletableFuture<JobHandle> retryAsync(Map<String, String> env) {
    Arguments.given("env", env);
    return retry(RetryJobRequest.newBuilder().putAllEnv(env));
  }

  /**
   * As {@link #retry()}, with another registered function, {@code name@version}.
   *
   * @param keepOthers whether the rows that did not fail keep their values and count as current
   */
  public JobHandle retry(String nameAndVersion, boolean keepOthers) {
    return Futures.get(retryAsync(nameAndVersion, keepOthers));
  }

  /** As {@link #retry(String, boolean)}. */
  public CompletableFuture<JobHandle> retryAsync(String nameAndVersion, boolean keepOthers) {
    return retryAsync(nameAndVersion, keepOthers, Map.of());
  }

  /** As {@link #retry(String, boolean)}, with environment variables of the function. */
  public JobHandle retry(String nameAndVersion, boolean keepOthers, Map<String, String> env) {
    return Futures.get(retryAsync(nameAndVersion, keepOthers, env));
  }

  /** As {@link #retry(String, boolean, Map)}. */
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

  /** The rows on which the function failed, by their address. */
  public Pages<RowError> errors() {
    return errors(ErrorQuery.all());
  }

  /** As {@link #errors()}, some of them, or nothing but their places. */
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
   * The rows on which the function failed by what went wrong, the largest group first. The service
   * counts: no row is fetched but an example of each group.
   */
  public Pages<RowErrorGroup> errorGroups() {
    return errorGroups("", 1);
  }

  /** As {@link #errorGroups()}, of one column, with 0 to 5 examples of each group. */
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
