package dev.leman.internal;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ThreadsTest {
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final Duration SHORT = Duration.ofMillis(1);

  private final Threads threads = new Threads("test");
  private final ExecutorService pool = Executors.newCachedThreadPool(threads);
  private final CountDownLatch never = new CountDownLatch(1);

  @Test
  void itWaitsForTheThreadsThemselves() throws Exception {
    CountDownLatch ending = new CountDownLatch(1);
    Thread thread = threads.newThread(() -> assertDoesNotThrow(() -> ending.await()));
    thread.start();
    assertFalse(threads.join(SHORT));
    ending.countDown();
    assertTrue(threads.join(LONG));
    assertEquals(Thread.State.TERMINATED, thread.getState());
  }

  @Test
  void itDoesNotWaitForTheThreadThatAsks() throws Exception {
    Future<Boolean> alone = pool.submit(() -> threads.join(LONG));
    assertTrue(alone.get());
    threads.end(pool, LONG);
  }

  @Test
  void whatDoesNotEndIsInterrupted() throws Exception {
    CountDownLatch began = new CountDownLatch(1);
    Future<String> told =
        pool.submit(
            () -> {
              began.countDown();
              try {
                never.await();
                return "went on";
              } catch (InterruptedException ended) {
                return "interrupted";
              }
            });
    began.await();
    threads.end(pool, SHORT);
    assertEquals("interrupted", told.get());
    assertTrue(threads.join(LONG));
  }

  @Test
  void whatWasDoneIsNotDoneAgainWhereItIsRefusedSomethingItself() {
    AtomicInteger done = new AtomicInteger();
    Runnable refused =
        () -> {
          done.incrementAndGet();
          throw new RejectedExecutionException("by another one");
        };
    assertThrows(
        RejectedExecutionException.class, () -> Threads.lasting(Runnable::run).execute(refused));
    assertEquals(1, done.get());
  }

  @Test
  void whatComesLaterIsDoneByWhoeverBringsIt() throws Exception {
    AtomicReference<Thread> did = new AtomicReference<>();
    CountDownLatch done = new CountDownLatch(1);
    Threads.lasting(pool)
        .execute(
            () -> {
              did.set(Thread.currentThread());
              done.countDown();
            });
    done.await();
    assertNotSame(Thread.currentThread(), did.get());
    threads.end(pool, LONG);
    Threads.lasting(pool).execute(() -> did.set(Thread.currentThread()));
    assertSame(Thread.currentThread(), did.get());
  }
}
