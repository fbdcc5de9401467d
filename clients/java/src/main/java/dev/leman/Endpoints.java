package dev.leman;

import io.grpc.Channel;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;

/**
 * The channels to the endpoints. While one endpoint is connected, calls go there. Otherwise the
 * endpoints are tried one after the other, and calls go to the first that answers.
 */
final class Endpoints {
  /** How long to wait for one endpoint before the next one is tried as well. */
  private static final Duration HEAD_START = Duration.ofMillis(250);

  /** How long to wait for all endpoints together. */
  private static final Duration SEARCH = Duration.ofSeconds(5);

  private static final Duration LEAST = Duration.ofSeconds(1);

  private final List<ManagedChannel> channels;
  private final AtomicReference<CompletableFuture<Boolean>> searching = new AtomicReference<>();
  private volatile int current;
  private volatile boolean left;

  Endpoints(List<ManagedChannel> channels) {
    this.channels = List.copyOf(channels);
  }

  /** The channel for calls. */
  Channel current() {
    return channels.get(current);
  }

  /** Try the next endpoint first, because the current one did not answer. */
  void leave() {
    int next = (current + 1) % channels.size();
    current = next;
    left = true;
    channels.get(next).resetConnectBackoff();
  }

  /** Return whether an endpoint can be called without {@link #settle}. */
  boolean isSettled() {
    return channels.size() == 1
        || (!left && channels.get(current).getState(false) == ConnectivityState.READY);
  }

  /**
   * Wait until an endpoint answers; concurrent callers share one search.
   *
   * @param ask calls an endpoint; a refusal counts as an answer, too
   * @return false if none answers within this time
   */
  boolean settle(Function<Channel, CompletableFuture<?>> ask, Duration atMost) {
    if (isSettled()) {
      return true;
    }
    CompletableFuture<Boolean> own = new CompletableFuture<>();
    CompletableFuture<Boolean> other = searching.compareAndExchange(null, own);
    if (other != null) {
      await(other, atMost);
      return other.getNow(false);
    }
    try {
      own.complete(search(ask, atMost.compareTo(SEARCH) < 0 ? atMost : SEARCH));
    } finally {
      searching.set(null);
      own.complete(false); // if the search was interrupted
    }
    return own.join();
  }

  /**
   * The shortest time for a search, so that it finds an endpoint even for a call without patience.
   */
  static Duration atLeast(Duration patience) {
    return patience.compareTo(LEAST) < 0 ? LEAST : patience;
  }

  private boolean search(Function<Channel, CompletableFuture<?>> ask, Duration atMost) {
    CompletableFuture<Integer> found = new CompletableFuture<>();
    List<CompletableFuture<?>> asked = new ArrayList<>();
    List<CompletableFuture<?>> ended = new ArrayList<>();
    int first = current;
    long end = System.nanoTime() + atMost.toNanos();
    try {
      for (int number = 0; number < channels.size() && !found.isDone(); number++) {
        int at = (first + number) % channels.size();
        channels.get(at).resetConnectBackoff();
        CompletableFuture<?> answer = ask.apply(channels.get(at));
        asked.add(answer);
        ended.add(answer.handle((told, failure) -> isThere(failure) && found.complete(at)));
        await(CompletableFuture.anyOf(found, ended.get(number)), HEAD_START);
      }
      CompletableFuture<Void> all =
          CompletableFuture.allOf(ended.toArray(CompletableFuture[]::new));
      await(CompletableFuture.anyOf(found, all), Duration.ofNanos(end - System.nanoTime()));
    } finally {
      asked.forEach(answer -> answer.cancel(true));
    }
    if (!found.isDone()) {
      return false;
    }
    current = found.join();
    left = false;
    return true;
  }

  private static boolean isThere(Throwable failure) {
    return failure == null
        || (failure instanceof LemanException refused
            && !refused.isForeign()
            && refused.code() != Status.Code.UNAVAILABLE
            && refused.code() != Status.Code.DEADLINE_EXCEEDED
            && refused.code() != Status.Code.CANCELLED);
  }

  private static void await(Future<?> awaited, Duration atMost) {
    try {
      awaited.get(Math.max(0, atMost.toNanos()), TimeUnit.NANOSECONDS);
    } catch (InterruptedException interrupted) {
      throw Futures.interrupted(interrupted);
    } catch (ExecutionException | TimeoutException over) {
      return; // each waiting caller checks for itself
    }
  }

  /** End all calls, and wait until the connections have ended. */
  void close() throws InterruptedException {
    channels.forEach(ManagedChannel::shutdownNow);
    for (ManagedChannel channel : channels) {
      channel.awaitTermination(5, TimeUnit.SECONDS);
    }
  }
}
