package dev.leman;

import com.google.common.util.concurrent.ListenableFuture;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import dev.leman.internal.Afterwards;
import dev.leman.internal.Threads;
import dev.leman.v1.ErrorReason;
import dev.leman.v1.GetInfoRequest;
import dev.leman.v1.GetInfoResponse;
import dev.leman.v1.InfoServiceGrpc;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.Deadline;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import java.time.Duration;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * The channels to the endpoints, and what each call carries. As a {@link Channel} it is what stubs
 * take: their calls carry the token and outlast restarts of the services.
 */
final class Connections extends Channel {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> REQUEST_ID =
      Metadata.Key.of("x-request-id", Metadata.ASCII_STRING_MARSHALLER);

  private static final MethodDescriptor<GetInfoRequest, GetInfoResponse> INFO =
      InfoServiceGrpc.getGetInfoMethod();

  /** How long a call may take that is given no time, by service. */
  private static final Map<String, Duration> DEADLINES =
      Map.of(
          "leman.v1.InfoService", Duration.ofSeconds(10),
          "leman.v1.CatalogService", Duration.ofMinutes(1),
          "leman.v1.DatabaseService", Duration.ofMinutes(1),
          "leman.v1.PlannerService", Duration.ofMinutes(5),
          "leman.v1.JobService", Duration.ofMinutes(5),
          "leman.v1.CommitService", Duration.ofMinutes(10),
          "leman.v1.TableService", Duration.ofMinutes(10));

  /** Where what takes its time is done; after the close it takes nothing. */
  final ExecutorService pool;

  /** Where calls tell what becomes of them, also after the close. */
  private final Executor executor;

  private final ScheduledExecutorService timer;
  private final Threads threads;
  private final CountDownLatch closing = new CountDownLatch(1);

  /** What the close does before it waits for anything. */
  final Afterwards atClose = new Afterwards();

  /** What ends when the close has done all else, where nothing else has ended it by then. */
  final Afterwards ends = new Afterwards();

  private final Endpoints endpoints;
  private final Tokens tokens;
  private volatile Duration patience;
  private final RetryPolicy policy = RetryPolicy.published();
  private volatile String exposed;
  private volatile boolean closed;

  Connections(
      Endpoints endpoints,
      Tokens tokens,
      Duration patience,
      Threads threads,
      ExecutorService pool,
      ScheduledExecutorService timer) {
    this.endpoints = endpoints;
    this.tokens = tokens;
    this.patience = patience;
    this.threads = threads;
    this.pool = pool;
    this.executor = Threads.lasting(pool);
    this.timer = timer;
  }

  /** From now on, operations wait so long for services that are away. */
  void waitFor(Duration time) {
    patience = time;
  }

  /**
   * Refuse calls that bring a token of their own, as it would go there in the clear; null: none.
   */
  void showNoTokenTo(String address) {
    exposed = address;
  }

  /** A new measure of how long one operation may wait for the services. */
  Patience patience() {
    return new Patience(patience);
  }

  @Override
  public <Q, A> ClientCall<Q, A> newCall(MethodDescriptor<Q, A> method, CallOptions options) {
    Executor given = options.getExecutor();
    CallOptions own = options.withExecutor(given == null ? executor : Threads.lasting(given));
    return method.getType().clientSendsOneMessage()
        ? new RepeatingCall<>(this, method, own)
        : new CarryingCall<>(this, own, bare(method, own));
  }

  @Override
  public String authority() {
    return endpoints.current().authority();
  }

  /** A call of the endpoint that answered last, as it is. */
  <Q, A> ClientCall<Q, A> bare(MethodDescriptor<Q, A> method, CallOptions options) {
    return endpoints.current().newCall(method, options);
  }

  /** Whether it is known which endpoint answers. */
  boolean isSettled() {
    return closed || endpoints.isSettled();
  }

  /** Wait until it is known which endpoint answers; false: none does. They are shown the token. */
  boolean settle(Duration atMost) {
    return closed || endpoints.settle(endpoint -> ask(endpoint, atMost), atMost);
  }

  private CompletableFuture<GetInfoResponse> ask(Channel endpoint, Duration atMost) {
    CallOptions options = within(atMost).withExecutor(executor);
    return info(new CarryingCall<>(this, options, endpoint.newCall(INFO, options)));
  }

  /** Wait so long for a first answer. */
  GetInfoResponse contact(Duration atMost) {
    try {
      return Futures.get(info(newCall(INFO, within(atMost))));
    } catch (LemanException failed) {
      boolean ofTokens = failed.getCause() instanceof TimeoutException;
      if (failed.code() != Status.Code.DEADLINE_EXCEEDED || ofTokens) {
        throw failed;
      }
      String told = "no answer within " + atMost.toMillis() + " ms";
      throw new LemanException(Status.Code.UNAVAILABLE, "", told, failed);
    }
  }

