package dev.leman;

import dev.leman.internal.Arguments;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A list that is fetched in pages, when they are needed; every iteration starts with the first
 * page. Iterating fails with {@link LemanException}.
 */
public final class Pages<T> implements Iterable<T> {
  private static final int MOST = 1000;

  private final Listing<T> listing;
  private final long limit;

  /** One page, and the token of the next page; empty after the last one. */
  record Page<T>(List<T> items, String next, List<String> warnings) {
    Page(List<T> items, String next) {
      this(items, next, List.of());
    }
  }

  /** Fetches a page. */
  @FunctionalInterface
  interface Listing<T> {
    CompletableFuture<Page<T>> page(String token, int size);
  }

  Pages(Listing<T> listing) {
    this(listing, Long.MAX_VALUE);
  }

  private Pages(Listing<T> listing, long limit) {
    this.listing = listing;
    this.limit = limit;
  }

  /** Return only the first of these items, at most this number. */
  public Pages<T> limit(long items) {
    Arguments.notNegative("items", items);
    return new Pages<>(listing, Math.min(limit, items));
  }

  /** Return a stream of all items. */
  public Stream<T> stream() {
    return StreamSupport.stream(spliterator(), false);
  }

  /** Return a list of all items. */
  public List<T> toList() {
    return stream().toList();
  }

  @Override
  public Iterator<T> iterator() {
    return iterator(warning -> {});
  }

  /**
   * Like {@link #iterator()}, but call {@code warned} for damaged items that the services left out.
   */
  public Iterator<T> iterator(Consumer<String> warned) {
    Arguments.given("warned", warned);
    return new Items(warned);
  }

  private final class Items implements Iterator<T> {
    private final Consumer<String> warned;
    private final Queue<T> held = new ArrayDeque<>();
    private String next = "";
    private boolean last;
    private long left = limit;

    Items(Consumer<String> warned) {
      this.warned = warned;
    }

    @Override
    public boolean hasNext() {
      while (held.isEmpty() && !last && left > 0) {
        Page<T> page = Futures.get(listing.page(next, (int) Math.min(MOST, left)));
        held.addAll(page.items());
        page.warnings().forEach(warned);
        next = page.next();
        last = next.isEmpty();
      }
      return left > 0 && !held.isEmpty();
    }

    @Override
    public T next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      left--;
      return held.remove();
    }
  }
}
