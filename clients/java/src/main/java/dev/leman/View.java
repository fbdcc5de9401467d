package dev.leman;

import com.google.protobuf.FieldMask;
import dev.leman.internal.Arguments;
import dev.leman.v1.AlterMaterializedViewRequest;
import dev.leman.v1.AlterMaterializedViewResponse;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.CreateJobRequest;
import dev.leman.v1.ExplainRefreshRequest;
import dev.leman.v1.ExplainRefreshResponse;
import dev.leman.v1.GetMaterializedViewRequest;
import dev.leman.v1.GetMaterializedViewResponse;
import dev.leman.v1.MaterializedView;
import dev.leman.v1.PlannerServiceGrpc;
import dev.leman.v1.ViewFunction;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A handle for a materialized view of a database. */
public final class View extends Relation {
  View(Connections connections, String database, String name, RequestId requestId) {
    super(connections, database, name, requestId);
  }

  /**
   * Return a handle whose next change carries this request id. The services apply changes with
   * equal ids once, so another process can retry a change, for example after this one died. Use a
   * new id for each change: if an id is used again for a different change, the call is refused.
   */
  public View withRequestId(String id) {
    Arguments.given("id", id);
    return new View(connections, database, name, RequestId.of(id));
  }

  /** Return the view's current definition and state. */
  public MaterializedView describe() {
    return Futures.get(describeAsync());
  }

  /** Like {@link #describe}. */
  public CompletableFuture<MaterializedView> describeAsync() {
    GetMaterializedViewRequest request =
        GetMaterializedViewRequest.newBuilder().setView(ref()).build();
    return connections.unary(
        CatalogServiceGrpc.getGetMaterializedViewMethod(),
        request,
        GetMaterializedViewResponse::getView);
  }

  /** Start a job that refreshes the view to the latest version of its source. */
  public JobHandle refresh() {
    return refresh(RefreshOptions.usual());
  }

  /** Like {@link #refresh()}. */
  public JobHandle refresh(RefreshOptions options) {
    return Futures.get(refreshAsync(options));
  }

  /** Like {@link #refresh()}. */
  public CompletableFuture<JobHandle> refreshAsync() {
    return refreshAsync(RefreshOptions.usual());
  }

  /** Like {@link #refresh(RefreshOptions)}. */
  public CompletableFuture<JobHandle> refreshAsync(RefreshOptions options) {
    Arguments.given("options", options);
    CreateJobRequest.Builder request = options.job().setRefresh(options.told().setView(ref()));
    return begin(request);
  }

  /** Return what a refresh would do, and why, without running it. */
  public ExplainRefreshResponse plan(RefreshOptions options) {
    return Futures.get(planAsync(options));
  }

  /** Like {@link #plan}. */
  public CompletableFuture<ExplainRefreshResponse> planAsync(RefreshOptions options) {
    Arguments.given("options", options);
    ExplainRefreshRequest request =
        ExplainRefreshRequest.newBuilder().setSpec(options.told().setView(ref())).build();
    return connections.unary(PlannerServiceGrpc.getExplainRefreshMethod(), request, plan -> plan);
  }

  /**
   * Change the functions of the view's columns to other registered functions, {@code name@version},
   * with the same inputs.
   */
  public MaterializedView alter(Map<String, String> functions) {
    return Futures.get(alterAsync(functions));
  }

  /** Like {@link #alter}. */
  public CompletableFuture<MaterializedView> alterAsync(Map<String, String> functions) {
    Arguments.given("functions", functions);
    List<ViewFunction> wanted =
        functions.entrySet().stream()
            .map(
                f ->
                    ViewFunction.newBuilder()
                        .setName(f.getKey())
                        .setUdf(ColumnFunction.ref(f.getValue()))
                        .build())
            .toList();
    AlterMaterializedViewRequest request =
        AlterMaterializedViewRequest.newBuilder()
            .setView(ref())
            .addAllFunctions(wanted)
            .setUpdateMask(FieldMask.newBuilder().addPaths("functions"))
            .setRequestId(newId())
            .build();
    return connections.unary(
        CatalogServiceGrpc.getAlterMaterializedViewMethod(),
        request,
        AlterMaterializedViewResponse::getView);
  }
}