  private CompletableFuture<GetInfoResponse> info(
      ClientCall<GetInfoRequest, GetInfoResponse> call) {
    GetInfoRequest request = GetInfoRequest.getDefaultInstance();
    return Futures.of(ClientCalls.futureUnaryCall(call, request), answer -> answer, this);
  }

  private static CallOptions within(Duration time) {
    return CallOptions.DEFAULT.withDeadlineAfter(time.toNanos(), TimeUnit.NANOSECONDS);
  }

  /** Make a call that answers once. Cancelling the future ends it. */
  <Q, A, T> CompletableFuture<T> unary(
      MethodDescriptor<Q, A> method, Q request, Function<A, T> read) {
    ListenableFuture<A> answer =
        ClientCalls.futureUnaryCall(newCall(method, CallOptions.DEFAULT), request);
    return Futures.of(answer, read, this);
  }

  /** Open a stream of answers; {@code time}: how long it may last, null: for ever. */
  <Q, A> Answers<Q, A> answers(MethodDescriptor<Q, A> method, Q request, Duration time) {
    checkOpen();
    CallOptions options = time == null ? CallOptions.DEFAULT : within(time);
    return new Answers<>(newCall(method, options), request, this);
  }

  /** The options for one attempt at a call. */
  CallOptions timed(MethodDescriptor<?, ?> method, CallOptions options) {
    Duration usual = DEADLINES.get(method.getServiceName());
    boolean given =
        options.getDeadline() != null || method.getType() != MethodDescriptor.MethodType.UNARY;
    return given || usual == null
        ? options
        : options.withDeadlineAfter(usual.toMillis(), TimeUnit.MILLISECONDS);
  }

  /**
   * Add what each call carries; give the token, empty: none.
   *
   * @param deadline until when a source of tokens is waited for; null: for ever
   * @throws LemanException where there is none, or the client was closed
   */
  String carry(Metadata headers, Deadline deadline) {
    checkOpen();
    if (!headers.containsKey(REQUEST_ID)) {
      headers.put(REQUEST_ID, UUID.randomUUID().toString());
    }
    if (headers.containsKey(AUTHORIZATION)) {
      if (exposed != null) {
        throw Addresses.inTheClear(exposed);
      }
      return "";
    }
    String token = token(deadline);
    if (!token.isEmpty()) {
      headers.put(AUTHORIZATION, "Bearer " + token);
    }
    return token;
  }

  /** Whether a call with these headers, which are its caller's, waits for no token. */
  boolean isTokenAtHand(Metadata headers) {
    return closed || tokens.isAtHand() || headers.containsKey(AUTHORIZATION);
  }

  /** The token, see {@link Tokens#current}. */
  String token(Deadline deadline) {
    return orClosed(() -> tokens.current(pool, deadline));
  }

  /** Ask the source of tokens again, see {@link Tokens#renew}; false: there is none. */
  boolean renew(String refused, Deadline deadline) {
    return orClosed(() -> tokens.renew(refused, pool, deadline));
  }

  private <T> T orClosed(Supplier<T> inPool) {
    try {
      return inPool.get();
    } catch (RejectedExecutionException ended) {
      throw closedError(ended);
    }
  }

  /**
   * Whether a call that was refused with this code, for the {@code attempt}th time, may be made
   * again.
   */
  boolean repeatable(
      MethodDescriptor<?, ?> method, Object request, LemanException failure, int attempt) {
    if (closed) {
      return false;
    }
    RetryPolicy.Rule rule = policy.rule(method.getFullMethodName());
    if (failure.is(ErrorReason.FUNCTION_UNAVAILABLE)) {
      return false; // the services are there; the function server is for the caller to start
    }
    if (failure.code() == Status.Code.UNAVAILABLE) {
      return rule != null || carriesRequestId(request);
    }
    boolean later =
        failure.code() == Status.Code.RESOURCE_EXHAUSTED && failure.retryDelay().isPresent();
    return later
        && rule != null
        && rule.codes().contains(failure.code())
        && attempt < rule.maxAttempts();
  }

  /**
   * How long to wait after a failed attempt; null: no more attempts. The next one goes to another
   * endpoint.
   */
  Duration pause(LemanException failure, Patience waiting) {
    if (!waiting.mayLose(failure)) {
      return null;
    }
    Duration pause = waiting.pause(failure.retryDelay().orElse(Duration.ZERO));
    if (pause != null && failure.code() == Status.Code.UNAVAILABLE) {
      endpoints.leave();
    }
    return pause;
  }

