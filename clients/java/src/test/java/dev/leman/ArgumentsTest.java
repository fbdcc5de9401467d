package dev.leman;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.leman.functions.FunctionServer;
import dev.leman.functions.ServedFunction;
import dev.leman.v1.Job;
import io.grpc.Status;
import java.io.File;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

/** Each public method refuses null for each parameter, by its name, before it does anything. */
class ArgumentsTest {
  /**
   * Methods that allow null, for no limit or no message, or whose null {@code connect} or Java
   * itself refuses.
   */
  private static final Set<String> MAY_BE_NULL =
      Set.of(
          "FunctionDefinition$Kind.valueOf 0",
          "FunctionException.new 1",
          "JobHandle.await 0",
          "JobHandle.awaitAsync 0",
          "JobHandle.watch 0",
          "LemanClient.builder 0");

  private final RootAllocator memory = new RootAllocator();
  private final List<String> wrong = new ArrayList<>();
  private int tried;

  @Test
  void nullIsRefusedAtEachParameterOfEachMethod() throws Exception {
    try (Served served = Served.of()) {
      List<Object> objects = objects(served);
      for (Class<?> type : publicClasses()) {
        for (Constructor<?> made : type.getConstructors()) {
          tryNull(type, made, given -> made.newInstance(given));
        }
        for (Method method : type.getMethods()) {
          if (method.getDeclaringClass().getName().startsWith("dev.leman.")) {
            tryNull(type, method, objects);
          }
        }
      }
    }
    memory.close();
    assertEquals("", String.join("\n", wrong));
    assertTrue(tried > 230, tried + " parameters");
  }

  /** An object of each class whose methods have parameters. */
  private static List<Object> objects(Served served) {
    Database lake = served.database();
    return List.of(
        lake,
        lake.table("t"),
        lake.view("v"),
        lake.job("j"),
        served.client,
        served.client.databases(),
        lake.jobs(JobQuery.all()),
        new Pages<String>((token, size) -> null),
        JobException.of(Job.getDefaultInstance()),
        LemanException.from(new IllegalStateException()),
        LemanClient.builder("a:1"),
        FunctionDefinition.sql("a"),
        ReadOptions.all(),
        BackfillOptions.usual(),
        RefreshOptions.usual(),
        PreviewOptions.usual(),
        JobQuery.all(),
        ErrorQuery.all(),
        MergeRules.on("a"),
        ViewDefinition.of("a"),
        ColumnFunction.sql("a"),
        FunctionServer.builder(),
        ServedFunction.named("a"));
  }

