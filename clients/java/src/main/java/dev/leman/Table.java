package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.AddColumnsRequest;
import dev.leman.v1.AddColumnsResponse;
import dev.leman.v1.AddPlainColumnsRequest;
import dev.leman.v1.AddPlainColumnsResponse;
import dev.leman.v1.AlterColumnsRequest;
import dev.leman.v1.AlterColumnsResponse;
import dev.leman.v1.AlterPlainColumnsRequest;
import dev.leman.v1.AlterPlainColumnsResponse;
import dev.leman.v1.AppendRowsHeader;
import dev.leman.v1.AppendRowsResponse;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.ColumnAlteration;
import dev.leman.v1.Commit;
import dev.leman.v1.CommitServiceGrpc;
import dev.leman.v1.CreateJobRequest;
import dev.leman.v1.DeleteRowsRequest;
import dev.leman.v1.DeleteRowsResponse;
import dev.leman.v1.DescribeTableRequest;
import dev.leman.v1.DescribeTableResponse;
import dev.leman.v1.DropColumnsRequest;
import dev.leman.v1.DropColumnsResponse;
import dev.leman.v1.ExplainPlanRequest;
import dev.leman.v1.ExplainPlanResponse;
import dev.leman.v1.GetRowStatesRequest;
import dev.leman.v1.GetRowStatesResponse;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.ListCommitsRequest;
import dev.leman.v1.MergeRowsResponse;
import dev.leman.v1.PlainColumnAlteration;
import dev.leman.v1.PlannerServiceGrpc;
import dev.leman.v1.PreviewFunctionRequest;
import dev.leman.v1.PreviewFunctionResponse;
import dev.leman.v1.RowState;
import dev.leman.v1.TableServiceGrpc;
import dev.leman.v1.UpdateRowsRequest;
import dev.leman.v1.UpdateRowsResponse;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** A handle for a table of a database. */
public final class Table extends Relation {
  Table(Connections connections, String database, String name, RequestId requestId) {
    super(connections, database, name, requestId);
  }

  /**
   * Return a handle whose next change carries this request id. The services apply changes with
   * equal ids once, so another process can retry a change, for example after this one died. Use a
   * new id for each change: if an id is used again for a different change or for different rows,
   * the call is refused (REQUEST_ID_REUSED).
   */
  public Table withRequestId(String id) {
    Arguments.given("id", id);
    return new Table(connections, database, name, RequestId.of(id));
  }

  /** Return the schema, version, number of rows and computed columns. */
  public DescribeTableResponse describe() {
    return Futures.get(describeAsync());
  }

  /** Like {@link #describe}. */
  public CompletableFuture<DescribeTableResponse> describeAsync() {
    DescribeTableRequest request = DescribeTableRequest.newBuilder().setTable(ref()).build();
    return connections.unary(CatalogServiceGrpc.getDescribeTableMethod(), request, table -> table);
  }

  /** Return the schema. */
  public Schema schema() {
    return Futures.get(schemaAsync());
  }

  /** Like {@link #schema}. */
  public CompletableFuture<Schema> schemaAsync() {
    DescribeTableRequest request = DescribeTableRequest.newBuilder().setTable(ref()).build();
    return connections.unary(
        CatalogServiceGrpc.getDescribeTableMethod(),
        request,
        table -> Schemas.read(table.getSchema()));
  }

  /**
   * Add rows in one new version of the table: all of them or, after an error, none. Columns that
   * are missing from the rows become NULL.
   */
  public AppendRowsResponse append(RowSource rows) {
    Arguments.given("rows", rows);
    AppendRowsHeader header =
        AppendRowsHeader.newBuilder().setTable(ref()).setRequestId(newId()).build();
    return RowUpload.append(connections, header, rows);
  }

  /** Like {@link #append}; reads the rows in a thread of the client. */
  public CompletableFuture<AppendRowsResponse> appendAsync(RowSource rows) {
    Arguments.given("rows", rows);
    return Futures.run(connections, () -> append(rows));
  }

  /**
   * Delete the rows for which a SQL condition is true ({@code true}: all rows), and return how many
   * were deleted.
   */
  public long delete(String where) {
    return Futures.get(deleteAsync(where));
  }

  /** Like {@link #delete}. */
  public CompletableFuture<Long> deleteAsync(String where) {
    Arguments.given("where", where);
    DeleteRowsRequest request =
        DeleteRowsRequest.newBuilder()
            .setTable(ref())
            .setWhere(where)
            .setRequestId(newId())
            .build();
    return connections.unary(
        TableServiceGrpc.getDeleteRowsMethod(), request, DeleteRowsResponse::getRowsDeleted);
  }