  /**
   * After a stream broke: return once another one is worth a try.
   *
   * @throws LemanException where it is not
   */
  void beforeNextStream(LemanException failure, Patience waiting, String token) {
    if (closed) {
      throw closedError(failure);
    }
    if (failure.code() == Status.Code.UNAUTHENTICATED && waiting.mayRenew() && renew(token, null)) {
      return;
    }
    pauseOrThrow(failure, waiting, failure.code() == Status.Code.UNAVAILABLE);
  }

  /** As {@link #beforeNextStream}; uploads also stand in line where too many are at work. */
  void beforeNextUpload(LemanException failure, Patience waiting, String token) {
    boolean inLine =
        failure.code() == Status.Code.RESOURCE_EXHAUSTED && failure.retryDelay().isPresent();
    if (inLine && !closed) {
      pauseOrThrow(failure, waiting, true);
    } else {
      beforeNextStream(failure, waiting, token);
    }
  }

  private void pauseOrThrow(LemanException failure, Patience waiting, boolean mayPass) {
    Duration pause = mayPass ? pause(failure, waiting) : null;
    if (pause == null) {
      throw failure;
    }
    sleep(pause);
  }

  /** Wait, unless the thread is interrupted, or the client is closed. */
  void sleep(Duration pause) {
    try {
      if (closing.await(pause.toNanos(), TimeUnit.NANOSECONDS)) {
        throw closedError(null);
      }
    } catch (InterruptedException interrupted) {
      throw Futures.interrupted(interrupted);
    }
  }

  /** Do something in a thread of the client after a pause, which a close cuts short. */
  Pause later(Runnable act, Duration wait) {
    Pause pause = new Pause(act);
    atClose.add(pause);
    try {
      pause.timed = timer.schedule(pause::end, wait.toNanos(), TimeUnit.NANOSECONDS);
    } catch (RejectedExecutionException closed) {
      return pause; // the close has done it, or does
    }
    return pause;
  }

  /** A pause before something is done: once, or never. */
  final class Pause implements Runnable {
    private final Runnable act;
    private volatile Future<?> timed;

    private Pause(Runnable act) {
      this.act = act;
    }

    @Override
    public void run() {
      executor.execute(act);
    }

    private void end() {
      if (atClose.takeBack(this)) {
        run();
      }
    }

    void cancel() {
      atClose.takeBack(this);
      Future<?> set = timed;
      if (set != null) {
        set.cancel(false);
      }
    }
  }

  /** Have a future of work in the pool fail at the close, where its thread does not end then. */
  void endsAtClose(CompletableFuture<?> future) {
    Runnable end = () -> future.completeExceptionally(closedError(null));
    ends.add(end);
    future.whenComplete((result, failure) -> ends.takeBack(end));
  }

  /** Refuse whatever is asked of a closed client. */
  void checkOpen() {
    if (closed) {
      throw closedError(null);
    }
  }

  /** The exception for what a call failed with. */
  LemanException explain(Throwable failure) {
    return closed ? closedError(failure) : LemanException.from(failure);
  }

  /** What work in the pool fails with: it was interrupted, where the client was closed. */
  Throwable orClosed(Throwable failure) {
    return closed && !(failure instanceof Error) ? closedError(failure) : failure;
  }

  /** The status that a call ends with, also for stubs: {@link LemanException#from} knows it. */
  Status told(Status status) {
    return closed && !status.isOk()
        ? LemanException.status(closedError(status.asRuntimeException()))
        : status;
  }

  private static LemanException closedError(Throwable cause) {
    if (cause instanceof LemanException known && known.reason().equals(LemanException.CLOSED)) {
      return known;
    }
    return new LemanException(
        Status.Code.CANCELLED, LemanException.CLOSED, "the client was closed", cause);
  }

  private static boolean carriesRequestId(Object request) {
    if (!(request instanceof Message message)) {
      return false;
    }
    FieldDescriptor field = message.getDescriptorForType().findFieldByName("request_id");
    return field != null && !((String) message.getField(field)).isEmpty();
  }

  /** Ends all calls, and the threads: what callers do in one of these may take some seconds. */
  void close() {
    closed = true;
    closing.countDown();
    timer.shutdownNow();
    tokens.close(closedError(null));
    try {
      atClose.run();
    } finally {
      endChannels();
    }
  }

  private void endChannels() {
    try {
      endpoints.close();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt(); // nor are the threads waited for
    } finally {
      endThreads();
    }
  }

  private void endThreads() {
    try {
      threads.end(pool, Duration.ofSeconds(1));
    } catch (InterruptedException interrupted) {
      pool.shutdownNow();
      Thread.currentThread().interrupt();
    } finally {
      ends.run();
    }
  }
}
