package dev.leman.internal;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Actions that run once when something is over, unless they are withdrawn before. An action that is
 * added later runs at once.
 */
public final class Afterwards {
  private final Set<Runnable> acts = ConcurrentHashMap.newKeySet();
  private volatile boolean over;

  /** Add a quick action. */
  public void add(Runnable act) {
    acts.add(act);
    if (over && takeBack(act)) {
      act.run();
    }
  }

  /** Withdraw an action; returns false if it has run, or is running. */
  public boolean takeBack(Runnable act) {
    return acts.remove(act);
  }

  /**
   * Run all actions.
   *
   * @throws RuntimeException the exception or Error of the first action that failed; the others run
   *     regardless
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
