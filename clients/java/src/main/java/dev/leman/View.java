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

/** A materialized view of a database. */
public final class View extends Relation {
  View(Connections connections, String database, String name, RequestId requestId) {
    super(connections, database, name, requestId);
  }

  /**
   * The same view, whose next change is made under this id: once, however often it is asked for,
   * also by another process after this one died. Take an id for each change; the same one with
   * another change is refused.
   */
  public View withRequestId(String id) {
    Arguments.given("id", id);
    return new View(connections, database, name, RequestId.of(id));
  }

  /** The view as it is. */
  public MaterializedView describe() {
    return Futures.get(describeAsync());
  }

  /** As {@link #describe}. */
  public CompletableFuture<MaterializedView> describeAsync() {
    GetMaterializedViewRequest request =
        GetMaterializedViewRequest.newBuilder().setView(ref()).build();
    return connections.unary(
        CatalogServiceGrpc.getGetMaterializedViewMethod(),
        request,
        GetMaterializedViewResponse::getView);
  }

  /** Begin to bring the view to the latest version of its source. */
  public JobHandle refresh() {
    return refresh(RefreshOptions.usual());
  }

  /** As {@link #refresh()}. */
  public JobHandle refresh(RefreshOptions options) {
    return Futures.get(refreshAsync(options));
  }

  /** As {@link #refresh()}. */
  public CompletableFuture<JobHandle> refreshAsync() {
    return refreshAsync(RefreshOptions.usual());
  }

  /** As {@link #refresh(RefreshOptions)}. */
  public CompletableFuture<JobHandle> refreshAsync(RefreshOptions options) {
    Arguments.given("options", options);
    CreateJobRequest.Builder request = options.job().setRefresh(options.told().setView(ref()));
    return begin(request);
  }

  /** What a refresh would do, and why. Changes nothing. */
  public ExplainRefreshResponse plan(RefreshOptions options) {
    return Futures.get(planAsync(options));
  }

  /** As {@link #plan}. */
  public CompletableFuture<ExplainRefreshResponse> planAsync(RefreshOptions options) {
    Arguments.given("options", options);
    ExplainRefreshRequest request =
        ExplainRefreshRequest.newBuilder().setSpec(options.told().setView(ref())).build();
    return connections.unary(PlannerServiceGrpc.getExplainRefreshMethod(), request, plan -> plan);
  }

  /**
   * Give function columns other registered functions, {@code name@version}; they read what they
   * read before.
   */
  public MaterializedView alter(Map<String, String> functions) {
    return Futures.get(alterAsync(functions));
  }

  /** As {@link #alter}. */
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
