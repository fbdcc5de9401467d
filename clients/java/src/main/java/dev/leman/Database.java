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
 * A database: a folder, or a prefix of an object store, of Lance tables. Holds no state: every
 * answer is of now.
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
   * The same database, whose next change is made under this id: once, however often it is asked
   * for, also by another process after this one died. Take an id for each change; the same one with
   * another change, or with other rows, is refused. Its tables, views and jobs have ids of their
   * own.
   */
  public Database withRequestId(String id) {
    Arguments.given("id", id);
    return new Database(connections, name, RequestId.of(id));
  }

  /** Its name, path or uri, as it was given. */
  public String name() {
    return name;
  }

  /** A table. Nothing is called: whether there is one is told by the first call. */
  public Table table(String table) {
    Arguments.given("table", table);
    return new Table(connections, name, table, RequestId.MADE_UP);
  }

  /** A view. Nothing is called: whether there is one is told by the first call. */
  public View view(String view) {
    Arguments.given("view", view);
    return new View(connections, name, view, RequestId.MADE_UP);
  }

  /** A job, by its id. Nothing is called. */
  public JobHandle job(String id) {
    Arguments.given("id", id);
    return new JobHandle(connections, name, id);
  }

  /** Names of the tables. */
  public Pages<String> tables() {
    ListTablesRequest.Builder request = ListTablesRequest.newBuilder().setDatabase(name);
    return new Pages<>(
        (token, size) ->
            connections.unary(
                CatalogServiceGrpc.getListTablesMethod(),
                request.clone().setPageToken(token).setPageSize(size).build(),
                answer -> new Pages.Page<>(answer.getTablesList(), answer.getNextPageToken())));
  }

  /** Make a table without rows. */
  public Table createTable(String table, Schema schema) {
    return Futures.get(createTableAsync(table, schema));
  }

  /** As {@link #createTable(String, Schema)}. */
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
   * Make a table with rows. Where they cannot be added, the table goes again, unless you gave a
   * request id: then it stays for the next call.
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

  /** As {@link #createTable(String, RowSource)}; the rows are taken in a thread of the client. */
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

  /** The reader that is open, for the first attempt; for others another one. */
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

  /** Remove a table that nothing rests on; see {@link #dropTable(String, boolean)}. */
  public void dropTable(String table) {
    Arguments.given("table", table);
    dropTable(table, false);
  }

  /**
   * Remove a table: its rows in all versions, and what is stored beside them. The history of its
   * jobs stays.
   *
   * @param force although views rest on it, or jobs of it have not ended
   */
  public void dropTable(String table, boolean force) {
    Futures.get(dropTableAsync(table, force));
  }

  /** As {@link #dropTable(String)}. */
  public CompletableFuture<Void> dropTableAsync(String table) {
    return dropTableAsync(table, false);
  }

  /** As {@link #dropTable(String, boolean)}. */
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

  /** Give a table another name; see {@link #renameTable(String, String, boolean)}. */
  public Table renameTable(String table, String newName) {
    Arguments.given("table", table);
    Arguments.given("newName", newName);
    return renameTable(table, newName, false);
  }

  /**
   * Give a table of a file system another name. What refers to it by its old name does not follow.
   *
   * @param force although views rest on it, or jobs of it have not ended
   */
  public Table renameTable(String table, String newName, boolean force) {
    return Futures.get(renameTableAsync(table, newName, force));
  }

  /** As {@link #renameTable(String, String)}. */
  public CompletableFuture<Table> renameTableAsync(String table, String newName) {
    return renameTableAsync(table, newName, false);
  }

  /** As {@link #renameTable(String, String, boolean)}. */
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

  /** The views. */
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

  /** Make a view: a placeholder for each row of its source that matches; a refresh fills it. */
  public View createView(String view, ViewDefinition definition) {
    return Futures.get(createViewAsync(view, definition));
  }

  /** As {@link #createView}. */
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

  /** Remove a view that is no other one's source; see {@link #dropView(String, boolean)}. */
  public void dropView(String view) {
    Arguments.given("view", view);
    dropView(view, false);
  }

  /**
   * Remove a view. Its source and the registered functions stay.
   *
   * @param force although it is the source of another view, which then cannot be refreshed any more
   */
  public void dropView(String view, boolean force) {
    Futures.get(dropViewAsync(view, force));
  }

  /** As {@link #dropView(String)}. */
  public CompletableFuture<Void> dropViewAsync(String view) {
    return dropViewAsync(view, false);
  }

  /** As {@link #dropView(String, boolean)}. */
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

  /** The registered functions, by name, then newest first. */
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

  /** A registered function: {@code name@version}, or {@code name} for the one registered last. */
  public UdfDefinition function(String nameAndVersion) {
    return Futures.get(functionAsync(nameAndVersion));
  }

  /** As {@link #function}. */
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

  /** Register a function; one that is registered already stays. */
  public void registerFunction(FunctionDefinition definition) {
    Futures.get(registerFunctionAsync(definition));
  }

  /** As {@link #registerFunction}. */
  public CompletableFuture<Void> registerFunctionAsync(FunctionDefinition definition) {
    Arguments.given("definition", definition);
    RegisterUdfRequest request =
        RegisterUdfRequest.newBuilder().setDatabase(name).setDefinition(definition.told()).build();
    return connections.unary(CatalogServiceGrpc.getRegisterUdfMethod(), request, answer -> null);
  }

  /**
   * Store a {@link FunctionDefinition#remote} function. At least one of its servers has to answer,
   * and all that do have to serve the same. It may be stored again with other addresses.
   *
   * @return as it is stored, with the version and the types that the servers tell
   */
  public UdfDefinition registerRemote(FunctionDefinition definition) {
    return Futures.get(registerRemoteAsync(definition));
  }

  /** As {@link #registerRemote}. */
  public CompletableFuture<UdfDefinition> registerRemoteAsync(FunctionDefinition definition) {
    Arguments.given("definition", definition);
    RegisterUdfRequest request =
        RegisterUdfRequest.newBuilder().setDatabase(name).setDefinition(definition.told()).build();
    return connections.unary(
        CatalogServiceGrpc.getRegisterUdfMethod(), request, RegisterUdfResponse::getDefinition);
  }

  /**
   * Store a pickled function, made elsewhere, and tell the sha256 for {@link
   * FunctionDefinition#bundle}.
   */
  public String uploadBundle(byte[] data) {
    Arguments.given("data", data);
    return BundleUpload.send(connections, name, data);
  }

  /** As {@link #uploadBundle}. */
  public CompletableFuture<String> uploadBundleAsync(byte[] data) {
    Arguments.given("data", data);
    return Futures.run(connections, () -> uploadBundle(data));
  }

  /** The jobs of the database, running or from history. */
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

  /** Ask all jobs to stop that have not ended. */
  public CancelJobsResponse cancelJobs(JobQuery query) {
    return Futures.get(cancelJobsAsync(query));
  }

  /** As {@link #cancelJobs}. */
  public CompletableFuture<CancelJobsResponse> cancelJobsAsync(JobQuery query) {
    Arguments.given("query", query);
    CancelJobsRequest request =
        CancelJobsRequest.newBuilder().setDatabase(name).setFilter(query.filter()).build();
    return connections.unary(JobServiceGrpc.getCancelJobsMethod(), request, answer -> answer);
  }

  /** Compare all that the database keeps with the digests of what was written, part by part. */
  public Verification verify() {
    return verify("");
  }

  /**
   * As {@link #verify()}, behind what an earlier one told, by the resume token of its last part.
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
