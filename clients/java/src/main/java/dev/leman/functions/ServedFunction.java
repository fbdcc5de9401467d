package dev.leman.functions;

import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import dev.leman.Schemas;
import dev.leman.internal.Arguments;
import io.grpc.Status;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** A function that a {@link FunctionServer} serves: its parameters, and the type of its values. */
public final class ServedFunction {
  /** Computes a value for each row of a batch. */
  @FunctionalInterface
  public interface Compute {
    /**
     * Compute the values of a batch. It is called concurrently for several clients, and one batch
     * after the other for each client. It is interrupted when the client disconnects.
     *
     * @param inputs the rows, valid until it returns
     * @param values receives the values; a row that is not set is NULL. For a struct or a vector,
     *     set the row itself as well as what it contains: {@code setIndexDefined}, {@code
     *     setNotNull}
     * @throws Exception what is wrong with the batch, see {@link FunctionException}
     */
    void compute(VectorSchemaRoot inputs, FieldVector values) throws Exception;
  }

  final String name;
  final String version;
  private final String description;
  private final List<Field> inputs;
  private final Field output;
  private final Compute compute;

  private ServedFunction(Builder built, Compute compute) {
    name = built.name;
    version = built.version == null ? Versions.of(compute) : built.version;
    description = built.description;
    inputs = List.copyOf(built.inputs);
    output = built.output;
    this.compute = compute;
    require(!name.isEmpty() && !inputs.isEmpty(), "it needs a name and inputs");
    require(output != null && output.getDictionary() == null, "it needs a plain output");
    require(version.matches("[A-Za-z0-9_.-]{1,128}"), "a version is of A-Z, a-z, 0-9, _, . and -");
  }

  private void require(boolean holds, String what) {
    if (!holds) {
      throw new IllegalArgumentException("function \"" + name + "\": " + what);
    }
  }

  /** Build a function with this name. */
  public static Builder named(String name) {
    Arguments.given("name", name);
    return new Builder(name);
  }

  /** The description that the server sends to clients. */
  Struct described() {
    return Struct.newBuilder()
        .putFields("function", text(name))
        .putFields("version", text(version))
        .putFields("inputs", text(encoded(new Schema(inputs))))
        .putFields("output", text(encoded(new Schema(List.of(output)))))
        .putFields("description", text(description))
        .build();
  }

  private static Value text(String text) {
    return Value.newBuilder().setStringValue(text).build();
  }

  private static String encoded(Schema schema) {
    return Base64.getEncoder().encodeToString(Schemas.write(schema).toByteArray());
  }

  /** The schema of its results, which names the function and its version. */
  Schema answers() {
    return new Schema(List.of(output), Map.of("leman.function", name, "leman.version", version));
  }

  /**
   * Throw if the function cannot compute batches of a schema. The caller may use any names, but
   * order and types must match.
   */
  void check(Schema schema) {
    List<Field> sent = schema.getFields();
    boolean fits = sent.size() == inputs.size();
    for (int i = 0; fits && i < inputs.size(); i++) {
      fits = sameType(inputs.get(i), sent.get(i));
    }
    if (!fits) {
      throw Status.INVALID_ARGUMENT
          .withDescription(
              name + " takes (" + types(inputs) + "), and was sent (" + types(sent) + ")")
          .asRuntimeException();
    }
  }

  private static boolean sameType(Field one, Field other) {
    List<Field> parts = one.getChildren();
    boolean same =
        one.getType().equals(other.getType())
            && other.getDictionary() == null
            && parts.size() == other.getChildren().size();
    for (int i = 0; same && i < parts.size(); i++) {
      Field part = other.getChildren().get(i);
      same =
          sameType(parts.get(i), part)
              && (!(one.getType() instanceof ArrowType.Struct)
                  || parts.get(i).getName().equals(part.getName()));
    }
    return same;
  }

  private static String types(List<Field> fields) {
    return fields.stream()
        .map(field -> (field.getDictionary() == null ? "" : "dictionary of ") + field.getType())
        .collect(Collectors.joining(", "));
  }

  /** Compute the values of a batch; the caller closes them. */
  FieldVector values(VectorSchemaRoot batch, BufferAllocator memory) throws Exception {
    FieldVector values = output.createVector(memory);
    try {
      values.setInitialCapacity(batch.getRowCount());
      values.allocateNew();
      if (batch.getRowCount() > 0) {
        compute.compute(batch, values);
      }
      values.setValueCount(batch.getRowCount());
      checkSet(values);
      return values;
    } catch (Throwable failed) {
      values.close();
      throw failed;
    }
  }

  /**
   * Throw if a NULL struct or vector contains values. The function set them but did not mark the
   * struct or vector itself as set, so they would be lost silently.
   */
  private static void checkSet(FieldVector vector) {
    int size = vector instanceof FixedSizeListVector list ? list.getListSize() : 1;
    boolean holds = vector instanceof StructVector || vector instanceof FixedSizeListVector;
    for (FieldVector part : vector.getChildrenFromFields()) {
      for (int row = 0; holds && vector.getNullCount() > 0 && row < vector.getValueCount(); row++) {
        if (!vector.isNull(row)) {
          continue;
        }
        for (int at = row * size; at < (row + 1) * size && at < part.getValueCount(); at++) {
          if (!part.isNull(at)) {
            throw new IllegalStateException(unset(vector, row, part));
          }
        }
      }
      checkSet(part);
    }
  }

  private static String unset(FieldVector vector, int row, FieldVector part) {
    boolean isStruct = vector instanceof StructVector;
    return "value %d of \"%s\" is NULL, and its %s is set: call %s(%d), too"
        .formatted(
            row,
            vector.getName(),
            isStruct ? "field \"" + part.getName() + "\"" : "content",
            isStruct ? "StructVector.setIndexDefined" : "FixedSizeListVector.setNotNull",
            row);
  }

  /**
   * Builds a function. Null arguments are refused as INVALID_ARGUMENT, with the argument's name.
   */
  public static final class Builder {
    private final String name;
    private final List<Field> inputs = new ArrayList<>();
    private String version;
    private String description = "";
    private Field output;

    private Builder(String name) {
      this.name = name;
    }

    /** Add a parameter. */
    public Builder input(String name, ArrowType type) {
      Arguments.given("name", name);
      Arguments.given("type", type);
      return input(new Field(name, FieldType.nullable(type), null));
    }

    /** Add a parameter whose type is nested or has metadata. */
    public Builder input(Field field) {
      Arguments.given("field", field);
      inputs.add(field);
      return this;
    }

    /** The type of its values. */
    public Builder output(ArrowType type) {
      Arguments.given("type", type);
      return output(new Field("value", FieldType.nullable(type), null));
    }

    /** The type of its values, if it is nested or has metadata. */
    public Builder output(Field field) {
      Arguments.given("field", field);
      output = new Field("value", field.getFieldType(), field.getChildren());
      return this;
    }

    /**
     * The version. By default it is a digest of the code: of the jar, or of the class file, that
     * contains the function. Leman treats values of another version as stale.
     */
    public Builder version(String version) {
      Arguments.given("version", version);
      this.version = version;
      return this;
    }

    /** A description of what it computes. */
    public Builder description(String description) {
      Arguments.given("description", description);
      this.description = description;
      return this;
    }

    /**
     * Return the function.
     *
     * @throws IllegalArgumentException if something is missing, or the version is invalid
     */
    public ServedFunction computedBy(Compute compute) {
      Arguments.given("compute", compute);
      return new ServedFunction(this, compute);
    }
  }
}
