package dev.leman.internal;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Makes the daemon threads of executors, and waits until they have ended: an executor is terminated
 * shortly before its last thread has ended.
 */
public final class Threads implements ThreadFactory {
  private final String name;
  private final AtomicInteger numbers = new AtomicInteger();
  private final Set<Thread> made = ConcurrentHashMap.newKeySet();

  /** Create threads with the names {@code name-1} and so on. */
  public Threads(String name) {
    this.name = name;
  }

  @Override
  public Thread newThread(Runnable work) {
    Thread thread = new Thread(work, name + "-" + numbers.incrementAndGet());
    thread.setDaemon(true);
    made.removeIf(other -> other.getState() == Thread.State.TERMINATED);
    made.add(thread);
    return thread;
  }

  /**
   * Return an executor that loses no work: when the other one rejects it, the calling thread runs
   * it. Use it for what ends calls, so that everyone who waits for them is notified.
   */
  public static Executor lasting(Executor executor) {
    return work -> {
      AtomicBoolean begun = new AtomicBoolean();
      try {
        executor.execute(
            () -> {
              begun.set(true);
              work.run();
            });
      } catch (RejectedExecutionException ended) {
        if (begun.get()) {
          throw ended; // the work ran in this thread, and threw this itself
        }
        work.run();
      }
    };
  }

  /**
   * Wait until every thread has ended, except the calling one.
   *
   * @return false if some are left after this time
   */
  public boolean join(Duration atMost) throws InterruptedException {
    long end = System.nanoTime() + atMost.toNanos();
    for (Thread thread : made) {
      if (thread != Thread.currentThread()) {
        TimeUnit.NANOSECONDS.timedJoin(thread, Math.max(1, end - System.nanoTime()));
        if (thread.isAlive()) {
          return false;
        }
      }
    }
    return true;
  }

  /**
   * Shut down an executor of these threads. Its work may run on for this time, is then interrupted,
   * and has the same time again to end.
   */
  public void end(ExecutorService executor, Duration each) throws InterruptedException {
    executor.shutdown();
    if (!join(each)) {
      executor.shutdownNow();
      join(each);
    }
  }
}
