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
 * A function as {@link Database#registerFunction} registers it: where its code is, what it reads,
 * what it gives.
 */
public final class FunctionDefinition {
  /** How a function is called. */
  public enum Kind {
    /** Once a row, with a value for each input. */
    SCALAR(UdfDefinition.Kind.KIND_SCALAR),
    /** Once a batch, with an Arrow array for each input. */
    ARRAY(UdfDefinition.Kind.KIND_ARRAY),
    /** Once a batch, with a record batch of the inputs. */
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
   * A function that servers of yours compute, such as a {@link dev.leman.functions.FunctionServer}:
   * its version and its types are what they say.
   *
   * @param addresses of its servers, {@code grpc://host:port} or {@code grpc+tls://host:port}
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
   * @param sha256 what that answered
   * @param sizeBytes the size of the bundle
   * @param pythonVersion the Python that pickled it, such as {@code 3.11}
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

  /** What a definition is made by. */
  public static final class Builder {
    private final UdfDefinition.Builder told;

    private Builder(UdfDefinition.Builder told) {
      this.told = told;
    }

    /** The name that people know it by. */
    public Builder name(String name) {
      Arguments.given("name", name);
      told.setName(name);
      return this;
    }

    /**
     * To be another one whenever it computes something else. Of a remote function: what its servers
     * have to say.
     */
    public Builder version(String version) {
      Arguments.given("version", version);
      told.setVersion(version);
      return this;
    }

    /**
     * How it is called; {@link Kind#SCALAR}, unless it is given. SQL and remote functions have no
     * kind.
     */
    public Builder kind(Kind kind) {
      Arguments.given("kind", kind);
      told.setKind(kind.told);
      return this;
    }

    /** What the servers of a remote function call it, where that is not its name. */
    public Builder servedAs(String function) {
      Arguments.given("function", function);
      told.getRemoteFunctionBuilder().setFunction(function);
      return this;
    }

    /**
     * The columns that it reads, in the order of its parameters; of a remote function those that
     * are called like these, unless they are given.
     */
    public Builder inputs(String... columns) {
      Arguments.given("columns", columns);
      told.clearInputColumns().addAllInputColumns(List.of(columns));
      return this;
    }

    /** The type that it gives. */
    public Builder output(ArrowType type) {
      Arguments.given("type", type);
      return output(new Field("value", FieldType.nullable(type), null));
    }

    /** The type that it gives, where that is nested or has metadata. */
    public Builder output(Field field) {
      Arguments.given("field", field);
      told.setOutputSchema(Schemas.write(new Schema(List.of(field))));
      return this;
    }

    /** What happens to rows for which it raises. */
    public Builder errorPolicy(ErrorPolicy policy) {
      Arguments.given("policy", policy);
      told.setErrorPolicy(policy);
      return this;
    }

    /** The most rows given to one call of a batch kind. */
    public Builder batchSize(long rows) {
      told.setBatchSize(rows);
      return this;
    }

    /** How long one call of it may take. */
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

    /** What it takes on a worker. */
    public Builder resources(Resources resources) {
      Arguments.given("resources", resources);
      told.setResources(resources);
      return this;
    }

    /** Whether it is a class, built once a worker process and then called. */
    public Builder stateful(boolean stateful) {
      told.setStateful(stateful);
      return this;
    }

    /** The definition. The services say what is wrong with it, when it is registered. */
    public FunctionDefinition build() {
      return new FunctionDefinition(told.build());
    }
  }
}