  /**
   * Change values in the rows for which a SQL condition is true ({@code true}: all rows), and
   * return how many rows these were. In these rows, computed columns that depend on a changed
   * column become NULL.
   *
   * @param set a SQL expression for each changed column, such as {@code n + 1}, evaluated on the
   *     row before the update
   */
  public long update(String where, Map<String, String> set) {
    return Futures.get(updateAsync(where, set));
  }

  /** Like {@link #update}. */
  public CompletableFuture<Long> updateAsync(String where, Map<String, String> set) {
    Arguments.given("where", where);
    Arguments.given("set", set);
    UpdateRowsRequest request =
        UpdateRowsRequest.newBuilder()
            .setTable(ref())
            .setWhere(where)
            .putAllExpressions(set)
            .setRequestId(newId())
            .build();
    return connections.unary(
        TableServiceGrpc.getUpdateRowsMethod(), request, UpdateRowsResponse::getRowsUpdated);
  }

  /**
   * Match the sent rows with rows of the table that have the same values in some columns, and apply
   * the rules to them. Makes all changes in one new version of the table or, after an error, none.
   */
  public MergeRowsResponse merge(RowSource rows, MergeRules rules) {
    Arguments.given("rows", rows);
    Arguments.given("rules", rules);
    return RowUpload.merge(connections, rules.header(ref(), newId()), rows);
  }

  /** Like {@link #merge}; reads the rows in a thread of the client. */
  public CompletableFuture<MergeRowsResponse> mergeAsync(RowSource rows, MergeRules rules) {
    Arguments.given("rows", rows);
    Arguments.given("rules", rules);
    return Futures.run(connections, () -> merge(rows, rules));
  }

  /**
   * Add computed columns, all of them or none. They are NULL, without writing data, until a
   * backfill computes them.
   *
   * @return the version of the table that has them
   */
  public long addColumns(Map<String, ColumnFunction> columns) {
    return Futures.get(addColumnsAsync(columns));
  }

  /** Like {@link #addColumns}. */
  public CompletableFuture<Long> addColumnsAsync(Map<String, ColumnFunction> columns) {
    Arguments.given("columns", columns);
    AddColumnsRequest.Builder request =
        AddColumnsRequest.newBuilder().setTable(ref()).setRequestId(newId());
    columns.forEach((column, function) -> request.addColumns(function.column(column)));
    return connections.unary(
        CatalogServiceGrpc.getAddColumnsMethod(), request.build(), AddColumnsResponse::getVersion);
  }

  /**
   * Change the functions of computed columns. Their values stay, and are stale until the next
   * backfill.
   */
  public long alterColumns(Map<String, ColumnFunction> columns) {
    Arguments.given("columns", columns);
    return alterColumns(columns, false);
  }

  /**
   * Like {@link #alterColumns(Map)}.
   *
   * @param keepValues whether values that the previous functions computed stay current
   * @return the version of the table with the change
   */
  public long alterColumns(Map<String, ColumnFunction> columns, boolean keepValues) {
    return Futures.get(alterColumnsAsync(columns, keepValues));
  }

  /** Like {@link #alterColumns(Map)}. */
  public CompletableFuture<Long> alterColumnsAsync(Map<String, ColumnFunction> columns) {
    return alterColumnsAsync(columns, false);
  }

  /** Like {@link #alterColumns(Map, boolean)}. */
  public CompletableFuture<Long> alterColumnsAsync(
      Map<String, ColumnFunction> columns, boolean keepValues) {
    Arguments.given("columns", columns);
    AlterColumnsRequest.Builder request =
        AlterColumnsRequest.newBuilder().setTable(ref()).setRequestId(newId());
    columns.forEach(
        (column, function) ->
            request.addColumns(
                ColumnAlteration.newBuilder()
                    .setColumn(function.column(column))
                    .setKeepValues(keepValues)));
    return connections.unary(
        CatalogServiceGrpc.getAlterColumnsMethod(),
        request.build(),
        AlterColumnsResponse::getVersion);
  }

  /**
   * Add columns that no function computes, all NULL. Returns the version of the table that has
   * them.
   */
  public long addPlainColumns(Schema columns) {
    return Futures.get(addPlainColumnsAsync(columns));
  }

  /** Like {@link #addPlainColumns}. */
  public CompletableFuture<Long> addPlainColumnsAsync(Schema columns) {
    Arguments.given("columns", columns);
    AddPlainColumnsRequest request =
        AddPlainColumnsRequest.newBuilder()
            .setTable(ref())
            .setSchema(Schemas.write(columns))
            .setRequestId(newId())
            .build();
    return connections.unary(
        TableServiceGrpc.getAddPlainColumnsMethod(), request, AddPlainColumnsResponse::getVersion);
  }

