package dev.leman.internal;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What is done when something is over, once, unless it was taken back by then. What is added later
 * is done at once.
 */
public final class Afterwards {
  private final Set<Runnable> acts = ConcurrentHashMap.newKeySet();
  private volatile boolean over;

  /** Have something quick done. */
  public void add(Runnable act) {
    acts.add(act);
    if (over && takeBack(act)) {
      act.run();
    }
  }

  /** It is not to be done any more; false: it was, or is now. */
  public boolean takeBack(Runnable act) {
    return acts.remove(act);
  }

  /**
   * It is over: do all of it.
   *
   * @throws RuntimeException what the first one threw that did, or its Error; the others are done
   *     all the same
   */
  public void run() {
    over = true;
    Throwable first = null;
    for (Runnable act : acts) {
      try {
        if (takeBack(act)) {
          act.run();
        }
      } catch (RuntimeException | Error thrown) {
        first = first == null ? thrown : first;
      }
    }
    if (first instanceof RuntimeException thrown) {
      throw thrown;
    }
    if (first instanceof Error thrown) {
      throw thrown;
    }
  }
}
