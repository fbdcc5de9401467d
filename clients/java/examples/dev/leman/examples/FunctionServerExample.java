package dev.leman.examples;

import dev.leman.functions.FunctionException;
import dev.leman.functions.FunctionServer;
import dev.leman.functions.ServedFunction;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.Float4Vector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;

/**
 * Serves a few functions, as docs/remote_functions.md describes, which the suite calls. It prints
 * one line, {"port": n}.
 */
public final class FunctionServerExample {
  /** What computes a value of one. */
  private interface Scalar {
    long of(long value) throws Exception;
  }

  /** Options: --port N --token TOKEN --cert FILE --key FILE. */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    Map<String, String> options = new HashMap<>();
    for (int i = 0; i < arguments.length; i += 2) {
      options.put(arguments[i], arguments[i + 1]);
    }
    FunctionServer.Builder builder =
        FunctionServer.builder().port(Integer.parseInt(options.getOrDefault("--port", "7815")));
    if (options.containsKey("--token")) {
      builder.token(options.get("--token"));
    }
    if (options.containsKey("--cert")) {
      builder.tls(Path.of(options.get("--cert")), Path.of(options.get("--key")));
    }
    builder
        .add(scalar("double", x -> 2 * x))
        .add(upper())
        .add(vector())
        .add(described())
        .add(scalar("fail_on", FunctionServerExample::failOn))
        .add(scalar("slow", FunctionServerExample::slow))
        .add(scalar("die", FunctionServerExample::die));
    try (FunctionServer server = builder.start()) {
      System.out.println("{\"port\": " + server.port() + "}");
      server.awaitTermination();
    }
  }

  private static ServedFunction scalar(String name, Scalar function) {
    ArrowType whole = new ArrowType.Int(64, true);
    return ServedFunction.named(name)
        .input("x", whole)
        .output(whole)
        .computedBy(
            (batch, values) -> {
              BigIntVector given = (BigIntVector) batch.getVector(0);
              BigIntVector computed = (BigIntVector) values;
              for (int row = 0; row < batch.getRowCount(); row++) {
                if (!given.isNull(row)) {
                  computed.set(row, function.of(given.get(row)));
                }
              }
            });
  }

  private static ServedFunction upper() {
    return ServedFunction.named("upper")
        .input("text", new ArrowType.Utf8())
        .output(new ArrowType.Utf8())
        .description("The text in capital letters")
        .computedBy(
            (batch, values) -> {
              VarCharVector given = (VarCharVector) batch.getVector(0);
              for (int row = 0; row < batch.getRowCount(); row++) {
                if (!given.isNull(row)) {
                  String text = new String(given.get(row), StandardCharsets.UTF_8);
                  byte[] capital = text.toUpperCase(Locale.ROOT).getBytes(StandardCharsets.UTF_8);
                  ((VarCharVector) values).setSafe(row, capital);
                }
              }
            });
  }

  private static ServedFunction vector() {
    Field item = Field.nullable("item", new ArrowType.FloatingPoint(FloatingPointPrecision.SINGLE));
    return ServedFunction.named("vector")
        .input("x", new ArrowType.Int(64, true))
        .output(
            new Field("value", FieldType.nullable(new ArrowType.FixedSizeList(2)), List.of(item)))
        .description("The number and its opposite")
        .computedBy(
            (batch, values) -> {
              BigIntVector given = (BigIntVector) batch.getVector(0);
              FixedSizeListVector vectors = (FixedSizeListVector) values;
              Float4Vector items = (Float4Vector) vectors.getDataVector();
              for (int row = 0; row < batch.getRowCount(); row++) {
                if (!given.isNull(row)) {
                  vectors.setNotNull(row);
                  items.setSafe(2 * row, given.get(row));
                  items.setSafe(2 * row + 1, -given.get(row));
                }
              }
            });
  }

  private static ServedFunction described() {
    List<Field> fields =
        List.of(
            Field.nullable("n", new ArrowType.Int(64, true)),
            Field.nullable("text", new ArrowType.Utf8()));
    return ServedFunction.named("described")
        .input("x", new ArrowType.Int(64, true))
        .output(new Field("value", FieldType.nullable(new ArrowType.Struct()), fields))
        .description("The number, and its text where it is even")
        .computedBy(
            (batch, values) -> {
              BigIntVector given = (BigIntVector) batch.getVector(0);
              StructVector structs = (StructVector) values;
              BigIntVector numbers = structs.getChild("n", BigIntVector.class);
              VarCharVector texts = structs.getChild("text", VarCharVector.class);
              for (int row = 0; row < batch.getRowCount(); row++) {
                if (given.isNull(row)) {
                  continue;
                }
                structs.setIndexDefined(
                    row); // without it the struct is NULL, whatever its fields are
                numbers.setSafe(row, given.get(row));
                if (given.get(row) % 2 == 0) {
                  byte[] text = String.valueOf(given.get(row)).getBytes(StandardCharsets.UTF_8);
                  texts.setSafe(row, text);
                }
              }
            });
  }

  private static long failOn(long x) throws FunctionException {
    if (x < 0) {
      throw new FunctionException("ValueError", x + " is negative");
    }
    return x;
  }

  private static long slow(long milliseconds) throws InterruptedException {
    Thread.sleep(milliseconds);
    return milliseconds;
  }

  private static long die(long x) {
    if (x == 666) {
      Runtime.getRuntime().halt(1);
    }
    return x;
  }
}
