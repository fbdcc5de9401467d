package dev.leman;

import com.google.protobuf.util.Durations;
import dev.leman.internal.Arguments;
import dev.leman.v1.CheckpointBounds;
import dev.leman.v1.ErrorPolicy;
import dev.leman.v1.PythonBundle;
import dev.leman.v1.RemoteFunction;
import dev.leman.v1.Resources;
import dev.leman.v1.UdfDefinition;
import java.time.Duration;
import java.util.List;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The definition of a function to register with {@link Database#registerFunction}: its code, its
 * inputs and its output.
 */
public final class FunctionDefinition {
  /** How a function is called. */
  public enum Kind {
    /** For each row, with a value for each input. */
    SCALAR(UdfDefinition.Kind.KIND_SCALAR),
    /** For each batch, with an Arrow array for each input. */
    ARRAY(UdfDefinition.Kind.KIND_ARRAY),
    /** For each batch, with a record batch of the inputs. */
    RECORD_BATCH(UdfDefinition.Kind.KIND_RECORD_BATCH);

    private final UdfDefinition.Kind told;

    Kind(UdfDefinition.Kind told) {
      this.told = told;
    }
  }

  private final UdfDefinition told;

  private FunctionDefinition(UdfDefinition told) {
    this.told = told;
  }

  /** A function that is installed on the workers, {@code package.module:name}: no code is sent. */
  public static Builder entrypoint(String entrypoint) {
    Arguments.given("entrypoint", entrypoint);
    return new Builder(
        UdfDefinition.newBuilder()
            .setKind(UdfDefinition.Kind.KIND_SCALAR)
            .setEntrypoint(entrypoint));
  }

  /** A SQL expression over its inputs. */
  public static Builder sql(String expression) {
    Arguments.given("expression", expression);
    return new Builder(
        UdfDefinition.newBuilder()
            .setKind(UdfDefinition.Kind.KIND_SQL)
            .setSqlExpression(expression));
  }

  /**
   * A function that your own servers compute, such as a {@link dev.leman.functions.FunctionServer}.
   * The servers report its version and types.
   *
   * @param addresses the addresses of its servers, {@code grpc://host:port} or {@code
   *     grpc+tls://host:port}
   */
  public static Builder remote(String... addresses) {
    Arguments.given("addresses", addresses);
    RemoteFunction served = RemoteFunction.newBuilder().addAllAddresses(List.of(addresses)).build();
    return new Builder(
        UdfDefinition.newBuilder()
            .setKind(UdfDefinition.Kind.KIND_REMOTE)
            .setRemoteFunction(served));
  }

  /**
   * A pickled function that {@link Database#uploadBundle} stored.
   *
   * @param sha256 the digest that {@code uploadBundle} returned
   * @param sizeBytes the size of the bundle
   * @param pythonVersion the version of the Python that pickled it, such as {@code 3.11}
   */
  public static Builder bundle(String sha256, long sizeBytes, String pythonVersion) {
    Arguments.given("sha256", sha256);
    Arguments.given("pythonVersion", pythonVersion);
    PythonBundle bundle =
        PythonBundle.newBuilder()
            .setSha256(sha256)
            .setSizeBytes(sizeBytes)
            .setPythonVersion(pythonVersion)
            .build();
    return new Builder(
        UdfDefinition.newBuilder().setKind(UdfDefinition.Kind.KIND_SCALAR).setPythonBundle(bundle));
  }

  UdfDefinition told() {
    return told;
  }

  /** Builds a definition. */
  public static final class Builder {
    private final UdfDefinition.Builder told;

    private Builder(UdfDefinition.Builder told) {
      this.told = told;
    }

    /** The name of the function. */
    public Builder name(String name) {
      Arguments.given("name", name);
      told.setName(name);
      return this;
    }

    /**
     * The version; change it whenever the function computes other values. For a remote function:
     * the version that its servers must report.
     */
    public Builder version(String version) {
      Arguments.given("version", version);
      told.setVersion(version);
      return this;
    }

    /**
     * How it is called; the default is {@link Kind#SCALAR}. SQL and remote functions have no kind.
     */
    public Builder kind(Kind kind) {
      Arguments.given("kind", kind);
      told.setKind(kind.told);
      return this;
    }

    /** The name under which servers serve a remote function, if it differs. */
    public Builder servedAs(String function) {
      Arguments.given("function", function);
      told.getRemoteFunctionBuilder().setFunction(function);
      return this;
    }

    /**
     * The columns that it reads, in the order of its parameters. For a remote function the default
     * is the columns with the names of the parameters.
     */
    public Builder inputs(String... columns) {
      Arguments.given("columns", columns);
      told.clearInputColumns().addAllInputColumns(List.of(columns));
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
      told.setOutputSchema(Schemas.write(new Schema(List.of(field))));
      return this;
    }

    /** What happens to rows on which it fails. */
    public Builder errorPolicy(ErrorPolicy policy) {
      Arguments.given("policy", policy);
      told.setErrorPolicy(policy);
      return this;
    }

    /** For batch kinds: the largest number of rows in a call. */
    public Builder batchSize(long rows) {
      told.setBatchSize(rows);
      return this;
    }

    /** The timeout of a call. */
    public Builder callTimeout(Duration time) {
      Arguments.given("time", time);
      told.setCallTimeout(Durations.fromNanos(time.toNanos()));
      return this;
    }

    /** Rows between checkpoints. */
    public Builder checkpoint(CheckpointBounds bounds) {
      Arguments.given("bounds", bounds);
      told.setCheckpoint(bounds);
      return this;
    }

    /** The resources that a worker needs. */
    public Builder resources(Resources resources) {
      Arguments.given("resources", resources);
      told.setResources(resources);
      return this;
    }

    /** Whether the code is a class, which each worker process instantiates once. */
    public Builder stateful(boolean stateful) {
      told.setStateful(stateful);
      return this;
    }

    /** Return the definition. The services validate it when it is registered. */
    public FunctionDefinition build() {
      return new FunctionDefinition(told.build());
    }
  }
}
