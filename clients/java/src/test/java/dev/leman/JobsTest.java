package dev.leman;

import static dev.leman.Served.refusal;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.Code;
import com.google.rpc.ErrorInfo;
import dev.leman.v1.CreateJobRequest;
import dev.leman.v1.CreateJobResponse;
import dev.leman.v1.Job;
import dev.leman.v1.JobEvent;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.ListJobErrorsRequest;
import dev.leman.v1.ListJobErrorsResponse;
import dev.leman.v1.Progress;
import dev.leman.v1.RetryJobRequest;
import dev.leman.v1.RetryJobResponse;
import dev.leman.v1.RowError;
import dev.leman.v1.UpdateJobRequest;
import dev.leman.v1.UpdateJobResponse;
import dev.leman.v1.WatchJobRequest;
import dev.leman.v1.WatchJobResponse;
import io.grpc.Context;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Jobs that are started, watched and waited for, with interrupted streams. */
@Timeout(30)
class JobsTest {
  private static final StatusRuntimeException AWAY = refusal(Code.UNAVAILABLE, "DRAINING");

  private final Executor executor = new Executor();

  @Test
  void aWatchThatIsCutTellsEachEventOnce() throws IOException {
    executor.cuts.putAll(Map.of(0, 2, 1, 0, 2, 1));
    List<Long> events = new ArrayList<>();
    try (Served served = Served.of(executor);
        JobWatch watch = served.database().job("job").watch()) {
      watch.forEachRemaining(
          update -> update.events().forEach(event -> events.add(event.getSequence())));
      assertFalse(watch.hasNext());
    }
    assertEquals(List.of(1L, 2L, 3L, 4L, 5L), events);
    assertEquals(List.of(0L, 2L, 2L, 3L), executor.after);
  }

  @Test
  void aWatchBeginsBehindWhatWasSeen() throws IOException {
    try (Served served = Served.of(executor);
        JobWatch watch = served.database().job("job").watch(3)) {
      assertEquals(4, watch.next().sequence());
    }
    assertEquals(List.of(3L), executor.after);
  }

  @Test
  void whoeverWaitsIsToldHowFarTheJobIs() throws IOException {
    executor.cuts.put(0, 1);
    List<Long> rows = new ArrayList<>();
    try (Served served = Served.of(executor)) {
      Job ended = served.database().job("job").await(null, now -> rows.add(now.getRowsCommitted()));
      assertEquals(Job.State.STATE_DONE, ended.getState());
    }
    assertEquals(List.of(1L, 2L, 3L, 4L, 5L), rows);
  }

  @Test
  void aJobThatFailedIsAnExceptionWithItsReason() throws Exception {
    executor.end =
        Job.newBuilder()
            .setState(Job.State.STATE_FAILED)
            .setError(
                com.google.rpc.Status.newBuilder()
                    .setCode(Code.INVALID_ARGUMENT.getNumber())
                    .setMessage("it raised")
                    .addDetails(Any.pack(ErrorInfo.newBuilder().setReason("UDF_FAILED").build())));
    try (Served served = Served.of(executor)) {
      JobHandle job = served.database().job("job");
      JobException failure = assertThrows(JobException.class, job::await);
      assertEquals("UDF_FAILED", failure.reason());
      assertEquals(Status.Code.INVALID_ARGUMENT, failure.code());
      assertEquals("job", failure.jobId());
      assertFalse(failure.cancelled());
      ExecutionException later =
          assertThrows(ExecutionException.class, () -> job.awaitAsync().get());
      assertEquals("UDF_FAILED", LemanException.from(later).reason());
    }
  }

  @Test
  void aJobThatWasCancelledIsOne() throws IOException {
    executor.end = Job.newBuilder().setState(Job.State.STATE_CANCELLED);
    try (Served served = Served.of(executor)) {
      JobException failure =
          assertThrows(JobException.class, () -> served.database().job("job").await());
      assertTrue(failure.cancelled());
    }
  }

