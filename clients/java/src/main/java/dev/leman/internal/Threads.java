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
 * Makes the daemon threads of executors, and waits for their end: an executor is terminated an
 * instant before its last thread has ended.
 */
public final class Threads implements ThreadFactory {
  private final String name;
  private final AtomicInteger numbers = new AtomicInteger();
  private final Set<Thread> made = ConcurrentHashMap.newKeySet();

  /** Its threads are called {@code name-1} and so on. */
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
   * An executor that loses nothing: once the other one takes no more, its caller's thread does the
   * work. What ends calls goes here, so that anyone who waits for an end is told of it.
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
          throw ended; // the work was done in this thread, and another executor has refused it
        }
        work.run();
      }
    };
  }

  /**
   * Wait until every thread has ended, but the calling one.
   *
   * @return false: some are left after this time
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
   * End an executor of these threads: what they work at may end within this time, is interrupted
   * then, and has as much time again.
   */
  public void end(ExecutorService executor, Duration each) throws InterruptedException {
    executor.shutdown();
    if (!join(each)) {
      executor.shutdownNow();
      join(each);
    }
  }
}
