package dev.leman;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Limits how long one operation waits for unavailable services: growing pauses, up to a total time.
 */
final class Patience {
  private static final Duration FIRST = Duration.ofMillis(50);
  private static final Duration LONGEST = Duration.ofSeconds(1);
  private static final int MOST_LOSSES = 2;

  private final Duration all;
  private long end;
  private Duration next;
  private boolean renewed;
  private int losses;

  Patience(Duration all) {
    this.all = all;
    reset();
  }

  /** Start over after progress. */
  void reset() {
    end = System.nanoTime() + all.toNanos();
    next = FIRST;
    renewed = false;
    losses = 0;
  }

  /** The remaining time. */
  Duration left() {
    return Duration.ofNanos(Math.max(0, end - System.nanoTime()));
  }

  /** Return true the first time: a token may be renewed once. */
  boolean mayRenew() {
    boolean may = !renewed;
    renewed = true;
    return may;
  }

  /**
   * Return whether a call with this failure may be retried. A call that lost its connection twice
   * while it ran may be what crashes the services.
   */
  boolean mayLose(LemanException failure) {
    losses += failure.lostConnection() ? 1 : 0;
    return losses < MOST_LOSSES;
  }

  /**
   * Return how long to wait before another attempt, at least {@code atLeast}; null: do not retry.
   */
  Duration pause(Duration atLeast) {
    long jittered = (long) (next.toNanos() * ThreadLocalRandom.current().nextDouble(0.5, 1.0));
    long wanted = Math.max(jittered, atLeast.toNanos());
    if (System.nanoTime() + wanted - end > 0) {
      return null;
    }
    Duration doubled = next.multipliedBy(2);
    next = doubled.compareTo(LONGEST) < 0 ? doubled : LONGEST;
    return Duration.ofNanos(wanted);
  }
}
