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

/** The databases that the services know by name. */
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
   * The same, whose next change is made under this id: once, however often it is asked for, also by
   * another process after this one died. Take an id for each change; the same one with another
   * change is refused.
   */
  public Databases withRequestId(String id) {
    Arguments.given("id", id);
    return new Databases(connections, RequestId.of(id));
  }

  /** All of them, by name. */
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

  /** One of them. */
  public dev.leman.v1.Database get(String name) {
    return Futures.get(getAsync(name));
  }

  /** As {@link #get}. */
  public CompletableFuture<dev.leman.v1.Database> getAsync(String name) {
    Arguments.given("name", name);
    GetDatabaseRequest request = GetDatabaseRequest.newBuilder().setName(name).build();
    return connections.unary(
        DatabaseServiceGrpc.getGetDatabaseMethod(), request, GetDatabaseResponse::getDatabase);
  }

  /** Give a database a name: its {@code name} and {@code root} are set. */
  public dev.leman.v1.Database register(dev.leman.v1.Database database) {
    return Futures.get(registerAsync(database));
  }

  /** As {@link #register}. */
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

  /** As {@link #update}. */
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

  /** Take a name away; the database stays. {@code force}: although jobs of it have not ended. */
  public void unregister(String name, boolean force) {
    Futures.get(unregisterAsync(name, force));
  }

  /** As {@link #unregister}. */
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
