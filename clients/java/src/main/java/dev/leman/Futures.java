package dev.leman;

import com.google.common.util.concurrent.FutureCallback;
import com.google.common.util.concurrent.ListenableFuture;
import com.google.common.util.concurrent.MoreExecutors;
import io.grpc.Status;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.Function;
import java.util.function.Supplier;

/** Converts between futures of gRPC and of the JDK. */
final class Futures {
  private Futures() {}

  /**
   * Return a future that ends the call when it is cancelled, and fails with {@link LemanException}.
   */
  static <A, T> CompletableFuture<T> of(
      ListenableFuture<A> call, Function<A, T> read, Connections connections) {
    CompletableFuture<T> result = new CallFuture<>(call);
    com.google.common.util.concurrent.Futures.addCallback(
        call,
        new FutureCallback<A>() {
          @Override
          public void onSuccess(A answer) {
            try {
              result.complete(read.apply(answer));
            } catch (RuntimeException unreadable) {
              result.completeExceptionally(unreadable);
            }
          }

          @Override
          public void onFailure(Throwable failure) {
            result.completeExceptionally(connections.explain(failure));
          }
        },
        MoreExecutors.directExecutor());
    return result;
  }

  /** Run blocking work in a thread of the client. Cancelling the future interrupts it. */
  static <T> CompletableFuture<T> run(Connections connections, Supplier<T> work) {
    BlockingFuture<T> result = new BlockingFuture<>();
    connections.endsAtClose(result);
    try {
      result.start(connections, work);
    } catch (RejectedExecutionException closed) {
      result.completeExceptionally(connections.explain(closed));
    }
    return result;
  }

  /**
   * Wait for a future.
   *
   * @throws LemanException the failure of the future
   */
  static <T> T get(CompletableFuture<T> future) {
    try {
      return future.get();
    } catch (InterruptedException interrupted) {
      future.cancel(true);
      throw interrupted(interrupted);
    } catch (CancellationException cancelled) {
      throw new LemanException(Status.Code.CANCELLED, "", "the call was cancelled", cancelled);
    } catch (ExecutionException failure) {
      throw here(failure.getCause());
    }
  }

  /** Return the exception for an interrupted thread, which stays interrupted. */
  static LemanException interrupted(InterruptedException cause) {
    Thread.currentThread().interrupt();
    return new LemanException(
        Status.Code.CANCELLED, "", "the thread was interrupted while it waited", cause);
  }

  /** Return the failure of another thread, with the place where the caller waited for it. */
  static RuntimeException here(Throwable failure) {
    if (failure instanceof Error error) {
      throw error;
    }
    if (failure instanceof RuntimeException known) {
      known.addSuppressed(new Waited());
      return known;
    }
    return LemanException.from(failure);
  }

  /** The place where the caller waited, for a failure that occurred in another thread. */
  private static final class Waited extends Exception {
    private static final long serialVersionUID = 1L;

    Waited() {
      super("waited for here");
    }
  }

  private static final class CallFuture<A, T> extends CompletableFuture<T> {
    private final ListenableFuture<A> call;

    CallFuture(ListenableFuture<A> call) {
      this.call = call;
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      boolean cancelled = super.cancel(mayInterrupt);
      call.cancel(mayInterrupt);
      return cancelled;
    }
  }

  private static final class BlockingFuture<T> extends CompletableFuture<T> {
    private volatile Future<?> running;

    void start(Connections connections, Supplier<T> work) {
      running =
          connections.pool.submit(
              () -> {
                try {
                  complete(work.get());
                } catch (Throwable failure) {
                  completeExceptionally(connections.orClosed(failure));
                }
              });
    }

    @Override
    public boolean cancel(boolean mayInterrupt) {
      boolean cancelled = super.cancel(mayInterrupt);
      if (running != null) {
        running.cancel(true);
      }
      return cancelled;
    }
  }
}