  /** Drop columns that nothing reads; see {@link #dropColumns(List, boolean)}. */
  public long dropColumns(String... columns) {
    Arguments.given("columns", columns);
    return dropColumns(List.of(columns), false);
  }

  /**
   * Drop columns, also computed ones, either all of them or none.
   *
   * @param force drop them even if computed columns or views read them, or jobs compute them
   * @return the version of the table without them
   */
  public long dropColumns(List<String> columns, boolean force) {
    return Futures.get(dropColumnsAsync(columns, force));
  }

  /** Like {@link #dropColumns(String...)}. */
  public CompletableFuture<Long> dropColumnsAsync(String... columns) {
    Arguments.given("columns", columns);
    return dropColumnsAsync(List.of(columns), false);
  }

  /** Like {@link #dropColumns(List, boolean)}. */
  public CompletableFuture<Long> dropColumnsAsync(List<String> columns, boolean force) {
    Arguments.given("columns", columns);
    DropColumnsRequest request =
        DropColumnsRequest.newBuilder()
            .setTable(ref())
            .addAllColumns(columns)
            .setForce(force)
            .setRequestId(newId())
            .build();
    return connections.unary(
        TableServiceGrpc.getDropColumnsMethod(), request, DropColumnsResponse::getVersion);
  }

  /** Rename a column; see {@link #renameColumn(String, String, boolean)}. */
  public long renameColumn(String column, String newName) {
    Arguments.given("column", column);
    Arguments.given("newName", newName);
    return renameColumn(column, newName, false);
  }

  /**
   * Rename a column. Computed columns that read it then read the new name.
   *
   * @param force rename it even if views read it, which then cannot be refreshed
   * @return the version of the table with the new name
   */
  public long renameColumn(String column, String newName, boolean force) {
    return Futures.get(renameColumnAsync(column, newName, force));
  }

  /** Like {@link #renameColumn(String, String)}. */
  public CompletableFuture<Long> renameColumnAsync(String column, String newName) {
    return renameColumnAsync(column, newName, false);
  }

  /** Like {@link #renameColumn(String, String, boolean)}. */
  public CompletableFuture<Long> renameColumnAsync(String column, String newName, boolean force) {
    Arguments.given("column", column);
    Arguments.given("newName", newName);
    AlterPlainColumnsRequest request =
        AlterPlainColumnsRequest.newBuilder()
            .setTable(ref())
            .addColumns(PlainColumnAlteration.newBuilder().setName(column).setNewName(newName))
            .setForce(force)
            .setRequestId(newId())
            .build();
    return connections.unary(
        TableServiceGrpc.getAlterPlainColumnsMethod(),
        request,
        AlterPlainColumnsResponse::getVersion);
  }

  /**
   * Change the type of a column: among integers, among floats, and between text, bytes or lists and
   * their large forms. If a value does not fit, the call is refused.
   *
   * @return the version of the table with the new type
   */
  public long retypeColumn(String column, Field type) {
    return Futures.get(retypeColumnAsync(column, type));
  }

  /** Like {@link #retypeColumn(String, Field)}, for types that are not nested. */
  public long retypeColumn(String column, ArrowType type) {
    Arguments.given("type", type);
    return retypeColumn(column, Field.nullable("item", type));
  }

  /** Like {@link #retypeColumn(String, ArrowType)}. */
  public CompletableFuture<Long> retypeColumnAsync(String column, ArrowType type) {
    Arguments.given("type", type);
    return retypeColumnAsync(column, Field.nullable("item", type));
  }

  /** Like {@link #retypeColumn(String, Field)}. */
  public CompletableFuture<Long> retypeColumnAsync(String column, Field type) {
    Arguments.given("column", column);
    Arguments.given("type", type);
    PlainColumnAlteration.Builder altered = PlainColumnAlteration.newBuilder();
    AlterPlainColumnsRequest request =
        AlterPlainColumnsRequest.newBuilder()
            .setTable(ref())
            .addColumns(altered.setName(column).setType(ColumnType.told(type)))
            .setRequestId(newId())
            .build();
    return connections.unary(
        TableServiceGrpc.getAlterPlainColumnsMethod(),
        request,
        AlterPlainColumnsResponse::getVersion);
  }

  /** Start a job that computes the missing and stale values of a column. */
  public JobHandle backfill(String column) {
    Arguments.given("column", column);
    return backfill(column, BackfillOptions.usual());
  }

