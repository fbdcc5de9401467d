package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
 * request: the same three give the same plan, and planning changes nothing.
 * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
 * Errors of every call:
 * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
 *   `authorization: Bearer &lt;token&gt;` with one.
 * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
 * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
 *   one.
 * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
 * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
 *   it is invalid or too long; correct the field that BadRequest names.
 * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
 *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
 * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
 * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
 * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
 *   access until an operator acts; do what the message says, then retry the call.
 * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
 * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
 *   delay.
 * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
 *   the call after RetryInfo's delay, or end a stream.
 * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
 *   request less in one call. There is no RetryInfo.
 * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
 * </pre>
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class PlannerServiceGrpc {

  private PlannerServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.PlannerService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ExplainPlanRequest,
      dev.leman.v1.ExplainPlanResponse> getExplainPlanMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ExplainPlan",
      requestType = dev.leman.v1.ExplainPlanRequest.class,
      responseType = dev.leman.v1.ExplainPlanResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ExplainPlanRequest,
      dev.leman.v1.ExplainPlanResponse> getExplainPlanMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ExplainPlanRequest, dev.leman.v1.ExplainPlanResponse> getExplainPlanMethod;
    if ((getExplainPlanMethod = PlannerServiceGrpc.getExplainPlanMethod) == null) {
      synchronized (PlannerServiceGrpc.class) {
        if ((getExplainPlanMethod = PlannerServiceGrpc.getExplainPlanMethod) == null) {
          PlannerServiceGrpc.getExplainPlanMethod = getExplainPlanMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ExplainPlanRequest, dev.leman.v1.ExplainPlanResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ExplainPlan"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ExplainPlanRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ExplainPlanResponse.getDefaultInstance()))
              .setSchemaDescriptor(new PlannerServiceMethodDescriptorSupplier("ExplainPlan"))
              .build();
        }
      }
    }
    return getExplainPlanMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ExplainRefreshRequest,
      dev.leman.v1.ExplainRefreshResponse> getExplainRefreshMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ExplainRefresh",
      requestType = dev.leman.v1.ExplainRefreshRequest.class,
      responseType = dev.leman.v1.ExplainRefreshResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ExplainRefreshRequest,
      dev.leman.v1.ExplainRefreshResponse> getExplainRefreshMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ExplainRefreshRequest, dev.leman.v1.ExplainRefreshResponse> getExplainRefreshMethod;
    if ((getExplainRefreshMethod = PlannerServiceGrpc.getExplainRefreshMethod) == null) {
      synchronized (PlannerServiceGrpc.class) {
        if ((getExplainRefreshMethod = PlannerServiceGrpc.getExplainRefreshMethod) == null) {
          PlannerServiceGrpc.getExplainRefreshMethod = getExplainRefreshMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ExplainRefreshRequest, dev.leman.v1.ExplainRefreshResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ExplainRefresh"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ExplainRefreshRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ExplainRefreshResponse.getDefaultInstance()))
              .setSchemaDescriptor(new PlannerServiceMethodDescriptorSupplier("ExplainRefresh"))
              .build();
        }
      }
    }
    return getExplainRefreshMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetRowStatesRequest,
      dev.leman.v1.GetRowStatesResponse> getGetRowStatesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetRowStates",
      requestType = dev.leman.v1.GetRowStatesRequest.class,
      responseType = dev.leman.v1.GetRowStatesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetRowStatesRequest,
      dev.leman.v1.GetRowStatesResponse> getGetRowStatesMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetRowStatesRequest, dev.leman.v1.GetRowStatesResponse> getGetRowStatesMethod;
    if ((getGetRowStatesMethod = PlannerServiceGrpc.getGetRowStatesMethod) == null) {
      synchronized (PlannerServiceGrpc.class) {
        if ((getGetRowStatesMethod = PlannerServiceGrpc.getGetRowStatesMethod) == null) {
          PlannerServiceGrpc.getGetRowStatesMethod = getGetRowStatesMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetRowStatesRequest, dev.leman.v1.GetRowStatesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetRowStates"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetRowStatesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetRowStatesResponse.getDefaultInstance()))
              .setSchemaDescriptor(new PlannerServiceMethodDescriptorSupplier("GetRowStates"))
              .build();
        }
      }
    }
    return getGetRowStatesMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static PlannerServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<PlannerServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<PlannerServiceStub>() {
        @java.lang.Override
        public PlannerServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new PlannerServiceStub(channel, callOptions);
        }
      };
    return PlannerServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static PlannerServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<PlannerServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<PlannerServiceBlockingV2Stub>() {
        @java.lang.Override
        public PlannerServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new PlannerServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return PlannerServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static PlannerServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<PlannerServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<PlannerServiceBlockingStub>() {
        @java.lang.Override
        public PlannerServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new PlannerServiceBlockingStub(channel, callOptions);
        }
      };
    return PlannerServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static PlannerServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<PlannerServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<PlannerServiceFutureStub>() {
        @java.lang.Override
        public PlannerServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new PlannerServiceFutureStub(channel, callOptions);
        }
      };
    return PlannerServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
   * request: the same three give the same plan, and planning changes nothing.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
   *   one.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
   *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
   * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
   * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
   *   the call after RetryInfo's delay, or end a stream.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public interface AsyncService {

    /**
     * <pre>
     * A dry run of a backfill: what it would do, and why.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a number out of its range;
     *   correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_FILTER): the filter is not valid SQL over the table's columns; correct it.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version or tag, or it was cleaned away;
     *   name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns form a cycle; alter one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; add it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view is refreshed, not backfilled; ask for a refresh.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT, TYPE_MISMATCH): the function
     *   does not fit the table as it is now; alter the column.
     * * `FAILED_PRECONDITION` (READ_VERSION_ROWS_MOVED): rows of the version to be read cannot be matched with current
     *   ones; read the latest.
     * * `FAILED_PRECONDITION` (READ_VERSION_INPUT_MISSING): the version to be read does not have an input column; read a
     *   later one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter fails on a value; fix it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    default void explainPlan(dev.leman.v1.ExplainPlanRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ExplainPlanResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getExplainPlanMethod(), responseObserver);
    }

    /**
     * <pre>
     * A dry run of a refresh of a view: what it would do, and why, from manifests alone.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_NUMBER, UNKNOWN_VALUE): a negative number, or a policy that this release does not know;
     *   correct the field that BadRequest names.
     * * `NOT_FOUND` (VERSION_NOT_FOUND): the source has no such version, or it was cleaned away; name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; ask for a backfill.
     * * `FAILED_PRECONDITION` (STABLE_ROW_IDS_REQUIRED): rows of the source have no stable ids, so the view can only be
     *   filled from the version that it was made from; create it again for another one.
     * * `FAILED_PRECONDITION` (FULL_REFRESH_NEEDED): the changes cannot be determined and the policy forbids a full
     *   refresh; ask for policy AUTO or FULL.
     * * `FAILED_PRECONDITION` (SOURCE_COLUMN_MISSING, TYPE_MISMATCH): the source does not have a column that the view
     *   reads, or has it with another type; put it back, or create another view.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED): SQL of the view fails on a value; fix the source's rows.
     * * `FAILED_PRECONDITION` (EXTERNAL_WRITES): another writer wrote to the view; restore the previous version, or ask
     *   for policy FULL.
     * * `DATA_LOSS` (UDF_DAMAGED, VIEW_DAMAGED): a function or the view is damaged; register the function again; restore
     *   the view's previous version; without one, drop the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    default void explainRefresh(dev.leman.v1.ExplainRefreshRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ExplainRefreshResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getExplainRefreshMethod(), responseObserver);
    }

    /**
     * <pre>
     * Returns which rows are computed, failed or were never computed, in the latest version.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; name one that is.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): views have no states of rows; ListJobErrors lists the failed rows.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the column's function is not registered; register it.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): the table lost a column that the function reads; put it back, or
     *   alter the column.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * </pre>
     */
    default void getRowStates(dev.leman.v1.GetRowStatesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetRowStatesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetRowStatesMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service PlannerService.
   * <pre>
   * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
   * request: the same three give the same plan, and planning changes nothing.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
   *   one.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
   *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
   * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
   * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
   *   the call after RetryInfo's delay, or end a stream.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static abstract class PlannerServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return PlannerServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service PlannerService.
   * <pre>
   * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
   * request: the same three give the same plan, and planning changes nothing.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
   *   one.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
   *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
   * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
   * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
   *   the call after RetryInfo's delay, or end a stream.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class PlannerServiceStub
      extends io.grpc.stub.AbstractAsyncStub<PlannerServiceStub> {
    private PlannerServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected PlannerServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new PlannerServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * A dry run of a backfill: what it would do, and why.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a number out of its range;
     *   correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_FILTER): the filter is not valid SQL over the table's columns; correct it.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version or tag, or it was cleaned away;
     *   name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns form a cycle; alter one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; add it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view is refreshed, not backfilled; ask for a refresh.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT, TYPE_MISMATCH): the function
     *   does not fit the table as it is now; alter the column.
     * * `FAILED_PRECONDITION` (READ_VERSION_ROWS_MOVED): rows of the version to be read cannot be matched with current
     *   ones; read the latest.
     * * `FAILED_PRECONDITION` (READ_VERSION_INPUT_MISSING): the version to be read does not have an input column; read a
     *   later one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter fails on a value; fix it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public void explainPlan(dev.leman.v1.ExplainPlanRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ExplainPlanResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getExplainPlanMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * A dry run of a refresh of a view: what it would do, and why, from manifests alone.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_NUMBER, UNKNOWN_VALUE): a negative number, or a policy that this release does not know;
     *   correct the field that BadRequest names.
     * * `NOT_FOUND` (VERSION_NOT_FOUND): the source has no such version, or it was cleaned away; name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; ask for a backfill.
     * * `FAILED_PRECONDITION` (STABLE_ROW_IDS_REQUIRED): rows of the source have no stable ids, so the view can only be
     *   filled from the version that it was made from; create it again for another one.
     * * `FAILED_PRECONDITION` (FULL_REFRESH_NEEDED): the changes cannot be determined and the policy forbids a full
     *   refresh; ask for policy AUTO or FULL.
     * * `FAILED_PRECONDITION` (SOURCE_COLUMN_MISSING, TYPE_MISMATCH): the source does not have a column that the view
     *   reads, or has it with another type; put it back, or create another view.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED): SQL of the view fails on a value; fix the source's rows.
     * * `FAILED_PRECONDITION` (EXTERNAL_WRITES): another writer wrote to the view; restore the previous version, or ask
     *   for policy FULL.
     * * `DATA_LOSS` (UDF_DAMAGED, VIEW_DAMAGED): a function or the view is damaged; register the function again; restore
     *   the view's previous version; without one, drop the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public void explainRefresh(dev.leman.v1.ExplainRefreshRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ExplainRefreshResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getExplainRefreshMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Returns which rows are computed, failed or were never computed, in the latest version.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; name one that is.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): views have no states of rows; ListJobErrors lists the failed rows.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the column's function is not registered; register it.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): the table lost a column that the function reads; put it back, or
     *   alter the column.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * </pre>
     */
    public void getRowStates(dev.leman.v1.GetRowStatesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetRowStatesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetRowStatesMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service PlannerService.
   * <pre>
   * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
   * request: the same three give the same plan, and planning changes nothing.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
   *   one.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
   *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
   * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
   * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
   *   the call after RetryInfo's delay, or end a stream.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class PlannerServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<PlannerServiceBlockingV2Stub> {
    private PlannerServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected PlannerServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new PlannerServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * A dry run of a backfill: what it would do, and why.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a number out of its range;
     *   correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_FILTER): the filter is not valid SQL over the table's columns; correct it.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version or tag, or it was cleaned away;
     *   name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns form a cycle; alter one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; add it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view is refreshed, not backfilled; ask for a refresh.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT, TYPE_MISMATCH): the function
     *   does not fit the table as it is now; alter the column.
     * * `FAILED_PRECONDITION` (READ_VERSION_ROWS_MOVED): rows of the version to be read cannot be matched with current
     *   ones; read the latest.
     * * `FAILED_PRECONDITION` (READ_VERSION_INPUT_MISSING): the version to be read does not have an input column; read a
     *   later one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter fails on a value; fix it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.ExplainPlanResponse explainPlan(dev.leman.v1.ExplainPlanRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getExplainPlanMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * A dry run of a refresh of a view: what it would do, and why, from manifests alone.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_NUMBER, UNKNOWN_VALUE): a negative number, or a policy that this release does not know;
     *   correct the field that BadRequest names.
     * * `NOT_FOUND` (VERSION_NOT_FOUND): the source has no such version, or it was cleaned away; name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; ask for a backfill.
     * * `FAILED_PRECONDITION` (STABLE_ROW_IDS_REQUIRED): rows of the source have no stable ids, so the view can only be
     *   filled from the version that it was made from; create it again for another one.
     * * `FAILED_PRECONDITION` (FULL_REFRESH_NEEDED): the changes cannot be determined and the policy forbids a full
     *   refresh; ask for policy AUTO or FULL.
     * * `FAILED_PRECONDITION` (SOURCE_COLUMN_MISSING, TYPE_MISMATCH): the source does not have a column that the view
     *   reads, or has it with another type; put it back, or create another view.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED): SQL of the view fails on a value; fix the source's rows.
     * * `FAILED_PRECONDITION` (EXTERNAL_WRITES): another writer wrote to the view; restore the previous version, or ask
     *   for policy FULL.
     * * `DATA_LOSS` (UDF_DAMAGED, VIEW_DAMAGED): a function or the view is damaged; register the function again; restore
     *   the view's previous version; without one, drop the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.ExplainRefreshResponse explainRefresh(dev.leman.v1.ExplainRefreshRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getExplainRefreshMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Returns which rows are computed, failed or were never computed, in the latest version.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; name one that is.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): views have no states of rows; ListJobErrors lists the failed rows.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the column's function is not registered; register it.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): the table lost a column that the function reads; put it back, or
     *   alter the column.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * </pre>
     */
    public dev.leman.v1.GetRowStatesResponse getRowStates(dev.leman.v1.GetRowStatesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetRowStatesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service PlannerService.
   * <pre>
   * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
   * request: the same three give the same plan, and planning changes nothing.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
   *   one.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
   *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
   * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
   * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
   *   the call after RetryInfo's delay, or end a stream.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class PlannerServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<PlannerServiceBlockingStub> {
    private PlannerServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected PlannerServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new PlannerServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * A dry run of a backfill: what it would do, and why.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a number out of its range;
     *   correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_FILTER): the filter is not valid SQL over the table's columns; correct it.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version or tag, or it was cleaned away;
     *   name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns form a cycle; alter one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; add it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view is refreshed, not backfilled; ask for a refresh.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT, TYPE_MISMATCH): the function
     *   does not fit the table as it is now; alter the column.
     * * `FAILED_PRECONDITION` (READ_VERSION_ROWS_MOVED): rows of the version to be read cannot be matched with current
     *   ones; read the latest.
     * * `FAILED_PRECONDITION` (READ_VERSION_INPUT_MISSING): the version to be read does not have an input column; read a
     *   later one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter fails on a value; fix it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.ExplainPlanResponse explainPlan(dev.leman.v1.ExplainPlanRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getExplainPlanMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * A dry run of a refresh of a view: what it would do, and why, from manifests alone.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_NUMBER, UNKNOWN_VALUE): a negative number, or a policy that this release does not know;
     *   correct the field that BadRequest names.
     * * `NOT_FOUND` (VERSION_NOT_FOUND): the source has no such version, or it was cleaned away; name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; ask for a backfill.
     * * `FAILED_PRECONDITION` (STABLE_ROW_IDS_REQUIRED): rows of the source have no stable ids, so the view can only be
     *   filled from the version that it was made from; create it again for another one.
     * * `FAILED_PRECONDITION` (FULL_REFRESH_NEEDED): the changes cannot be determined and the policy forbids a full
     *   refresh; ask for policy AUTO or FULL.
     * * `FAILED_PRECONDITION` (SOURCE_COLUMN_MISSING, TYPE_MISMATCH): the source does not have a column that the view
     *   reads, or has it with another type; put it back, or create another view.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED): SQL of the view fails on a value; fix the source's rows.
     * * `FAILED_PRECONDITION` (EXTERNAL_WRITES): another writer wrote to the view; restore the previous version, or ask
     *   for policy FULL.
     * * `DATA_LOSS` (UDF_DAMAGED, VIEW_DAMAGED): a function or the view is damaged; register the function again; restore
     *   the view's previous version; without one, drop the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.ExplainRefreshResponse explainRefresh(dev.leman.v1.ExplainRefreshRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getExplainRefreshMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Returns which rows are computed, failed or were never computed, in the latest version.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; name one that is.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): views have no states of rows; ListJobErrors lists the failed rows.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the column's function is not registered; register it.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): the table lost a column that the function reads; put it back, or
     *   alter the column.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * </pre>
     */
    public dev.leman.v1.GetRowStatesResponse getRowStates(dev.leman.v1.GetRowStatesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetRowStatesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service PlannerService.
   * <pre>
   * Plans: the remaining work and its reasons. A plan is a pure function of the table's snapshot, the checkpoints and the
   * request: the same three give the same plan, and planning changes nothing.
   * Every error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
   * Errors of every call:
   * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
   *   `authorization: Bearer &lt;token&gt;` with one.
   * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
   * * `PERMISSION_DENIED` (DATABASE_NOT_ALLOWED): a location is outside of those that the service may use; name another
   *   one.
   * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
   * * `INVALID_ARGUMENT` (BAD_MESSAGE, BAD_REQUEST): the request is not the call's message, or an id, a text or a list in
   *   it is invalid or too long; correct the field that BadRequest names.
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_URI, BAD_TABLE_NAME, RESERVED_NAME): the database
   *   path or the table name is not valid, or Leman's own; correct the field that BadRequest names.
   * * `NOT_FOUND` (DATABASE_NOT_REGISTERED): no database is registered under the name; check it, or give a path or uri.
   * * `DATA_LOSS` (REGISTRATION_DAMAGED): the stored registration is damaged; register it again.
   * * `FAILED_PRECONDITION` (STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING): the storage refuses
   *   access until an operator acts; do what the message says, then retry the call.
   * * `UNAVAILABLE` (STORE_UNAVAILABLE): the storage cannot be reached now; retry the call after RetryInfo's delay.
   * * `RESOURCE_EXHAUSTED` (QUEUE_FULL, TOO_MANY_CALLS): the service is overloaded; retry the call after RetryInfo's
   *   delay.
   * * `RESOURCE_EXHAUSTED` (CALLER_RATE, CALLER_STREAMS): the caller calls too often, or has too many streams open; retry
   *   the call after RetryInfo's delay, or end a stream.
   * * `RESOURCE_EXHAUSTED` (MESSAGE_TOO_LARGE): the message, or its answer, is larger than the service allows; send or
   *   request less in one call. There is no RetryInfo.
   * * `INTERNAL` (INTERNAL_BUG): a bug; report it with the request id that the message names.
   * </pre>
   */
  public static final class PlannerServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<PlannerServiceFutureStub> {
    private PlannerServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected PlannerServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new PlannerServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * A dry run of a backfill: what it would do, and why.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a number out of its range;
     *   correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_FILTER): the filter is not valid SQL over the table's columns; correct it.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version or tag, or it was cleaned away;
     *   name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns form a cycle; alter one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; add it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view is refreshed, not backfilled; ask for a refresh.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT, TYPE_MISMATCH): the function
     *   does not fit the table as it is now; alter the column.
     * * `FAILED_PRECONDITION` (READ_VERSION_ROWS_MOVED): rows of the version to be read cannot be matched with current
     *   ones; read the latest.
     * * `FAILED_PRECONDITION` (READ_VERSION_INPUT_MISSING): the version to be read does not have an input column; read a
     *   later one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter fails on a value; fix it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ExplainPlanResponse> explainPlan(
        dev.leman.v1.ExplainPlanRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getExplainPlanMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * A dry run of a refresh of a view: what it would do, and why, from manifests alone.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_NUMBER, UNKNOWN_VALUE): a negative number, or a policy that this release does not know;
     *   correct the field that BadRequest names.
     * * `NOT_FOUND` (VERSION_NOT_FOUND): the source has no such version, or it was cleaned away; name another one.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; ask for a backfill.
     * * `FAILED_PRECONDITION` (STABLE_ROW_IDS_REQUIRED): rows of the source have no stable ids, so the view can only be
     *   filled from the version that it was made from; create it again for another one.
     * * `FAILED_PRECONDITION` (FULL_REFRESH_NEEDED): the changes cannot be determined and the policy forbids a full
     *   refresh; ask for policy AUTO or FULL.
     * * `FAILED_PRECONDITION` (SOURCE_COLUMN_MISSING, TYPE_MISMATCH): the source does not have a column that the view
     *   reads, or has it with another type; put it back, or create another view.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED): SQL of the view fails on a value; fix the source's rows.
     * * `FAILED_PRECONDITION` (EXTERNAL_WRITES): another writer wrote to the view; restore the previous version, or ask
     *   for policy FULL.
     * * `DATA_LOSS` (UDF_DAMAGED, VIEW_DAMAGED): a function or the view is damaged; register the function again; restore
     *   the view's previous version; without one, drop the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ExplainRefreshResponse> explainRefresh(
        dev.leman.v1.ExplainRefreshRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getExplainRefreshMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Returns which rows are computed, failed or were never computed, in the latest version.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; name one that is.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): views have no states of rows; ListJobErrors lists the failed rows.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the column's function is not registered; register it.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): the table lost a column that the function reads; put it back, or
     *   alter the column.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (BINDING_DAMAGED): the column's metadata is damaged; restore the previous version of the table;
     *   without one, drop the column and add it again.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetRowStatesResponse> getRowStates(
        dev.leman.v1.GetRowStatesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetRowStatesMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_EXPLAIN_PLAN = 0;
  private static final int METHODID_EXPLAIN_REFRESH = 1;
  private static final int METHODID_GET_ROW_STATES = 2;

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
        case METHODID_EXPLAIN_PLAN:
          serviceImpl.explainPlan((dev.leman.v1.ExplainPlanRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ExplainPlanResponse>) responseObserver);
          break;
        case METHODID_EXPLAIN_REFRESH:
          serviceImpl.explainRefresh((dev.leman.v1.ExplainRefreshRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ExplainRefreshResponse>) responseObserver);
          break;
        case METHODID_GET_ROW_STATES:
          serviceImpl.getRowStates((dev.leman.v1.GetRowStatesRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetRowStatesResponse>) responseObserver);
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
          getExplainPlanMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ExplainPlanRequest,
              dev.leman.v1.ExplainPlanResponse>(
                service, METHODID_EXPLAIN_PLAN)))
        .addMethod(
          getExplainRefreshMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ExplainRefreshRequest,
              dev.leman.v1.ExplainRefreshResponse>(
                service, METHODID_EXPLAIN_REFRESH)))
        .addMethod(
          getGetRowStatesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetRowStatesRequest,
              dev.leman.v1.GetRowStatesResponse>(
                service, METHODID_GET_ROW_STATES)))
        .build();
  }

  private static abstract class PlannerServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    PlannerServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.PlannerProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("PlannerService");
    }
  }

  private static final class PlannerServiceFileDescriptorSupplier
      extends PlannerServiceBaseDescriptorSupplier {
    PlannerServiceFileDescriptorSupplier() {}
  }

  private static final class PlannerServiceMethodDescriptorSupplier
      extends PlannerServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    PlannerServiceMethodDescriptorSupplier(java.lang.String methodName) {
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
      synchronized (PlannerServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new PlannerServiceFileDescriptorSupplier())
              .addMethod(getExplainPlanMethod())
              .addMethod(getExplainRefreshMethod())
              .addMethod(getGetRowStatesMethod())
              .build();
        }
      }
    }
    return result;
  }
}
