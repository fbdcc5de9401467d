package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.AppendRowsHeader;
import dev.leman.v1.CancelJobsRequest;
import dev.leman.v1.CancelJobsResponse;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.CommitServiceGrpc;
import dev.leman.v1.CreateMaterializedViewRequest;
import dev.leman.v1.CreateTableRequest;
import dev.leman.v1.DropTableRequest;
import dev.leman.v1.DropViewRequest;
import dev.leman.v1.GetUdfRequest;
import dev.leman.v1.GetUdfResponse;
import dev.leman.v1.Job;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.ListJobsRequest;
import dev.leman.v1.ListMaterializedViewsRequest;
import dev.leman.v1.ListTablesRequest;
import dev.leman.v1.ListUdfsRequest;
import dev.leman.v1.MaterializedViewSummary;
import dev.leman.v1.RegisterUdfRequest;
import dev.leman.v1.RegisterUdfResponse;
import dev.leman.v1.RenameTableRequest;
import dev.leman.v1.TableRef;
import dev.leman.v1.TableServiceGrpc;
import dev.leman.v1.UdfDefinition;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.DictionaryUtility;

/**
 * A handle for a database: a folder, or a prefix of an object store, with Lance tables. It holds no
 * state: each call returns the current state.
 */
public final class Database {
  private final Connections connections;
  private final String name;
  private final RequestId requestId;

  Database(Connections connections, String name) {
    this(connections, name, RequestId.MADE_UP);
  }

  private Database(Connections connections, String name, RequestId requestId) {
    this.connections = connections;
    this.name = name;
    this.requestId = requestId;
  }

  /**
   * Return a handle whose next change carries this request id. The services apply changes with
   * equal ids once, so another process can retry a change, for example after this one died. Use a
   * new id for each change: if an id is used again for a different change or for different rows,
   * the call is refused. Handles of tables, views and jobs have their own method for this.
   */
  public Database withRequestId(String id) {
    Arguments.given("id", id);
    return new Database(connections, name, RequestId.of(id));
  }

  /** The name, path or URI, as it was given. */
  public String name() {
    return name;
  }

  /** Return a handle for a table. Makes no call: the first call fails if there is no such table. */
  public Table table(String table) {
    Arguments.given("table", table);
    return new Table(connections, name, table, RequestId.MADE_UP);
  }

  /** Return a handle for a view. Makes no call: the first call fails if there is no such view. */
  public View view(String view) {
    Arguments.given("view", view);
    return new View(connections, name, view, RequestId.MADE_UP);
  }

  /** Return a handle for a job. Makes no call. */
  public JobHandle job(String id) {
    Arguments.given("id", id);
    return new JobHandle(connections, name, id);
  }

