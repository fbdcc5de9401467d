package dev.leman;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;

/**
 * How long one operation may wait for services that are away: growing pauses, so many seconds in
 * all.
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

  /** Something came: what is away next time is waited for again. */
  void reset() {
    end = System.nanoTime() + all.toNanos();
    next = FIRST;
    renewed = false;
    losses = 0;
  }

  /** How much of it is left. */
  Duration left() {
    return Duration.ofNanos(Math.max(0, end - System.nanoTime()));
  }

  /** Whether a token may be renewed: the first time that this is asked. */
  boolean mayRenew() {
    boolean may = !renewed;
    renewed = true;
    return may;
  }

  /**
   * Whether a call that failed so may be made again: one that loses its connection twice while it
   * runs may be what ends the services.
   */
  boolean mayLose(LemanException failure) {
    losses += failure.lostConnection() ? 1 : 0;
    return losses < MOST_LOSSES;
  }

  /**
   * How long to wait before another attempt, no shorter than {@code atLeast}; null: no more
   * attempts.
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
