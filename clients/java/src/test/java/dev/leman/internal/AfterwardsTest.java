package dev.leman.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class AfterwardsTest {
  private final Afterwards afterwards = new Afterwards();
  private final List<Integer> done = new ArrayList<>();

  @Test
  void oneThatThrowsKeepsNoOtherOneFromBeingDone() {
    IntStream.range(0, 20).forEach(number -> afterwards.add(() -> done.add(number)));
    afterwards.add(
        () -> {
          throw new IllegalStateException("no");
        });
    assertEquals("no", assertThrows(IllegalStateException.class, afterwards::run).getMessage());
    assertEquals(20, done.size());
    afterwards.run();
    assertEquals(20, done.size());
  }

  @Test
  void anErrorIsThrownOnceAllIsDone() {
    afterwards.add(
        () -> {
          throw new AssertionError("no");
        });
    IntStream.range(0, 20).forEach(number -> afterwards.add(() -> done.add(number)));
    assertEquals("no", assertThrows(AssertionError.class, afterwards::run).getMessage());
    assertEquals(20, done.size());
  }

  @Test
  void whatIsTakenBackIsNotDoneAndWhatComesLaterIsDoneAtOnce() {
    Runnable taken = () -> done.add(1);
    afterwards.add(taken);
    assertTrue(afterwards.takeBack(taken));
    afterwards.run();
    assertEquals(List.of(), done);
    Runnable late = () -> done.add(2);
    afterwards.add(late);
    assertEquals(List.of(2), done);
    assertFalse(afterwards.takeBack(late));
  }
}
