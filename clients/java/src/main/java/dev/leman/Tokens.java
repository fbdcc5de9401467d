package dev.leman;

import io.grpc.Deadline;
import io.grpc.Status;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The token that calls carry now. Safe for use by several threads: what a source said last counts
 * for all of them. A source is asked in a thread of the client, so that no one waits for it longer
 * than his call may last.
 */
final class Tokens {
  private final TokenSource source;
  private final boolean renewable;
  private String last;
  private Asking asking;
  private LemanException closed;

  private Tokens(TokenSource source, boolean renewable, String last) {
    this.source = source;
    this.renewable = renewable;
    this.last = last;
  }

  static Tokens fixed(String token) {
    return new Tokens(() -> token, false, checked(token));
  }

  static Tokens from(TokenSource source) {
    return new Tokens(source, true, null);
  }

  /** Whether there is a token, or a source of them. */
  boolean given() {
    return renewable || !last.isEmpty();
  }

  /** Whether {@link #current} waits needlessly. */
  synchronized boolean isAtHand() {
    return last != null && asking == null;
  }

  /**
   * The token; empty: none.
   *
   * @param pool where the source is asked, if it has to be
   * @param deadline until when it is waited for; null: for ever
   * @throws LemanException what the source failed with; DEADLINE_EXCEEDED, with a {@link
   *     TimeoutException} as its cause, where it gave none in time
   */
  String current(ExecutorService pool, Deadline deadline) {
    Asking asked;
    synchronized (this) {
      if (isAtHand()) {
        return last;
      }
      asked = ask(pool);
    }
    return asked.await(deadline);
  }

  /**
   * Ask the source again, unless another call did so since {@code refused} was sent; false: there
   * is no source. Waits and fails as {@link #current}.
   */
  boolean renew(String refused, ExecutorService pool, Deadline deadline) {
    if (!renewable) {
      return false;
    }
    Asking asked;
    synchronized (this) {
      if (asking == null && !refused.equals(last)) {
        return true;
      }
      asked = ask(pool);
    }
    asked.await(deadline);
    return true;
  }

  /** Ask no more, and interrupt the source: anyone who waits for it, or will, fails with this. */
  void close(LemanException failure) {
    Asking asked;
    synchronized (this) {
      closed = failure;
      asked = asking;
    }
    if (asked != null) {
      asked.told.completeExceptionally(failure);
      asked.thread.cancel(true);
    }
  }

  /** The asking that is under way, or a new one. */
  private Asking ask(ExecutorService pool) {
    if (closed != null) {
      throw closed;
    }
    if (asking == null) {
      Asking begun = new Asking();
      begun.thread = pool.submit(begun);
      asking = begun;
    }
    return asking;
  }

  /** The source at work, for all calls that wait for it. */
  private final class Asking implements Runnable {
    private final CompletableFuture<String> told = new CompletableFuture<>();
    private Future<?> thread;

    @Override
    public void run() {
      try {
        String found = found();
        end(found);
        told.complete(found);
      } catch (LemanException failure) {
        end(null);
        told.completeExceptionally(failure);
      }
    }

    private void end(String found) {
      synchronized (Tokens.this) {
        asking = null;
        last = found == null ? last : found;
      }
    }

    String await(Deadline deadline) {
      try {
        return deadline == null
            ? told.get()
            : told.get(deadline.timeRemaining(TimeUnit.NANOSECONDS), TimeUnit.NANOSECONDS);
      } catch (InterruptedException interrupted) {
        throw Futures.interrupted(interrupted);
      } catch (ExecutionException failure) {
        throw Futures.here(failure.getCause());
      } catch (TimeoutException late) {
        String message = "the source of tokens gave none in time, so that nothing was sent";
        throw new LemanException(Status.Code.DEADLINE_EXCEEDED, "", message, late);
      }
    }
  }

  private String found() {
    String found;
    try {
      found = source.token();
    } catch (Throwable failure) { // an error, too: calls wait for the end of this
      throw failed(failure);
    }
    if (found == null) {
      throw new LemanException(
          Status.Code.UNAUTHENTICATED, "", "the source of tokens gave null", null);
    }
    return checked(found);
  }

  /** The token, which no message shows; refused where no call can carry it. */
  private static String checked(String token) {
    if (token == null || !token.chars().allMatch(letter -> letter > ' ' && letter < 0x7f)) {
      throw Addresses.refused(
          "token",
          "the token is null, or has a blank, a line end or a letter beyond ASCII: no token of"
              + " services has; give it without, such as by strip()",
          null);
    }
    return token;
  }

  private static LemanException failed(Throwable failure) {
    return new LemanException(
        Status.Code.UNAUTHENTICATED,
        "",
        "the source of tokens failed: " + failure.getMessage(),
        failure);
  }
}
