package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Registered databases. In every request, the field `database` may have the name of a registered database instead of
 * its root; responses always have the root. Served by the planner; every service reads the registrations.
 * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
 * Errors of every call:
 * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
 *   `authorization: Bearer &lt;token&gt;` with one.
 * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
 * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
 * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
 *   it is invalid or too long; correct the field that BadRequest names.
 * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
 *   LEMAN_SERVER__REGISTRY for all services.
 * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
 *   access until an operator acts; do what the message says, then retry the call.
 * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
 * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
 * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
 *   delay.
 * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
 * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
 *   request less in one call. There is no RetryInfo.
 * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
 * </pre>
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class DatabaseServiceGrpc {

  private DatabaseServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.DatabaseService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.RegisterDatabaseRequest,
      dev.leman.v1.RegisterDatabaseResponse> getRegisterDatabaseMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "RegisterDatabase",
      requestType = dev.leman.v1.RegisterDatabaseRequest.class,
      responseType = dev.leman.v1.RegisterDatabaseResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.RegisterDatabaseRequest,
      dev.leman.v1.RegisterDatabaseResponse> getRegisterDatabaseMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.RegisterDatabaseRequest, dev.leman.v1.RegisterDatabaseResponse> getRegisterDatabaseMethod;
    if ((getRegisterDatabaseMethod = DatabaseServiceGrpc.getRegisterDatabaseMethod) == null) {
      synchronized (DatabaseServiceGrpc.class) {
        if ((getRegisterDatabaseMethod = DatabaseServiceGrpc.getRegisterDatabaseMethod) == null) {
          DatabaseServiceGrpc.getRegisterDatabaseMethod = getRegisterDatabaseMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.RegisterDatabaseRequest, dev.leman.v1.RegisterDatabaseResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "RegisterDatabase"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RegisterDatabaseRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RegisterDatabaseResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DatabaseServiceMethodDescriptorSupplier("RegisterDatabase"))
              .build();
        }
      }
    }
    return getRegisterDatabaseMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetDatabaseRequest,
      dev.leman.v1.GetDatabaseResponse> getGetDatabaseMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetDatabase",
      requestType = dev.leman.v1.GetDatabaseRequest.class,
      responseType = dev.leman.v1.GetDatabaseResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetDatabaseRequest,
      dev.leman.v1.GetDatabaseResponse> getGetDatabaseMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetDatabaseRequest, dev.leman.v1.GetDatabaseResponse> getGetDatabaseMethod;
    if ((getGetDatabaseMethod = DatabaseServiceGrpc.getGetDatabaseMethod) == null) {
      synchronized (DatabaseServiceGrpc.class) {
        if ((getGetDatabaseMethod = DatabaseServiceGrpc.getGetDatabaseMethod) == null) {
          DatabaseServiceGrpc.getGetDatabaseMethod = getGetDatabaseMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetDatabaseRequest, dev.leman.v1.GetDatabaseResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetDatabase"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetDatabaseRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetDatabaseResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DatabaseServiceMethodDescriptorSupplier("GetDatabase"))
              .build();
        }
      }
    }
    return getGetDatabaseMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListDatabasesRequest,
      dev.leman.v1.ListDatabasesResponse> getListDatabasesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListDatabases",
      requestType = dev.leman.v1.ListDatabasesRequest.class,
      responseType = dev.leman.v1.ListDatabasesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListDatabasesRequest,
      dev.leman.v1.ListDatabasesResponse> getListDatabasesMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListDatabasesRequest, dev.leman.v1.ListDatabasesResponse> getListDatabasesMethod;
    if ((getListDatabasesMethod = DatabaseServiceGrpc.getListDatabasesMethod) == null) {
      synchronized (DatabaseServiceGrpc.class) {
        if ((getListDatabasesMethod = DatabaseServiceGrpc.getListDatabasesMethod) == null) {
          DatabaseServiceGrpc.getListDatabasesMethod = getListDatabasesMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListDatabasesRequest, dev.leman.v1.ListDatabasesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListDatabases"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListDatabasesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListDatabasesResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DatabaseServiceMethodDescriptorSupplier("ListDatabases"))
              .build();
        }
      }
    }
    return getListDatabasesMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.UpdateDatabaseRequest,
      dev.leman.v1.UpdateDatabaseResponse> getUpdateDatabaseMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "UpdateDatabase",
      requestType = dev.leman.v1.UpdateDatabaseRequest.class,
      responseType = dev.leman.v1.UpdateDatabaseResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.UpdateDatabaseRequest,
      dev.leman.v1.UpdateDatabaseResponse> getUpdateDatabaseMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.UpdateDatabaseRequest, dev.leman.v1.UpdateDatabaseResponse> getUpdateDatabaseMethod;
    if ((getUpdateDatabaseMethod = DatabaseServiceGrpc.getUpdateDatabaseMethod) == null) {
      synchronized (DatabaseServiceGrpc.class) {
        if ((getUpdateDatabaseMethod = DatabaseServiceGrpc.getUpdateDatabaseMethod) == null) {
          DatabaseServiceGrpc.getUpdateDatabaseMethod = getUpdateDatabaseMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.UpdateDatabaseRequest, dev.leman.v1.UpdateDatabaseResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "UpdateDatabase"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UpdateDatabaseRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UpdateDatabaseResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DatabaseServiceMethodDescriptorSupplier("UpdateDatabase"))
              .build();
        }
      }
    }
    return getUpdateDatabaseMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.UnregisterDatabaseRequest,
      dev.leman.v1.UnregisterDatabaseResponse> getUnregisterDatabaseMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "UnregisterDatabase",
      requestType = dev.leman.v1.UnregisterDatabaseRequest.class,
      responseType = dev.leman.v1.UnregisterDatabaseResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.UnregisterDatabaseRequest,
      dev.leman.v1.UnregisterDatabaseResponse> getUnregisterDatabaseMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.UnregisterDatabaseRequest, dev.leman.v1.UnregisterDatabaseResponse> getUnregisterDatabaseMethod;
    if ((getUnregisterDatabaseMethod = DatabaseServiceGrpc.getUnregisterDatabaseMethod) == null) {
      synchronized (DatabaseServiceGrpc.class) {
        if ((getUnregisterDatabaseMethod = DatabaseServiceGrpc.getUnregisterDatabaseMethod) == null) {
          DatabaseServiceGrpc.getUnregisterDatabaseMethod = getUnregisterDatabaseMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.UnregisterDatabaseRequest, dev.leman.v1.UnregisterDatabaseResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "UnregisterDatabase"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UnregisterDatabaseRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UnregisterDatabaseResponse.getDefaultInstance()))
              .setSchemaDescriptor(new DatabaseServiceMethodDescriptorSupplier("UnregisterDatabase"))
              .build();
        }
      }
    }
    return getUnregisterDatabaseMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static DatabaseServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceStub>() {
        @java.lang.Override
        public DatabaseServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DatabaseServiceStub(channel, callOptions);
        }
      };
    return DatabaseServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static DatabaseServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceBlockingV2Stub>() {
        @java.lang.Override
        public DatabaseServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DatabaseServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return DatabaseServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static DatabaseServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceBlockingStub>() {
        @java.lang.Override
        public DatabaseServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DatabaseServiceBlockingStub(channel, callOptions);
        }
      };
    return DatabaseServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static DatabaseServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<DatabaseServiceFutureStub>() {
        @java.lang.Override
        public DatabaseServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new DatabaseServiceFutureStub(channel, callOptions);
        }
      };
    return DatabaseServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Registered databases. In every request, the field `database` may have the name of a registered database instead of
   * its root; responses always have the root. Served by the planner; every service reads the registrations.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
   *   LEMAN_SERVER__REGISTRY for all services.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public interface AsyncService {

    /**
     * <pre>
     * Gives a database a name. Nothing is written to the database itself, and it need not exist yet: its first table
     * creates it.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_DATABASE_NAME, BAD_DATABASE, RESERVED_DATABASE, BAD_LABEL, BAD_TEXT,
     *   BAD_NUMBER): an invalid name, root, label, description or limit; correct the field that BadRequest names.
     * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): the root is outside of the locations that the services may use; name
     *   another one.
     * * `ALREADY_EXISTS` (DATABASE_EXISTS): the name belongs to another database, or the root has another name; use
     *   another name, or the one in the message.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_DATABASES): no more can be registered; unregister one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    default void registerDatabase(dev.leman.v1.RegisterDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RegisterDatabaseResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getRegisterDatabaseMethod(), responseObserver);
    }

    /**
     * <pre>
     * One database.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * </pre>
     */
    default void getDatabase(dev.leman.v1.GetDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetDatabaseResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetDatabaseMethod(), responseObserver);
    }

    /**
     * <pre>
     * All registered databases, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    default void listDatabases(dev.leman.v1.ListDatabasesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListDatabasesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListDatabasesMethod(), responseObserver);
    }

    /**
     * <pre>
     * Changes the description, labels or limits of a database. Its name and its root cannot be changed, because work that
     * began under a name must not continue elsewhere: unregister it and register another one.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `description`, `labels` or `limits`.
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_LABEL, BAD_TEXT, BAD_NUMBER): as for RegisterDatabase.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    default void updateDatabase(dev.leman.v1.UpdateDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UpdateDatabaseResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getUpdateDatabaseMethod(), responseObserver);
    }

    /**
     * <pre>
     * Removes the name of a database. Its tables, functions and jobs stay; they can be reached by path or uri, if the
     * services allow that, or under another name. A service may accept the name for some more seconds.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `name` or `request_id` is empty; fill it.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it.
     * * `FAILED_PRECONDITION` (DATABASE_IN_USE): jobs of the database have not ended; wait for them or cancel them, or set
     *   `force`.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    default void unregisterDatabase(dev.leman.v1.UnregisterDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UnregisterDatabaseResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getUnregisterDatabaseMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service DatabaseService.
   * <pre>
   * Registered databases. In every request, the field `database` may have the name of a registered database instead of
   * its root; responses always have the root. Served by the planner; every service reads the registrations.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
   *   LEMAN_SERVER__REGISTRY for all services.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static abstract class DatabaseServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return DatabaseServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service DatabaseService.
   * <pre>
   * Registered databases. In every request, the field `database` may have the name of a registered database instead of
   * its root; responses always have the root. Served by the planner; every service reads the registrations.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
   *   LEMAN_SERVER__REGISTRY for all services.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class DatabaseServiceStub
      extends io.grpc.stub.AbstractAsyncStub<DatabaseServiceStub> {
    private DatabaseServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DatabaseServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DatabaseServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Gives a database a name. Nothing is written to the database itself, and it need not exist yet: its first table
     * creates it.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_DATABASE_NAME, BAD_DATABASE, RESERVED_DATABASE, BAD_LABEL, BAD_TEXT,
     *   BAD_NUMBER): an invalid name, root, label, description or limit; correct the field that BadRequest names.
     * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): the root is outside of the locations that the services may use; name
     *   another one.
     * * `ALREADY_EXISTS` (DATABASE_EXISTS): the name belongs to another database, or the root has another name; use
     *   another name, or the one in the message.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_DATABASES): no more can be registered; unregister one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public void registerDatabase(dev.leman.v1.RegisterDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RegisterDatabaseResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getRegisterDatabaseMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * One database.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * </pre>
     */
    public void getDatabase(dev.leman.v1.GetDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetDatabaseResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetDatabaseMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * All registered databases, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public void listDatabases(dev.leman.v1.ListDatabasesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListDatabasesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListDatabasesMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Changes the description, labels or limits of a database. Its name and its root cannot be changed, because work that
     * began under a name must not continue elsewhere: unregister it and register another one.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `description`, `labels` or `limits`.
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_LABEL, BAD_TEXT, BAD_NUMBER): as for RegisterDatabase.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public void updateDatabase(dev.leman.v1.UpdateDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UpdateDatabaseResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getUpdateDatabaseMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Removes the name of a database. Its tables, functions and jobs stay; they can be reached by path or uri, if the
     * services allow that, or under another name. A service may accept the name for some more seconds.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `name` or `request_id` is empty; fill it.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it.
     * * `FAILED_PRECONDITION` (DATABASE_IN_USE): jobs of the database have not ended; wait for them or cancel them, or set
     *   `force`.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public void unregisterDatabase(dev.leman.v1.UnregisterDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UnregisterDatabaseResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getUnregisterDatabaseMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service DatabaseService.
   * <pre>
   * Registered databases. In every request, the field `database` may have the name of a registered database instead of
   * its root; responses always have the root. Served by the planner; every service reads the registrations.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
   *   LEMAN_SERVER__REGISTRY for all services.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class DatabaseServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<DatabaseServiceBlockingV2Stub> {
    private DatabaseServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DatabaseServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DatabaseServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Gives a database a name. Nothing is written to the database itself, and it need not exist yet: its first table
     * creates it.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_DATABASE_NAME, BAD_DATABASE, RESERVED_DATABASE, BAD_LABEL, BAD_TEXT,
     *   BAD_NUMBER): an invalid name, root, label, description or limit; correct the field that BadRequest names.
     * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): the root is outside of the locations that the services may use; name
     *   another one.
     * * `ALREADY_EXISTS` (DATABASE_EXISTS): the name belongs to another database, or the root has another name; use
     *   another name, or the one in the message.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_DATABASES): no more can be registered; unregister one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public dev.leman.v1.RegisterDatabaseResponse registerDatabase(dev.leman.v1.RegisterDatabaseRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getRegisterDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One database.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.GetDatabaseResponse getDatabase(dev.leman.v1.GetDatabaseRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * All registered databases, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListDatabasesResponse listDatabases(dev.leman.v1.ListDatabasesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListDatabasesMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Changes the description, labels or limits of a database. Its name and its root cannot be changed, because work that
     * began under a name must not continue elsewhere: unregister it and register another one.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `description`, `labels` or `limits`.
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_LABEL, BAD_TEXT, BAD_NUMBER): as for RegisterDatabase.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public dev.leman.v1.UpdateDatabaseResponse updateDatabase(dev.leman.v1.UpdateDatabaseRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getUpdateDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Removes the name of a database. Its tables, functions and jobs stay; they can be reached by path or uri, if the
     * services allow that, or under another name. A service may accept the name for some more seconds.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `name` or `request_id` is empty; fill it.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it.
     * * `FAILED_PRECONDITION` (DATABASE_IN_USE): jobs of the database have not ended; wait for them or cancel them, or set
     *   `force`.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public dev.leman.v1.UnregisterDatabaseResponse unregisterDatabase(dev.leman.v1.UnregisterDatabaseRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getUnregisterDatabaseMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service DatabaseService.
   * <pre>
   * Registered databases. In every request, the field `database` may have the name of a registered database instead of
   * its root; responses always have the root. Served by the planner; every service reads the registrations.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
   *   LEMAN_SERVER__REGISTRY for all services.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class DatabaseServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<DatabaseServiceBlockingStub> {
    private DatabaseServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DatabaseServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DatabaseServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Gives a database a name. Nothing is written to the database itself, and it need not exist yet: its first table
     * creates it.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_DATABASE_NAME, BAD_DATABASE, RESERVED_DATABASE, BAD_LABEL, BAD_TEXT,
     *   BAD_NUMBER): an invalid name, root, label, description or limit; correct the field that BadRequest names.
     * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): the root is outside of the locations that the services may use; name
     *   another one.
     * * `ALREADY_EXISTS` (DATABASE_EXISTS): the name belongs to another database, or the root has another name; use
     *   another name, or the one in the message.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_DATABASES): no more can be registered; unregister one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public dev.leman.v1.RegisterDatabaseResponse registerDatabase(dev.leman.v1.RegisterDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getRegisterDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One database.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.GetDatabaseResponse getDatabase(dev.leman.v1.GetDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * All registered databases, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListDatabasesResponse listDatabases(dev.leman.v1.ListDatabasesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListDatabasesMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Changes the description, labels or limits of a database. Its name and its root cannot be changed, because work that
     * began under a name must not continue elsewhere: unregister it and register another one.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `description`, `labels` or `limits`.
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_LABEL, BAD_TEXT, BAD_NUMBER): as for RegisterDatabase.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public dev.leman.v1.UpdateDatabaseResponse updateDatabase(dev.leman.v1.UpdateDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getUpdateDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Removes the name of a database. Its tables, functions and jobs stay; they can be reached by path or uri, if the
     * services allow that, or under another name. A service may accept the name for some more seconds.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `name` or `request_id` is empty; fill it.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it.
     * * `FAILED_PRECONDITION` (DATABASE_IN_USE): jobs of the database have not ended; wait for them or cancel them, or set
     *   `force`.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public dev.leman.v1.UnregisterDatabaseResponse unregisterDatabase(dev.leman.v1.UnregisterDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getUnregisterDatabaseMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service DatabaseService.
   * <pre>
   * Registered databases. In every request, the field `database` may have the name of a registered database instead of
   * its root; responses always have the root. Served by the planner; every service reads the registrations.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `FAILED_PRECONDITION` (REGISTRY_NOT_SET): the services have no registry; name databases by path or uri, or set
   *   LEMAN_SERVER__REGISTRY for all services.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `DATA_LOSS` (TABLE_DAMAGED): a file of the registry is damaged or missing; restore the file that the message names.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class DatabaseServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<DatabaseServiceFutureStub> {
    private DatabaseServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected DatabaseServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new DatabaseServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Gives a database a name. Nothing is written to the database itself, and it need not exist yet: its first table
     * creates it.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_DATABASE_NAME, BAD_DATABASE, RESERVED_DATABASE, BAD_LABEL, BAD_TEXT,
     *   BAD_NUMBER): an invalid name, root, label, description or limit; correct the field that BadRequest names.
     * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): the root is outside of the locations that the services may use; name
     *   another one.
     * * `ALREADY_EXISTS` (DATABASE_EXISTS): the name belongs to another database, or the root has another name; use
     *   another name, or the one in the message.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_DATABASES): no more can be registered; unregister one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.RegisterDatabaseResponse> registerDatabase(
        dev.leman.v1.RegisterDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getRegisterDatabaseMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * One database.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetDatabaseResponse> getDatabase(
        dev.leman.v1.GetDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetDatabaseMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * All registered databases, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListDatabasesResponse> listDatabases(
        dev.leman.v1.ListDatabasesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListDatabasesMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Changes the description, labels or limits of a database. Its name and its root cannot be changed, because work that
     * began under a name must not continue elsewhere: unregister it and register another one.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `description`, `labels` or `limits`.
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_LABEL, BAD_TEXT, BAD_NUMBER): as for RegisterDatabase.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it, or register one.
     * * `DATA_LOSS` (REGISTRATION_DAMAGED): its registration is damaged; register it again to repair it.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.UpdateDatabaseResponse> updateDatabase(
        dev.leman.v1.UpdateDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getUpdateDatabaseMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Removes the name of a database. Its tables, functions and jobs stay; they can be reached by path or uri, if the
     * services allow that, or under another name. A service may accept the name for some more seconds.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `name` or `request_id` is empty; fill it.
     * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database has this name; check it.
     * * `FAILED_PRECONDITION` (DATABASE_IN_USE): jobs of the database have not ended; wait for them or cancel them, or set
     *   `force`.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): others wrote to the registry at the same time at every try; retry the call.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.UnregisterDatabaseResponse> unregisterDatabase(
        dev.leman.v1.UnregisterDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getUnregisterDatabaseMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_REGISTER_DATABASE = 0;
  private static final int METHODID_GET_DATABASE = 1;
  private static final int METHODID_LIST_DATABASES = 2;
  private static final int METHODID_UPDATE_DATABASE = 3;
  private static final int METHODID_UNREGISTER_DATABASE = 4;

  private static final class MethodHandlers<Req, Resp> implements
      io.grpc.stub.ServerCalls.UnaryMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ServerStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ClientStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.BidiStreamingMethod<Req, Resp> {
    private final AsyncService serviceImpl;
    private final int methodId;

    MethodHandlers(AsyncService serviceImpl, int methodId) {
      this.serviceImpl = serviceImpl;
      this.methodId = methodId;
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public void invoke(Req request, io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_REGISTER_DATABASE:
          serviceImpl.registerDatabase((dev.leman.v1.RegisterDatabaseRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.RegisterDatabaseResponse>) responseObserver);
          break;
        case METHODID_GET_DATABASE:
          serviceImpl.getDatabase((dev.leman.v1.GetDatabaseRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetDatabaseResponse>) responseObserver);
          break;
        case METHODID_LIST_DATABASES:
          serviceImpl.listDatabases((dev.leman.v1.ListDatabasesRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListDatabasesResponse>) responseObserver);
          break;
        case METHODID_UPDATE_DATABASE:
          serviceImpl.updateDatabase((dev.leman.v1.UpdateDatabaseRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.UpdateDatabaseResponse>) responseObserver);
          break;
        case METHODID_UNREGISTER_DATABASE:
          serviceImpl.unregisterDatabase((dev.leman.v1.UnregisterDatabaseRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.UnregisterDatabaseResponse>) responseObserver);
          break;
        default:
          throw new AssertionError();
      }
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public io.grpc.stub.StreamObserver<Req> invoke(
        io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getRegisterDatabaseMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.RegisterDatabaseRequest,
              dev.leman.v1.RegisterDatabaseResponse>(
                service, METHODID_REGISTER_DATABASE)))
        .addMethod(
          getGetDatabaseMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetDatabaseRequest,
              dev.leman.v1.GetDatabaseResponse>(
                service, METHODID_GET_DATABASE)))
        .addMethod(
          getListDatabasesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListDatabasesRequest,
              dev.leman.v1.ListDatabasesResponse>(
                service, METHODID_LIST_DATABASES)))
        .addMethod(
          getUpdateDatabaseMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.UpdateDatabaseRequest,
              dev.leman.v1.UpdateDatabaseResponse>(
                service, METHODID_UPDATE_DATABASE)))
        .addMethod(
          getUnregisterDatabaseMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.UnregisterDatabaseRequest,
              dev.leman.v1.UnregisterDatabaseResponse>(
                service, METHODID_UNREGISTER_DATABASE)))
        .build();
  }

  private static abstract class DatabaseServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    DatabaseServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.DatabasesProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("DatabaseService");
    }
  }

  private static final class DatabaseServiceFileDescriptorSupplier
      extends DatabaseServiceBaseDescriptorSupplier {
    DatabaseServiceFileDescriptorSupplier() {}
  }

  private static final class DatabaseServiceMethodDescriptorSupplier
      extends DatabaseServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    DatabaseServiceMethodDescriptorSupplier(java.lang.String methodName) {
      this.methodName = methodName;
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.MethodDescriptor getMethodDescriptor() {
      return getServiceDescriptor().findMethodByName(methodName);
    }
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (DatabaseServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new DatabaseServiceFileDescriptorSupplier())
              .addMethod(getRegisterDatabaseMethod())
              .addMethod(getGetDatabaseMethod())
              .addMethod(getListDatabasesMethod())
              .addMethod(getUpdateDatabaseMethod())
              .addMethod(getUnregisterDatabaseMethod())
              .build();
        }
      }
    }
    return result;
  }
}