  @Test
  void waitingEndsAfterTheTimeThatWasGiven() throws IOException {
    executor.stopsAt = 2;
    try (Served served = Served.of(executor)) {
      LemanException failure =
          assertThrows(
              LemanException.class,
              () -> served.database().job("job").await(Duration.ofMillis(200)));
      assertEquals(Status.Code.DEADLINE_EXCEEDED, failure.code());
    }
  }

  @Test
  void leavingAWatchEndsItsCall() throws Exception {
    executor.stopsAt = 1;
    try (Served served = Served.of(executor)) {
      try (JobWatch watch = served.database().job("job").watch()) {
        assertEquals(1, watch.next().sequence());
      }
      assertTrue(executor.left.await(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void cancellingAFutureEndsTheWaiting() throws Exception {
    executor.stopsAt = 1;
    CountDownLatch waits = new CountDownLatch(1);
    try (Served served = Served.of(executor)) {
      var future = served.database().job("job").awaitAsync(null, progress -> waits.countDown());
      assertTrue(waits.await(10, TimeUnit.SECONDS));
      future.cancel(true);
      assertTrue(executor.left.await(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void subscribersGetUpdatesAsTheyAskForThem() throws Exception {
    executor.cuts.put(0, 2);
    LinkedBlockingQueue<Object> told = new LinkedBlockingQueue<>();
    try (Served served = Served.of(executor)) {
      served.database().job("job").updates().subscribe(new OneByOne(told));
      for (long sequence = 1; sequence <= 5; sequence++) {
        assertEquals(sequence, told.poll(10, TimeUnit.SECONDS));
      }
      assertEquals("end", told.poll(10, TimeUnit.SECONDS));
    }
  }

  @Test
  void oneJobIsMadeThoughTheReplyWasLost() throws IOException {
    executor.lost = 1;
    try (Served served = Served.of(executor)) {
      JobHandle job =
          served
              .database()
              .table("docs")
              .backfill(
                  "words",
                  BackfillOptions.usual()
                      .where("n > 1")
                      .labels(Map.of("a", "b"))
                      .priority(7)
                      .env(Map.of("API_KEY", "k")));
      assertEquals("made", job.id());
    }
    assertEquals(2, executor.created.size());
    assertEquals(executor.created.get(0), executor.created.get(1));
    CreateJobRequest request = executor.created.get(0);
    assertEquals("n > 1", request.getBackfill().getWhere());
    assertEquals(Map.of("a", "b"), request.getLabelsMap());
    assertEquals(7, request.getPriority());
    assertEquals(Map.of("API_KEY", "k"), request.getEnvMap());
  }

  @Test
  void failedRowsAreListedOfAColumnAndByTheirPlacesOnly() throws IOException {
    try (Served served = Served.of(executor)) {
      JobHandle job = served.database().job("job");
      assertEquals(1, job.errors().toList().size());
      job.errors(ErrorQuery.all().column("words").placesOnly()).toList();
    }
    assertEquals("", executor.listed.get(0).getColumn());
    assertFalse(executor.listed.get(0).getPlacesOnly());
    ListJobErrorsRequest second = executor.listed.get(1);
    assertEquals("job words true", told(second));
    assertEquals("lake", second.getDatabase());
  }

  private static String told(ListJobErrorsRequest request) {
    return request.getJobId() + " " + request.getColumn() + " " + request.getPlacesOnly();
  }

  @Test
  void jobsAreUpdatedAndRetriedByTheirAsynchronousFormsToo() throws Exception {
    try (Served served = Served.of(executor)) {
      JobHandle job = served.database().job("job");
      assertEquals(Map.of("a", "b"), job.updateLabelsAsync(Map.of("a", "b")).get().getLabelsMap());
      assertEquals(9, job.updatePriorityAsync(9).get().getPriority());
      assertEquals("made", job.withRequestId("r").retryAsync("words@2", true).get().id());
      assertEquals("made", job.retry(Map.of("K", "v")).id());
    }
    RetryJobRequest first = executor.retried.get(0);
    assertEquals("words", first.getUdf().getName());
    assertTrue(first.getKeepOthers());
    assertEquals("r", first.getRequestId());
    assertEquals(Map.of("K", "v"), executor.retried.get(1).getEnvMap());
  }

  private record OneByOne(LinkedBlockingQueue<Object> told, Flow.Subscription[] held)
      implements Flow.Subscriber<JobUpdate> {
    OneByOne(LinkedBlockingQueue<Object> told) {
      this(told, new Flow.Subscription[1]);
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
      held[0] = subscription;
      subscription.request(1);
    }

    @Override
    public void onNext(JobUpdate update) {
      told.add(update.sequence());
      held[0].request(1);
    }

    @Override
    public void onError(Throwable failure) {
      told.add(failure);
    }

    @Override
    public void onComplete() {
      told.add("end");
    }
  }

  /** Has a job with five messages, the last of which is its end. */
  private static final class Executor extends JobServiceGrpc.JobServiceImplBase {
    final Map<Integer, Integer> cuts = new HashMap<>();
    final List<Long> after = new ArrayList<>();
    final List<CreateJobRequest> created = new ArrayList<>();
    final List<ListJobErrorsRequest> listed = new ArrayList<>();
    final List<RetryJobRequest> retried = new ArrayList<>();
    final CountDownLatch left = new CountDownLatch(1);
    Job.Builder end = Job.newBuilder().setState(Job.State.STATE_DONE);
    long stopsAt = 5;
    int lost;

    @Override
    public void watchJob(WatchJobRequest request, StreamObserver<WatchJobResponse> answer) {
      Integer cut = cuts.get(after.size());
      after.add(request.getAfterSequence());
      Context.current().addListener(context -> left.countDown(), Runnable::run);
      long sequence = request.getAfterSequence();
      for (int sent = 0; sequence < stopsAt; sent++) {
        if (cut != null && cut == sent) {
          answer.onError(AWAY);
          return;
        }
        sequence++;
        answer.onNext(message(sequence, request.getJobId()));
      }
      if (stopsAt == 5) {
        answer.onCompleted();
      }
    }

    private WatchJobResponse message(long sequence, String id) {
      Job.Builder job = sequence == 5 ? end : Job.newBuilder().setState(Job.State.STATE_RUNNING);
      return WatchJobResponse.newBuilder()
          .setSequence(sequence)
          .setJob(job.setJobId(id).setProgress(Progress.newBuilder().setRowsCommitted(sequence)))
          .addEvents(JobEvent.newBuilder().setSequence(sequence).setKind(JobEvent.Kind.KIND_COMMIT))
          .build();
    }

    @Override
    public void listJobErrors(
        ListJobErrorsRequest request, StreamObserver<ListJobErrorsResponse> answer) {
      listed.add(request);
      CallsTest.answer(
          answer,
          null,
          ListJobErrorsResponse.newBuilder().addErrors(RowError.getDefaultInstance()).build());
    }

    @Override
    public void updateJob(UpdateJobRequest request, StreamObserver<UpdateJobResponse> answer) {
      Job job =
          Job.newBuilder()
              .putAllLabels(request.getLabelsMap())
              .setPriority(request.getPriority())
              .build();
      CallsTest.answer(answer, null, UpdateJobResponse.newBuilder().setJob(job).build());
    }

    @Override
    public void retryJob(RetryJobRequest request, StreamObserver<RetryJobResponse> answer) {
      retried.add(request);
      Job job = Job.newBuilder().setJobId("made").build();
      CallsTest.answer(answer, null, RetryJobResponse.newBuilder().setJob(job).build());
    }

    @Override
    public void createJob(CreateJobRequest request, StreamObserver<CreateJobResponse> answer) {
      created.add(request);
      Job job = Job.newBuilder().setJobId("made").build();
      CallsTest.answer(
          answer,
          created.size() <= lost ? AWAY : null,
          CreateJobResponse.newBuilder().setJob(job).build());
    }
  }
}
