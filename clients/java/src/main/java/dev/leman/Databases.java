package dev.leman;

import com.google.protobuf.FieldMask;
import dev.leman.internal.Arguments;
import dev.leman.v1.DatabaseServiceGrpc;
import dev.leman.v1.GetDatabaseRequest;
import dev.leman.v1.GetDatabaseResponse;
import dev.leman.v1.ListDatabasesRequest;
import dev.leman.v1.RegisterDatabaseRequest;
import dev.leman.v1.RegisterDatabaseResponse;
import dev.leman.v1.UnregisterDatabaseRequest;
import dev.leman.v1.UpdateDatabaseRequest;
import dev.leman.v1.UpdateDatabaseResponse;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The registered databases. */
public final class Databases {
  private final Connections connections;
  private final RequestId requestId;

  Databases(Connections connections) {
    this(connections, RequestId.MADE_UP);
  }

  private Databases(Connections connections, RequestId requestId) {
    this.connections = connections;
    this.requestId = requestId;
  }

  /**
   * Return a handle whose next change carries this request id. The services apply changes with
   * equal ids once, so another process can retry a change, for example after this one died. Use a
   * new id for each change: if an id is used again for a different change, the call is refused.
   */
  public Databases withRequestId(String id) {
    Arguments.given("id", id);
    return new Databases(connections, RequestId.of(id));
  }

  /** List all of them, by name. */
  public Pages<dev.leman.v1.Database> list() {
    return new Pages<>(
        (token, size) ->
            connections.unary(
                DatabaseServiceGrpc.getListDatabasesMethod(),
                ListDatabasesRequest.newBuilder().setPageToken(token).setPageSize(size).build(),
                answer ->
                    new Pages.Page<>(
                        answer.getDatabasesList(),
                        answer.getNextPageToken(),
                        answer.getWarningsList())));
  }

  /** Return one of them. */
  public dev.leman.v1.Database get(String name) {
    return Futures.get(getAsync(name));
  }

  /** Like {@link #get}. */
  public CompletableFuture<dev.leman.v1.Database> getAsync(String name) {
    Arguments.given("name", name);
    GetDatabaseRequest request = GetDatabaseRequest.newBuilder().setName(name).build();
    return connections.unary(
        DatabaseServiceGrpc.getGetDatabaseMethod(), request, GetDatabaseResponse::getDatabase);
  }

  /** Register a name for a database; set its {@code name} and {@code root}. */
  public dev.leman.v1.Database register(dev.leman.v1.Database database) {
    return Futures.get(registerAsync(database));
  }

  /** Like {@link #register}. */
  public CompletableFuture<dev.leman.v1.Database> registerAsync(dev.leman.v1.Database database) {
    Arguments.given("database", database);
    RegisterDatabaseRequest request =
        RegisterDatabaseRequest.newBuilder()
            .setDatabase(database)
            .setRequestId(requestId.next())
            .build();
    return connections.unary(
        DatabaseServiceGrpc.getRegisterDatabaseMethod(),
        request,
        RegisterDatabaseResponse::getDatabase);
  }

  /** Change these fields of a registered database, such as {@code description}. */
  public dev.leman.v1.Database update(dev.leman.v1.Database database, String... fields) {
    return Futures.get(updateAsync(database, fields));
  }

  /** Like {@link #update}. */
  public CompletableFuture<dev.leman.v1.Database> updateAsync(
      dev.leman.v1.Database database, String... fields) {
    Arguments.given("database", database);
    Arguments.given("fields", fields);
    UpdateDatabaseRequest request =
        UpdateDatabaseRequest.newBuilder()
            .setDatabase(database)
            .setUpdateMask(FieldMask.newBuilder().addAllPaths(List.of(fields)))
            .build();
    return connections.unary(
        DatabaseServiceGrpc.getUpdateDatabaseMethod(),
        request,
        UpdateDatabaseResponse::getDatabase);
  }

  /**
   * Remove a registered name; the database itself stays. {@code force}: even if jobs of it have not
   * ended.
   */
  public void unregister(String name, boolean force) {
    Futures.get(unregisterAsync(name, force));
  }

  /** Like {@link #unregister}. */
  public CompletableFuture<Void> unregisterAsync(String name, boolean force) {
    Arguments.given("name", name);
    UnregisterDatabaseRequest request =
        UnregisterDatabaseRequest.newBuilder()
            .setName(name)
            .setForce(force)
            .setRequestId(requestId.next())
            .build();
    return connections.unary(
        DatabaseServiceGrpc.getUnregisterDatabaseMethod(), request, answer -> null);
  }
}