  /** List the names of the tables. */
  public Pages<String> tables() {
    ListTablesRequest.Builder request = ListTablesRequest.newBuilder().setDatabase(name);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                CatalogServiceGrpc.getListTablesMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer -> new Pages.Page<>(answer.getTablesList(), answer.getNextPageToken())));
  }

  /** Create an empty table. */
  public Table createTable(String table, Schema schema) {
    return Futures.get(createTableAsync(table, schema));
  }

  /** Like {@link #createTable(String, Schema)}. */
  public CompletableFuture<Table> createTableAsync(String table, Schema schema) {
    Arguments.given("table", table);
    Arguments.given("schema", schema);
    CreateTableRequest request =
        CreateTableRequest.newBuilder()
            .setTable(ref(table))
            .setSchema(Schemas.write(schema))
            .setStableRowIds(true)
            .setRequestId(requestId.next())
            .build();
    return connections.unary(
        TableServiceGrpc.getCreateTableMethod(), request, answer -> table(table));
  }

  /**
   * Create a table with rows. If adding the rows fails, it drops the table, unless you set a
   * request id: then the table stays, and another call with that id can continue.
   */
  public Table createTable(String table, RowSource rows) {
    Arguments.given("table", table);
    Arguments.given("rows", rows);
    try (ArrowReader first = RowUpload.asked(rows::open)) {
      if (first == null) {
        throw RowUpload.none();
      }
      Table made = createTable(table, RowUpload.asked(() -> schema(first)));
      ArrowReader[] left = {first};
      addFirst(made, () -> taken(left, rows));
      return made;
    } catch (IOException unreadable) {
      throw RowUpload.unreadable(unreadable);
    }
  }

  /** Like {@link #createTable(String, RowSource)}; reads the rows in a thread of the client. */
  public CompletableFuture<Table> createTableAsync(String table, RowSource rows) {
    Arguments.given("table", table);
    Arguments.given("rows", rows);
    return Futures.run(connections, () -> createTable(table, rows));
  }

  private void addFirst(Table made, RowSource rows) {
    AppendRowsHeader header =
        AppendRowsHeader.newBuilder()
            .setTable(ref(made.name()))
            .setRequestId(requestId.derived("rows").next())
            .build();
    try {
      RowUpload.append(connections, header, rows);
    } catch (RuntimeException | Error failed) {
      if (!requestId.isGiven()) {
        dropUnfinished(made, failed);
      }
      throw failed;
    }
  }

  private void dropUnfinished(Table made, Throwable failed) {
    try {
      dropTable(made.name(), true);
    } catch (LemanException left) {
      failed.addSuppressed(left);
    }
  }

  /** Return the reader that is already open, for the first attempt, or open another one. */
  private static ArrowReader taken(ArrowReader[] left, RowSource rows) throws IOException {
    ArrowReader first = left[0];
    left[0] = null;
    return first != null ? first : rows.open();
  }

  private static Schema schema(ArrowReader rows) throws IOException {
    Schema inMemory = rows.getVectorSchemaRoot().getSchema();
    List<Field> sent =
        inMemory.getFields().stream()
            .map(field -> DictionaryUtility.toMessageFormat(field, rows, new HashSet<>()))
            .toList();
    return new Schema(sent, inMemory.getCustomMetadata());
  }

  /** Remove a table on which nothing depends; see {@link #dropTable(String, boolean)}. */
  public void dropTable(String table) {
    Arguments.given("table", table);
    dropTable(table, false);
  }

  /**
   * Remove a table: its rows in all versions, and the files that are stored next to them. The
   * history of its jobs stays.
   *
   * @param force remove it even if views depend on it, or jobs of it have not ended
   */
  public void dropTable(String table, boolean force) {
    Futures.get(dropTableAsync(table, force));
  }

  /** Like {@link #dropTable(String)}. */
  public CompletableFuture<Void> dropTableAsync(String table) {
    return dropTableAsync(table, false);
  }

  /** Like {@link #dropTable(String, boolean)}. */
  public CompletableFuture<Void> dropTableAsync(String table, boolean force) {
    Arguments.given("table", table);
    DropTableRequest request =
        DropTableRequest.newBuilder()
            .setTable(ref(table))
            .setForce(force)
            .setRequestId(requestId.next())
            .build();
    return connections.unary(TableServiceGrpc.getDropTableMethod(), request, answer -> null);
  }

  /** Rename a table; see {@link #renameTable(String, String, boolean)}. */
  public Table renameTable(String table, String newName) {
    Arguments.given("table", table);
    Arguments.given("newName", newName);
    return renameTable(table, newName, false);
  }

  /**
   * Rename a table in a file system. References to the old name are not updated.
   *
   * @param force rename it even if views depend on it, or jobs of it have not ended
   */
  public Table renameTable(String table, String newName, boolean force) {
    return Futures.get(renameTableAsync(table, newName, force));
  }

  /** Like {@link #renameTable(String, String)}. */
  public CompletableFuture<Table> renameTableAsync(String table, String newName) {
    return renameTableAsync(table, newName, false);
  }

  /** Like {@link #renameTable(String, String, boolean)}. */
  public CompletableFuture<Table> renameTableAsync(String table, String newName, boolean force) {
    Arguments.given("table", table);
    Arguments.given("newName", newName);
    RenameTableRequest request =
        RenameTableRequest.newBuilder()
            .setTable(ref(table))
            .setNewName(newName)
            .setForce(force)
            .setRequestId(requestId.next())
            .build();
    return connections.unary(
        TableServiceGrpc.getRenameTableMethod(), request, answer -> table(newName));
  }

  /** List the views. */
  public Pages<MaterializedViewSummary> views() {
    ListMaterializedViewsRequest.Builder request =
        ListMaterializedViewsRequest.newBuilder().setDatabase(name);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                CatalogServiceGrpc.getListMaterializedViewsMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer ->
                    new Pages.Page<>(
                        answer.getViewsList(),
                        answer.getNextPageToken(),
                        answer.getWarningsList())));
  }

  /**
   * Create a view, with an empty row for each row of its source that matches; a refresh computes
   * the values.
   */
  public View createView(String view, ViewDefinition definition) {
    return Futures.get(createViewAsync(view, definition));
  }

  /** Like {@link #createView}. */
  public CompletableFuture<View> createViewAsync(String view, ViewDefinition definition) {
    Arguments.given("view", view);
    Arguments.given("definition", definition);
    CreateMaterializedViewRequest request =
        CreateMaterializedViewRequest.newBuilder()
            .setView(ref(view))
            .setQuery(definition.told(name))
            .setRequestId(requestId.next())
            .build();
    return connections.unary(
        CatalogServiceGrpc.getCreateMaterializedViewMethod(), request, answer -> view(view));
  }

  /**
   * Remove a view that is not the source of another one; see {@link #dropView(String, boolean)}.
   */
  public void dropView(String view) {
    Arguments.given("view", view);
    dropView(view, false);
  }

  /**
   * Remove a view. Its source and the registered functions stay.
   *
   * @param force remove it even if it is the source of another view, which then cannot be refreshed
   */
  public void dropView(String view, boolean force) {
    Futures.get(dropViewAsync(view, force));
  }

  /** Like {@link #dropView(String)}. */
  public CompletableFuture<Void> dropViewAsync(String view) {
    return dropViewAsync(view, false);
  }

  /** Like {@link #dropView(String, boolean)}. */
  public CompletableFuture<Void> dropViewAsync(String view, boolean force) {
    Arguments.given("view", view);
    DropViewRequest request =
        DropViewRequest.newBuilder()
            .setView(ref(view))
            .setForce(force)
            .setRequestId(requestId.next())
            .build();
    return connections.unary(CommitServiceGrpc.getDropViewMethod(), request, answer -> null);
  }

  /** List the registered functions, by name, and the newest version of each first. */
  public Pages<UdfDefinition> functions() {
    ListUdfsRequest.Builder request = ListUdfsRequest.newBuilder().setDatabase(name);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                CatalogServiceGrpc.getListUdfsMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer ->
                    new Pages.Page<>(answer.getDefinitionsList(), answer.getNextPageToken())));
  }

  /**
   * Return a registered function: {@code name@version}, or {@code name} for the one registered
   * last.
   */
  public UdfDefinition function(String nameAndVersion) {
    return Futures.get(functionAsync(nameAndVersion));
  }

  /** Like {@link #function}. */
  public CompletableFuture<UdfDefinition> functionAsync(String nameAndVersion) {
    Arguments.given("nameAndVersion", nameAndVersion);
    GetUdfRequest request =
        GetUdfRequest.newBuilder()
            .setDatabase(name)
            .setUdf(ColumnFunction.ref(nameAndVersion))
            .build();
    return connections.unary(
        CatalogServiceGrpc.getGetUdfMethod(), request, GetUdfResponse::getDefinition);
  }

  /** Register a function. If the same definition is registered already, nothing changes. */
  public void registerFunction(FunctionDefinition definition) {
    Futures.get(registerFunctionAsync(definition));
  }

  /** Like {@link #registerFunction}. */
  public CompletableFuture<Void> registerFunctionAsync(FunctionDefinition definition) {
    Arguments.given("definition", definition);
    RegisterUdfRequest request =
        RegisterUdfRequest.newBuilder().setDatabase(name).setDefinition(definition.told()).build();
    return connections.unary(CatalogServiceGrpc.getRegisterUdfMethod(), request, answer -> null);
  }

  /**
   * Register a {@link FunctionDefinition#remote} function. At least one of its servers must answer,
   * and all that answer must serve the same version. You can register it again with other
   * addresses.
   *
   * @return the stored definition, with the version and types that the servers report
   */
  public UdfDefinition registerRemote(FunctionDefinition definition) {
    return Futures.get(registerRemoteAsync(definition));
  }

  /** Like {@link #registerRemote}. */
  public CompletableFuture<UdfDefinition> registerRemoteAsync(FunctionDefinition definition) {
    Arguments.given("definition", definition);
    RegisterUdfRequest request =
        RegisterUdfRequest.newBuilder().setDatabase(name).setDefinition(definition.told()).build();
    return connections.unary(
        CatalogServiceGrpc.getRegisterUdfMethod(), request, RegisterUdfResponse::getDefinition);
  }

  /**
   * Store a pickled function that was made elsewhere, and return the sha256 for {@link
   * FunctionDefinition#bundle}.
   */
  public String uploadBundle(byte[] data) {
    Arguments.given("data", data);
    return BundleUpload.send(connections, name, data);
  }

  /** Like {@link #uploadBundle}. */
  public CompletableFuture<String> uploadBundleAsync(byte[] data) {
    Arguments.given("data", data);
    return Futures.run(connections, () -> uploadBundle(data));
  }

  /** List jobs of the database, both running and ended. */
  public Pages<Job> jobs(JobQuery query) {
    Arguments.given("query", query);
    ListJobsRequest.Builder request =
        ListJobsRequest.newBuilder()
            .setDatabase(name)
            .setFilter(query.filter())
            .setOrder(query.order());
    return new Pages<>(
        (token, size) ->
            connections.unary(
                JobServiceGrpc.getListJobsMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer ->
                    new Pages.Page<>(
                        answer.getJobsList(),
                        answer.getNextPageToken(),
                        answer.getWarningsList())));
  }

  /** Cancel all matching jobs that have not ended. */
  public CancelJobsResponse cancelJobs(JobQuery query) {
    return Futures.get(cancelJobsAsync(query));
  }

  /** Like {@link #cancelJobs}. */
  public CompletableFuture<CancelJobsResponse> cancelJobsAsync(JobQuery query) {
    Arguments.given("query", query);
    CancelJobsRequest request =
        CancelJobsRequest.newBuilder().setDatabase(name).setFilter(query.filter()).build();
    return connections.unary(JobServiceGrpc.getCancelJobsMethod(), request, answer -> answer);
  }

  /** Compare all stored data of the database with the recorded digests, part by part. */
  public Verification verify() {
    return verify("");
  }

  /**
   * Like {@link #verify()}, but continue after the part of an earlier verification that has this
   * resume token.
   */
  public Verification verify(String resumeToken) {
    Arguments.given("resumeToken", resumeToken);
    return new Verification(connections, name, resumeToken);
  }

  private TableRef ref(String table) {
    return TableRef.newBuilder().setDatabase(name).setTable(table).build();
  }

  @Override
  public String toString() {
    return "database " + name;
  }
}
