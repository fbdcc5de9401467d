package dev.leman;

import dev.leman.internal.Arguments;
import java.util.Iterator;
import java.util.concurrent.Flow;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.function.Supplier;

/**
 * Publishes the items of an iterator. Each subscriber has an iterator and a thread of the client of
 * its own. Items are only read when a subscriber requests them.
 */
final class IteratorPublisher<T, I extends IteratorPublisher.Source<T>>
    implements Flow.Publisher<T> {
  /** An iterator that holds resources. */
  interface Source<T> extends Iterator<T>, AutoCloseable {
    @Override
    void close();
  }

  private final Connections connections;
  private final Supplier<I> opened;

  IteratorPublisher(Connections connections, Supplier<I> opened) {
    this.connections = connections;
    this.opened = opened;
  }

  @Override
  public void subscribe(Flow.Subscriber<? super T> subscriber) {
    Arguments.given("subscriber", subscriber);
    Delivery delivery = new Delivery(subscriber);
    try {
      delivery.start();
    } catch (RejectedExecutionException closed) {
      subscriber.onSubscribe(delivery);
      subscriber.onError(connections.explain(closed));
    }
  }

  private final class Delivery implements Flow.Subscription, Runnable {
    private final Flow.Subscriber<? super T> subscriber;
    private final Semaphore asked = new Semaphore(0);
    private final Runnable wake = () -> request(1);
    private volatile boolean cancelled;
    private volatile Throwable refused;
    private volatile Thread thread;

    Delivery(Flow.Subscriber<? super T> subscriber) {
      this.subscriber = subscriber;
    }

    void start() {
      connections.pool.execute(this);
    }

    @Override
    public synchronized void request(long items) {
      if (items <= 0) {
        refused = new IllegalArgumentException("request() takes a number above 0, not " + items);
      }
      long more = Math.max(1, items);
      asked.release((int) Math.min(more, Integer.MAX_VALUE - asked.availablePermits()));
    }

    @Override
    public void cancel() {
      cancelled = true;
      Thread delivering = thread;
      if (delivering != null && delivering != Thread.currentThread()) {
        delivering.interrupt();
      }
    }

    @Override
    public void run() {
      thread = Thread.currentThread();
      connections.atClose.add(wake);
      subscriber.onSubscribe(this);
      try (I items = opened.get()) {
        deliver(items);
      } catch (Exception failure) {
        if (!cancelled) {
          subscriber.onError(connections.orClosed(failure));
        }
      } finally {
        connections.atClose.takeBack(wake);
        thread = null;
        Thread.interrupted(); // clear the interrupt of a cancel before the pool reuses the thread
      }
    }

    private void deliver(I items) throws InterruptedException {
      while (!cancelled && items.hasNext()) {
        asked.acquire();
        connections.checkOpen();
        if (refused != null) {
          cancelled = true;
          subscriber.onError(refused);
          return;
        }
        if (!cancelled) {
          subscriber.onNext(items.next());
        }
      }
      if (!cancelled) {
        subscriber.onComplete();
      }
    }
  }
}
