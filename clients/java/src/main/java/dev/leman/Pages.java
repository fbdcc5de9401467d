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
 * A list that comes in pages: each is asked for when it is needed, and every iteration begins with
 * the first. Iterating fails with {@link LemanException}.
 */
public final class Pages<T> implements Iterable<T> {
  private static final int MOST = 1000;

  private final Listing<T> listing;
  private final long limit;

  /** One page, and what the next one is asked for by; empty: there is none. */
  record Page<T>(List<T> items, String next, List<String> warnings) {
    Page(List<T> items, String next) {
      this(items, next, List.of());
    }
  }

  /** Asks for a page. */
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

  /** The first of these items, so many at the most. */
  public Pages<T> limit(long items) {
    Arguments.notNegative("items", items);
    return new Pages<>(listing, Math.min(limit, items));
  }

  /** All items, one after the other. */
  public Stream<T> stream() {
    return StreamSupport.stream(spliterator(), false);
  }

  /** All items at once. */
  public List<T> toList() {
    return stream().toList();
  }

  @Override
  public Iterator<T> iterator() {
    return iterator(warning -> {});
  }

  /**
   * As {@link #iterator()}. What the services left out, because it is damaged, is told to {@code
   * warned}.
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
