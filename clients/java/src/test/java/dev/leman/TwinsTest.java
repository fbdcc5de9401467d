package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import org.junit.jupiter.api.Test;

/** Each call with a single response exists twice: one method waits, the other returns a future. */
class TwinsTest {
  private static final List<Class<?>> CALLING =
      List.of(
          LemanClient.class,
          Database.class,
          Databases.class,
          Relation.class,
          Table.class,
          View.class,
          JobHandle.class);

  /** Results with several items, which exist as iterators and as publishers. */
  private static final Set<Class<?>> STREAMS =
      Set.of(Pages.class, Rows.class, JobWatch.class, Verification.class, Flow.Publisher.class);

  /** Methods that make no call. */
  private static final Set<String> NO_CALLS =
      Set.of(
          "Database.job",
          "Database.name",
          "Database.table",
          "Database.view",
          "JobHandle.id",
          "LemanClient.builder",
          "LemanClient.channel",
          "LemanClient.close",
          "LemanClient.database",
          "LemanClient.databases",
          "Relation.name");

  private static final Set<String> OF_ALL = Set.of("toString", "withRequestId");

  private final List<String> alone = new ArrayList<>();
  private int pairs;

  @Test
  void eachCallThatAnswersOnceHasItsTwin() {
    for (Class<?> type : CALLING) {
      for (Method method : type.getDeclaredMethods()) {
        if (Modifier.isPublic(method.getModifiers()) && !method.isBridge()) {
          look(type, method);
        }
      }
    }
    assertEquals(List.of(), alone);
    assertTrue(pairs > 50, pairs + " pairs");
  }

  private void look(Class<?> type, Method method) {
    String name = method.getName();
    boolean async = method.getReturnType() == CompletableFuture.class;
    boolean calls =
        !OF_ALL.contains(name)
            && !NO_CALLS.contains(type.getSimpleName() + "." + name)
            && !STREAMS.contains(method.getReturnType());
    if (!calls) {
      return;
    }
    String twin = async ? name.replaceFirst("Async$", "") : name + "Async";
    try {
      Method other = type.getDeclaredMethod(twin, method.getParameterTypes());
      Type given = async ? other.getGenericReturnType() : method.getGenericReturnType();
      Type promised = async ? method.getGenericReturnType() : other.getGenericReturnType();
      assertEquals(boxed(given), ((ParameterizedType) promised).getActualTypeArguments()[0], name);
      pairs++;
    } catch (NoSuchMethodException missing) {
      alone.add(type.getSimpleName() + "." + name + Arrays.toString(method.getParameterTypes()));
    }
  }

  private static Type boxed(Type type) {
    return Map.<Type, Type>of(void.class, Void.class, long.class, Long.class)
        .getOrDefault(type, type);
  }
}