  /**
   * The public classes, without generated code, internal packages and records that only results
   * have.
   */
  private static List<Class<?>> publicClasses() throws Exception {
    Path classes =
        Path.of(Database.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    List<Class<?>> found = new ArrayList<>();
    try (Stream<Path> files = Files.walk(classes.resolve("dev/leman"))) {
      for (Path file : (Iterable<Path>) files::iterator) {
        String name = classes.relativize(file).toString().replace(File.separatorChar, '.');
        if (name.matches("dev\\.leman\\.(?!v1\\.|internal\\.)[\\w.$]+\\.class")) {
          Class<?> type = Class.forName(name.substring(0, name.length() - ".class".length()));
          if (isPublic(type) && !type.isRecord()) {
            found.add(type);
          }
        }
      }
    }
    return found;
  }

  private static boolean isPublic(Class<?> type) {
    return Modifier.isPublic(type.getModifiers())
        && (type.getEnclosingClass() == null || isPublic(type.getEnclosingClass()));
  }

  @Test
  void anEmptyTokenAndNegativeTimesAreRefusedByTheirNames() {
    LemanClient.Builder builder = LemanClient.builder("a:1");
    assertNames("token", assertThrows(LemanException.class, () -> builder.token("")));
    Duration negative = Duration.ofSeconds(-5);
    assertNames("time", assertThrows(LemanException.class, () -> builder.patience(negative)));
    assertNames("time", assertThrows(LemanException.class, () -> builder.firstContact(negative)));
    builder.patience(Duration.ZERO).firstContact(Duration.ZERO);
  }

  @Test
  void whatIsNoNumberOfItemsAndNoSubscriberIsRefused() throws Exception {
    try (Served served = Served.of()) {
      Database lake = served.database();
      assertNames("items", assertThrows(LemanException.class, () -> lake.tables().limit(-3)));
      assertEquals(List.of(), lake.tables().limit(0).toList());
      var rows = lake.table("t").publish(ReadOptions.all(), memory);
      assertNames("subscriber", assertThrows(LemanException.class, () -> rows.subscribe(null)));
      var updates = lake.job("j").updates();
      assertNames("subscriber", assertThrows(LemanException.class, () -> updates.subscribe(null)));
    }
    memory.close();
  }

  private static void assertNames(String argument, LemanException refused) {
    assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
    assertEquals("BAD_REQUEST", refused.reason());
    assertEquals(
        List.of(argument),
        refused.fields().stream().map(LemanException.FieldViolation::field).toList());
  }

  @Test
  void nullWithinIsRefusedToo() throws Exception {
    try (Served served = Served.of()) {
      Table table = served.database().table("t");
      List<String> names = Arrays.asList("a", null);
      LemanException refused =
          assertThrows(LemanException.class, () -> table.dropColumns(names, false));
      assertEquals("columns", refused.fields().get(0).field());
      assertThrows(LemanException.class, () -> table.dropColumns("a", null));
      assertThrows(LemanException.class, () -> RowSource.of((VectorSchemaRoot) null));
      assertThrows(LemanException.class, () -> RowSource.once(null));
    }
  }

  private interface Invocation {
    void with(Object... given) throws ReflectiveOperationException;
  }

  private void tryNull(Class<?> type, Method method, List<Object> objects)
      throws ReflectiveOperationException {
    if (Modifier.isStatic(method.getModifiers())) {
      tryNull(type, method, given -> method.invoke(null, given));
    } else if (!Modifier.isAbstract(method.getModifiers()) && method.getParameterCount() > 0) {
      Object one =
          objects.stream()
              .filter(type::isInstance)
              .findFirst()
              .orElseThrow(() -> new IllegalStateException("there is no object for " + method));
      tryNull(type, method, given -> method.invoke(one, given));
    }
  }

  private void tryNull(Class<?> type, Executable called, Invocation invocation)
      throws ReflectiveOperationException {
    String of = type.getName().substring(type.getPackageName().length() + 1);
    String what = of + "." + (called instanceof Constructor ? "new" : called.getName());
    Class<?>[] types = called.getParameterTypes();
    for (int at = 0; at < types.length; at++) {
      String name = what + " " + at;
      if (types[at].isPrimitive() || MAY_BE_NULL.contains(name)) {
        continue;
      }
      Object[] given = new Object[types.length];
      for (int other = 0; other < types.length; other++) {
        given[other] = other == at ? null : some(called, other);
      }
      tried++;
      String came = outcome(invocation, given);
      if (!came.isEmpty()) {
        wrong.add(name + ": " + came);
      }
    }
  }

  private static String outcome(Invocation invocation, Object... given)
      throws ReflectiveOperationException {
    try {
      invocation.with(given);
      return "taken";
    } catch (InvocationTargetException thrown) {
      boolean refused =
          thrown.getCause() instanceof LemanException failed
              && failed.code() == Status.Code.INVALID_ARGUMENT
              && failed.fields().size() == 1;
      return refused ? "" : String.valueOf(thrown.getCause());
    }
  }

  private Object some(Executable called, int at) {
    Class<?> type = called.getParameterTypes()[at];
    if (type.isArray() && !type.getComponentType().isPrimitive()) {
      Object[] array = (Object[]) Array.newInstance(type.getComponentType(), 1);
      array[0] = some(called, type.getComponentType());
      return array;
    }
    return some(called, type);
  }

  private Object some(Executable called, Class<?> type) {
    if (type == Map.class) {
      boolean functions = called.toGenericString().contains("ColumnFunction");
      return Map.of("a", functions ? ColumnFunction.sql("a") : "a");
    }
    if (type.isEnum()) {
      return type.getEnumConstants()[0];
    }
    List<Object> known =
        List.of(
            ("a"),
            1,
            1L,
            true,
            List.of("a"),
            new byte[0],
            Duration.ofSeconds(1),
            Instant.EPOCH,
            Path.of("nowhere"),
            (Consumer<Object>) any -> {},
            (RowSource) () -> null,
            (TokenSource) () -> "t",
            new DictionaryProvider.MapDictionaryProvider(),
            VectorSchemaRoot.of(),
            memory,
            new Schema(List.of()),
            new ArrowType.Utf8(),
            Field.nullable("a", new ArrowType.Utf8()),
            ReadOptions.all(),
            BackfillOptions.usual(),
            RefreshOptions.usual(),
            PreviewOptions.usual(),
            JobQuery.all(),
            ErrorQuery.all(),
            MergeRules.on("a"),
            ViewDefinition.of("a"),
            ColumnFunction.sql("a"),
            FunctionDefinition.sql("a").build());
    for (Object one : known) {
      if (type.isInstance(one) || boxed(type) == one.getClass()) {
        return one;
      }
    }
    if (type == BufferAllocator.class) {
      return memory;
    }
    try {
      return type.getMethod("getDefaultInstance").invoke(null); // a message
    } catch (ReflectiveOperationException none) {
      throw new IllegalStateException("there is nothing to give " + called, none);
    }
  }

  private static Class<?> boxed(Class<?> type) {
    return type == int.class
        ? Integer.class
        : type == long.class ? Long.class : type == boolean.class ? Boolean.class : type;
  }
}
