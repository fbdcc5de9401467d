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
 * The current token, for all calls; safe for use by several threads. It runs the source in a thread
 * of the client, so that a call waits for it no longer than its deadline.
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

  /** Return whether there is a token or a source. */
  boolean given() {
    return renewable || !last.isEmpty();
  }

  /** Return whether {@link #current} returns without waiting. */
  synchronized boolean isAtHand() {
    return last != null && asking == null;
  }

  /**
   * Return the token, or an empty string if there is none.
   *
   * @param pool where to run the source, if necessary
   * @param deadline until when to wait for it; null: no limit
   * @throws LemanException the failure of the source; DEADLINE_EXCEEDED, with a {@link
   *     TimeoutException} as its cause, if it supplied no token in time
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
   * Call the source again, unless another call did so since {@code refused} was sent. Returns false
   * if there is no source. Waits and fails like {@link #current}.
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

  /**
   * Call the source no more, and interrupt it: calls that wait for it, now or later, fail with this
   * exception.
   */
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

  /** Return the running request to the source, or start one. */
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

  /** A running request to the source, for all calls that wait for it. */
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
    } catch (Throwable failure) { // also an Error: calls wait for the outcome
      throw failed(failure);
    }
    if (found == null) {
      throw new LemanException(
          Status.Code.UNAUTHENTICATED, "", "the source of tokens gave null", null);
    }
    return checked(found);
  }

  /** Check a token: throws, without showing it, if no call can carry it. */
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
