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
 * The channels to the endpoints, and what each call carries. It is the {@link Channel} of generated
 * stubs: their calls carry the token and are retried while services restart.
 */
final class Connections extends Channel {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Metadata.Key<String> REQUEST_ID =
      Metadata.Key.of("x-request-id", Metadata.ASCII_STRING_MARSHALLER);

  private static final MethodDescriptor<GetInfoRequest, GetInfoResponse> INFO =
      InfoServiceGrpc.getGetInfoMethod();

  /** The default timeout of a call, by service. */
  private static final Map<String, Duration> DEADLINES =
      Map.of(
          "leman.v1.InfoService", Duration.ofSeconds(10),
          "leman.v1.CatalogService", Duration.ofMinutes(1),
          "leman.v1.DatabaseService", Duration.ofMinutes(1),
          "leman.v1.PlannerService", Duration.ofMinutes(5),
          "leman.v1.JobService", Duration.ofMinutes(5),
          "leman.v1.CommitService", Duration.ofMinutes(10),
          "leman.v1.TableService", Duration.ofMinutes(10));

  /** Runs blocking work; rejects it after the close. */
  final ExecutorService pool;

  /** Runs callbacks of calls, also after the close. */
  private final Executor executor;

  private final ScheduledExecutorService timer;
  private final Threads threads;
  private final CountDownLatch closing = new CountDownLatch(1);

  /** Actions that the close runs before it waits for anything. */
  final Afterwards atClose = new Afterwards();

  /** Actions that the close runs last, for work that has not ended otherwise. */
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

  /** Set how long operations wait for unavailable services. */
  void waitFor(Duration time) {
    patience = time;
  }

  /**
   * Refuse calls with a token of their own, which would be sent there unencrypted; null: refuse
   * none.
   */
  void showNoTokenTo(String address) {
    exposed = address;
  }

  /** Return a new limit on how long one operation may wait for the services. */
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

  /** Return a plain call to the endpoint that answered last. */
  <Q, A> ClientCall<Q, A> bare(MethodDescriptor<Q, A> method, CallOptions options) {
    return endpoints.current().newCall(method, options);
  }

  /** Return whether an endpoint is known to answer. */
  boolean isSettled() {
    return closed || endpoints.isSettled();
  }

  /**
   * Wait until an endpoint answers, and return false if none does. The search sends them the token.
   */
  boolean settle(Duration atMost) {
    return closed || endpoints.settle(endpoint -> ask(endpoint, atMost), atMost);
  }

  private CompletableFuture<GetInfoResponse> ask(Channel endpoint, Duration atMost) {
    CallOptions options = within(atMost).withExecutor(executor);
    return info(new CarryingCall<>(this, options, endpoint.newCall(INFO, options)));
  }

  /** Wait up to this time for the first response. */
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

  /** Make a call with a single response. Cancelling the future ends the call. */
  <Q, A, T> CompletableFuture<T> unary(
      MethodDescriptor<Q, A> method, Q request, Function<A, T> read) {
    ListenableFuture<A> answer =
        ClientCalls.futureUnaryCall(newCall(method, CallOptions.DEFAULT), request);
    return Futures.of(answer, read, this);
  }

  /** Open a stream of responses; {@code time} limits its duration, null: no limit. */
  <Q, A> Answers<Q, A> answers(MethodDescriptor<Q, A> method, Q request, Duration time) {
    checkOpen();
    CallOptions options = time == null ? CallOptions.DEFAULT : within(time);
    return new Answers<>(newCall(method, options), request, this);
  }

  /** Return the options for one attempt at a call. */
  CallOptions timed(MethodDescriptor<?, ?> method, CallOptions options) {
    Duration usual = DEADLINES.get(method.getServiceName());
    boolean given =
        options.getDeadline() != null || method.getType() != MethodDescriptor.MethodType.UNARY;
    return given || usual == null
        ? options
        : options.withDeadlineAfter(usual.toMillis(), TimeUnit.MILLISECONDS);
  }

  /**
   * Add what each call carries, and return the token, or an empty string.
   *
   * @param deadline until when to wait for the token source; null: no limit
   * @throws LemanException if there is no token, or the client was closed
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

  /** Return whether a call with these headers, which the caller set, needs not wait for a token. */
  boolean isTokenAtHand(Metadata headers) {
    return closed || tokens.isAtHand() || headers.containsKey(AUTHORIZATION);
  }

  /** Return the token, see {@link Tokens#current}. */
  String token(Deadline deadline) {
    return orClosed(() -> tokens.current(pool, deadline));
  }

  /**
   * Get another token from the source, see {@link Tokens#renew}; returns false if there is no
   * source.
   */
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
   * Return whether a call may be retried after its {@code attempt}th attempt failed with this code.
   */
  boolean repeatable(
      MethodDescriptor<?, ?> method, Object request, LemanException failure, int attempt) {
    if (closed) {
      return false;
    }
    RetryPolicy.Rule rule = policy.rule(method.getFullMethodName());
    if (failure.is(ErrorReason.FUNCTION_UNAVAILABLE)) {
      return false; // the services are there; the caller has to start the function server
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
   * Return how long to wait after a failed attempt; null: do not retry. The next attempt goes to
   * another endpoint.
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
   * After a stream was interrupted, pause until it can be opened again.
   *
   * @throws LemanException if a retry is not worthwhile
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

  /**
   * Like {@link #beforeNextStream}; uploads also wait while the services are at their limit of
   * uploads.
   */
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

  /** Sleep, unless the thread is interrupted or the client is closed. */
  void sleep(Duration pause) {
    try {
      if (closing.await(pause.toNanos(), TimeUnit.NANOSECONDS)) {
        throw closedError(null);
      }
    } catch (InterruptedException interrupted) {
      throw Futures.interrupted(interrupted);
    }
  }

  /** Run something in a thread of the client after a pause, or when the client is closed. */
  Pause later(Runnable act, Duration wait) {
    Pause pause = new Pause(act);
    atClose.add(pause);
    try {
      pause.timed = timer.schedule(pause::end, wait.toNanos(), TimeUnit.NANOSECONDS);
    } catch (RejectedExecutionException closed) {
      return pause; // the close has run it, or is running it
    }
    return pause;
  }

  /** A delayed action, which runs at most once. */
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

  /** Let the future of work in the pool fail at the close if its thread has not ended by then. */
  void endsAtClose(CompletableFuture<?> future) {
    Runnable end = () -> future.completeExceptionally(closedError(null));
    ends.add(end);
    future.whenComplete((result, failure) -> ends.takeBack(end));
  }

  /** Throw if the client is closed. */
  void checkOpen() {
    if (closed) {
      throw closedError(null);
    }
  }

  /** Return the exception for the failure of a call. */
  LemanException explain(Throwable failure) {
    return closed ? closedError(failure) : LemanException.from(failure);
  }

  /**
   * Return the failure of work in the pool. If it was interrupted by the close, that is the
   * exception of a closed client.
   */
  Throwable orClosed(Throwable failure) {
    return closed && !(failure instanceof Error) ? closedError(failure) : failure;
  }

  /**
   * Return the status with which a call ends, also in stubs; {@link LemanException#from} can read
   * it.
   */
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

  /**
   * End all calls and threads. Callbacks of callers that run in these threads have a few seconds to
   * end.
   */
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
      Thread.currentThread().interrupt(); // do not wait for the threads either
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