  /** Like {@link #backfill(String)}. Returns when the job has been accepted. */
  public JobHandle backfill(String column, BackfillOptions options) {
    return Futures.get(backfillAsync(column, options));
  }

  /** Like {@link #backfill(String)}. */
  public CompletableFuture<JobHandle> backfillAsync(String column) {
    return backfillAsync(column, BackfillOptions.usual());
  }

  /** Like {@link #backfill(String, BackfillOptions)}. */
  public CompletableFuture<JobHandle> backfillAsync(String column, BackfillOptions options) {
    Arguments.given("column", column);
    Arguments.given("options", options);
    CreateJobRequest.Builder request =
        options.job().setBackfill(options.told().setTable(ref()).setColumn(column));
    return begin(request);
  }

  /** Return what a backfill would do, and why, without running it. */
  public ExplainPlanResponse plan(String column, BackfillOptions options) {
    return Futures.get(planAsync(column, options));
  }

  /** Like {@link #plan}. */
  public CompletableFuture<ExplainPlanResponse> planAsync(String column, BackfillOptions options) {
    Arguments.given("column", column);
    Arguments.given("options", options);
    ExplainPlanRequest request =
        ExplainPlanRequest.newBuilder()
            .setSpec(options.told().setTable(ref()).setColumn(column))
            .build();
    return connections.unary(PlannerServiceGrpc.getExplainPlanMethod(), request, plan -> plan);
  }

  /**
   * Compute a column for a few rows with its own function; see {@link #preview(ColumnFunction,
   * PreviewOptions)}.
   */
  public PreviewFunctionResponse preview(String column, PreviewOptions options) {
    return Futures.get(previewAsync(column, options));
  }

  /** Like {@link #preview(String, PreviewOptions)}. */
  public CompletableFuture<PreviewFunctionResponse> previewAsync(
      String column, PreviewOptions options) {
    Arguments.given("column", column);
    Arguments.given("options", options);
    return preview(options.told().setColumn(column));
  }

  /**
   * Compute a few rows with a function and write nothing. Returns values, errors and times, and an
   * estimate for a backfill of the whole table. Errors of the function are in the results of their
   * rows.
   */
  public PreviewFunctionResponse preview(ColumnFunction function, PreviewOptions options) {
    return Futures.get(previewAsync(function, options));
  }

  /** Like {@link #preview(ColumnFunction, PreviewOptions)}. */
  public CompletableFuture<PreviewFunctionResponse> previewAsync(
      ColumnFunction function, PreviewOptions options) {
    Arguments.given("function", function);
    Arguments.given("options", options);
    PreviewFunctionRequest.Builder request = options.told();
    function.of(request);
    return preview(request);
  }

  private CompletableFuture<PreviewFunctionResponse> preview(
      PreviewFunctionRequest.Builder request) {
    PreviewFunctionRequest made = request.setTable(ref()).build();
    return connections.unary(JobServiceGrpc.getPreviewFunctionMethod(), made, preview -> preview);
  }

  /** Count the rows of a computed column by state, in the latest version. */
  public GetRowStatesResponse rowStates(String column) {
    return Futures.get(rowStatesAsync(column));
  }

  /** Like {@link #rowStates}. */
  public CompletableFuture<GetRowStatesResponse> rowStatesAsync(String column) {
    Arguments.given("column", column);
    GetRowStatesRequest request =
        GetRowStatesRequest.newBuilder().setTable(ref()).setColumn(column).build();
    return connections.unary(PlannerServiceGrpc.getGetRowStatesMethod(), request, answer -> answer);
  }

  /** List the addresses of a computed column's rows in a state, in the latest version. */
  public Pages<Long> rowsInState(String column, RowState state) {
    Arguments.given("column", column);
    Arguments.given("state", state);
    GetRowStatesRequest.Builder request =
        GetRowStatesRequest.newBuilder().setTable(ref()).setColumn(column).setState(state);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                PlannerServiceGrpc.getGetRowStatesMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer ->
                    new Pages.Page<>(answer.getRowAddressesList(), answer.getNextPageToken())));
  }

  /** List Leman's commits to the table, as far back as its versions go. */
  public Pages<Commit> commits() {
    ListCommitsRequest.Builder request = ListCommitsRequest.newBuilder().setTable(ref());
    return new Pages<>(
        (token, size) ->
            connections.unary(
                CommitServiceGrpc.getListCommitsMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer -> new Pages.Page<>(answer.getCommitsList(), answer.getNextPageToken())));
  }
}
