package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
 * tables on Leman's behalf.
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
public final class CommitServiceGrpc {

  private CommitServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.CommitService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetCommitRequest,
      dev.leman.v1.GetCommitResponse> getGetCommitMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetCommit",
      requestType = dev.leman.v1.GetCommitRequest.class,
      responseType = dev.leman.v1.GetCommitResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetCommitRequest,
      dev.leman.v1.GetCommitResponse> getGetCommitMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetCommitRequest, dev.leman.v1.GetCommitResponse> getGetCommitMethod;
    if ((getGetCommitMethod = CommitServiceGrpc.getGetCommitMethod) == null) {
      synchronized (CommitServiceGrpc.class) {
        if ((getGetCommitMethod = CommitServiceGrpc.getGetCommitMethod) == null) {
          CommitServiceGrpc.getGetCommitMethod = getGetCommitMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetCommitRequest, dev.leman.v1.GetCommitResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetCommit"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetCommitRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetCommitResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CommitServiceMethodDescriptorSupplier("GetCommit"))
              .build();
        }
      }
    }
    return getGetCommitMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListCommitsRequest,
      dev.leman.v1.ListCommitsResponse> getListCommitsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListCommits",
      requestType = dev.leman.v1.ListCommitsRequest.class,
      responseType = dev.leman.v1.ListCommitsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListCommitsRequest,
      dev.leman.v1.ListCommitsResponse> getListCommitsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListCommitsRequest, dev.leman.v1.ListCommitsResponse> getListCommitsMethod;
    if ((getListCommitsMethod = CommitServiceGrpc.getListCommitsMethod) == null) {
      synchronized (CommitServiceGrpc.class) {
        if ((getListCommitsMethod = CommitServiceGrpc.getListCommitsMethod) == null) {
          CommitServiceGrpc.getListCommitsMethod = getListCommitsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListCommitsRequest, dev.leman.v1.ListCommitsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListCommits"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListCommitsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListCommitsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CommitServiceMethodDescriptorSupplier("ListCommits"))
              .build();
        }
      }
    }
    return getListCommitsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.CollectGarbageRequest,
      dev.leman.v1.CollectGarbageResponse> getCollectGarbageMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CollectGarbage",
      requestType = dev.leman.v1.CollectGarbageRequest.class,
      responseType = dev.leman.v1.CollectGarbageResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.CollectGarbageRequest,
      dev.leman.v1.CollectGarbageResponse> getCollectGarbageMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.CollectGarbageRequest, dev.leman.v1.CollectGarbageResponse> getCollectGarbageMethod;
    if ((getCollectGarbageMethod = CommitServiceGrpc.getCollectGarbageMethod) == null) {
      synchronized (CommitServiceGrpc.class) {
        if ((getCollectGarbageMethod = CommitServiceGrpc.getCollectGarbageMethod) == null) {
          CommitServiceGrpc.getCollectGarbageMethod = getCollectGarbageMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.CollectGarbageRequest, dev.leman.v1.CollectGarbageResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CollectGarbage"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CollectGarbageRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CollectGarbageResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CommitServiceMethodDescriptorSupplier("CollectGarbage"))
              .build();
        }
      }
    }
    return getCollectGarbageMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.DropViewRequest,
      dev.leman.v1.DropViewResponse> getDropViewMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DropView",
      requestType = dev.leman.v1.DropViewRequest.class,
      responseType = dev.leman.v1.DropViewResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.DropViewRequest,
      dev.leman.v1.DropViewResponse> getDropViewMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.DropViewRequest, dev.leman.v1.DropViewResponse> getDropViewMethod;
    if ((getDropViewMethod = CommitServiceGrpc.getDropViewMethod) == null) {
      synchronized (CommitServiceGrpc.class) {
        if ((getDropViewMethod = CommitServiceGrpc.getDropViewMethod) == null) {
          CommitServiceGrpc.getDropViewMethod = getDropViewMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.DropViewRequest, dev.leman.v1.DropViewResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DropView"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DropViewRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DropViewResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CommitServiceMethodDescriptorSupplier("DropView"))
              .build();
        }
      }
    }
    return getDropViewMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.VerifyDatabaseRequest,
      dev.leman.v1.VerifyDatabaseResponse> getVerifyDatabaseMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "VerifyDatabase",
      requestType = dev.leman.v1.VerifyDatabaseRequest.class,
      responseType = dev.leman.v1.VerifyDatabaseResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<dev.leman.v1.VerifyDatabaseRequest,
      dev.leman.v1.VerifyDatabaseResponse> getVerifyDatabaseMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.VerifyDatabaseRequest, dev.leman.v1.VerifyDatabaseResponse> getVerifyDatabaseMethod;
    if ((getVerifyDatabaseMethod = CommitServiceGrpc.getVerifyDatabaseMethod) == null) {
      synchronized (CommitServiceGrpc.class) {
        if ((getVerifyDatabaseMethod = CommitServiceGrpc.getVerifyDatabaseMethod) == null) {
          CommitServiceGrpc.getVerifyDatabaseMethod = getVerifyDatabaseMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.VerifyDatabaseRequest, dev.leman.v1.VerifyDatabaseResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "VerifyDatabase"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.VerifyDatabaseRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.VerifyDatabaseResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CommitServiceMethodDescriptorSupplier("VerifyDatabase"))
              .build();
        }
      }
    }
    return getVerifyDatabaseMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.OptimizeIndicesRequest,
      dev.leman.v1.OptimizeIndicesResponse> getOptimizeIndicesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "OptimizeIndices",
      requestType = dev.leman.v1.OptimizeIndicesRequest.class,
      responseType = dev.leman.v1.OptimizeIndicesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.OptimizeIndicesRequest,
      dev.leman.v1.OptimizeIndicesResponse> getOptimizeIndicesMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.OptimizeIndicesRequest, dev.leman.v1.OptimizeIndicesResponse> getOptimizeIndicesMethod;
    if ((getOptimizeIndicesMethod = CommitServiceGrpc.getOptimizeIndicesMethod) == null) {
      synchronized (CommitServiceGrpc.class) {
        if ((getOptimizeIndicesMethod = CommitServiceGrpc.getOptimizeIndicesMethod) == null) {
          CommitServiceGrpc.getOptimizeIndicesMethod = getOptimizeIndicesMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.OptimizeIndicesRequest, dev.leman.v1.OptimizeIndicesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "OptimizeIndices"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.OptimizeIndicesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.OptimizeIndicesResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CommitServiceMethodDescriptorSupplier("OptimizeIndices"))
              .build();
        }
      }
    }
    return getOptimizeIndicesMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static CommitServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CommitServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CommitServiceStub>() {
        @java.lang.Override
        public CommitServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CommitServiceStub(channel, callOptions);
        }
      };
    return CommitServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static CommitServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CommitServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CommitServiceBlockingV2Stub>() {
        @java.lang.Override
        public CommitServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CommitServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return CommitServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static CommitServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CommitServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CommitServiceBlockingStub>() {
        @java.lang.Override
        public CommitServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CommitServiceBlockingStub(channel, callOptions);
        }
      };
    return CommitServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static CommitServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CommitServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CommitServiceFutureStub>() {
        @java.lang.Override
        public CommitServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CommitServiceFutureStub(channel, callOptions);
        }
      };
    return CommitServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
   * tables on Leman's behalf.
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
     * Returns the commit of a request. If the request is in progress, the call waits for it. Requests that added columns
     * or changed functions are found only until the coordinator restarts; a retry of such a request gets the first
     * answer.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` or `request_id` is not set; fill it.
     * * `NOT_FOUND` (COMMIT_NOT_FOUND): the existing history of the table has no file installed by the request; retry it.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void getCommit(dev.leman.v1.GetCommitRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetCommitResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetCommitMethod(), responseObserver);
    }

    /**
     * <pre>
     * Leman's commits in a table's history, newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void listCommits(dev.leman.v1.ListCommitsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListCommitsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListCommitsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Lists Leman's files next to a table's data (checkpoints, fragment records, staged column files) with their use, and
     * deletes those that are no longer needed and old enough. It always keeps files that a version, tag or branch of the
     * table refers to, that an unfinished fragment can reuse, or that an open job may need. An interrupted collection can
     * be repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER): `table` is not set, or a number is negative; fix the field that
     *   BadRequest names.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void collectGarbage(dev.leman.v1.CollectGarbageRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CollectGarbageResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCollectGarbageMethod(), responseObserver);
    }

    /**
     * <pre>
     * Removes a view: its rows, its history, the files stored next to them, and the hidden tables of its refreshes. A
     * running refresh fails. Its source and its functions stay.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, RESERVED_NAME): `request_id` is empty, or the name is one of Leman's own; fix
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; TableService.DropTable drops it.
     * * `FAILED_PRECONDITION` (VIEW_IN_USE): views of the database read it; drop these first, or set `force`.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void dropView(dev.leman.v1.DropViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DropViewResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDropViewMethod(), responseObserver);
    }

    /**
     * <pre>
     * Reads everything in a database and compares it with the stored digests: functions and their bundles, metadata of
     * columns and views, job history, checkpoints, fragment records, and every committed file. Writes nothing: the
     * database may be read-only. Each message covers what was verified since the previous one, and has a token from which
     * an interrupted call can continue. Files that change meanwhile may be reported as missing: verify again.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_FOUND): there is no such folder; check the path.
     * * `INVALID_ARGUMENT` (BAD_PAGE_TOKEN): the token is of another database; begin without one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue from the last token.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; continue from the last token.
     * </pre>
     */
    default void verifyDatabase(dev.leman.v1.VerifyDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.VerifyDatabaseResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getVerifyDatabaseMethod(), responseObserver);
    }

    /**
     * <pre>
     * Updates indexes of a table or view, so that each covers all fragments. Commits of others continue meanwhile. The
     * duration depends on the rows that are not covered; if there are none, nothing is done. An interrupted call can be
     * repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `NOT_FOUND` (INDEX_NOT_FOUND): the table has no index of that name; name one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN): the outcome is unknown; retry the same call.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void optimizeIndices(dev.leman.v1.OptimizeIndicesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.OptimizeIndicesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getOptimizeIndicesMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service CommitService.
   * <pre>
   * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
   * tables on Leman's behalf.
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
  public static abstract class CommitServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return CommitServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service CommitService.
   * <pre>
   * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
   * tables on Leman's behalf.
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
  public static final class CommitServiceStub
      extends io.grpc.stub.AbstractAsyncStub<CommitServiceStub> {
    private CommitServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CommitServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CommitServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns the commit of a request. If the request is in progress, the call waits for it. Requests that added columns
     * or changed functions are found only until the coordinator restarts; a retry of such a request gets the first
     * answer.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` or `request_id` is not set; fill it.
     * * `NOT_FOUND` (COMMIT_NOT_FOUND): the existing history of the table has no file installed by the request; retry it.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void getCommit(dev.leman.v1.GetCommitRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetCommitResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetCommitMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Leman's commits in a table's history, newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void listCommits(dev.leman.v1.ListCommitsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListCommitsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListCommitsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Lists Leman's files next to a table's data (checkpoints, fragment records, staged column files) with their use, and
     * deletes those that are no longer needed and old enough. It always keeps files that a version, tag or branch of the
     * table refers to, that an unfinished fragment can reuse, or that an open job may need. An interrupted collection can
     * be repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER): `table` is not set, or a number is negative; fix the field that
     *   BadRequest names.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void collectGarbage(dev.leman.v1.CollectGarbageRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CollectGarbageResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCollectGarbageMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Removes a view: its rows, its history, the files stored next to them, and the hidden tables of its refreshes. A
     * running refresh fails. Its source and its functions stay.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, RESERVED_NAME): `request_id` is empty, or the name is one of Leman's own; fix
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; TableService.DropTable drops it.
     * * `FAILED_PRECONDITION` (VIEW_IN_USE): views of the database read it; drop these first, or set `force`.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void dropView(dev.leman.v1.DropViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DropViewResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDropViewMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Reads everything in a database and compares it with the stored digests: functions and their bundles, metadata of
     * columns and views, job history, checkpoints, fragment records, and every committed file. Writes nothing: the
     * database may be read-only. Each message covers what was verified since the previous one, and has a token from which
     * an interrupted call can continue. Files that change meanwhile may be reported as missing: verify again.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_FOUND): there is no such folder; check the path.
     * * `INVALID_ARGUMENT` (BAD_PAGE_TOKEN): the token is of another database; begin without one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue from the last token.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; continue from the last token.
     * </pre>
     */
    public void verifyDatabase(dev.leman.v1.VerifyDatabaseRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.VerifyDatabaseResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getVerifyDatabaseMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Updates indexes of a table or view, so that each covers all fragments. Commits of others continue meanwhile. The
     * duration depends on the rows that are not covered; if there are none, nothing is done. An interrupted call can be
     * repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `NOT_FOUND` (INDEX_NOT_FOUND): the table has no index of that name; name one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN): the outcome is unknown; retry the same call.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void optimizeIndices(dev.leman.v1.OptimizeIndicesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.OptimizeIndicesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getOptimizeIndicesMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service CommitService.
   * <pre>
   * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
   * tables on Leman's behalf.
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
  public static final class CommitServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<CommitServiceBlockingV2Stub> {
    private CommitServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CommitServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CommitServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns the commit of a request. If the request is in progress, the call waits for it. Requests that added columns
     * or changed functions are found only until the coordinator restarts; a retry of such a request gets the first
     * answer.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` or `request_id` is not set; fill it.
     * * `NOT_FOUND` (COMMIT_NOT_FOUND): the existing history of the table has no file installed by the request; retry it.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.GetCommitResponse getCommit(dev.leman.v1.GetCommitRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetCommitMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Leman's commits in a table's history, newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.ListCommitsResponse listCommits(dev.leman.v1.ListCommitsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListCommitsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Lists Leman's files next to a table's data (checkpoints, fragment records, staged column files) with their use, and
     * deletes those that are no longer needed and old enough. It always keeps files that a version, tag or branch of the
     * table refers to, that an unfinished fragment can reuse, or that an open job may need. An interrupted collection can
     * be repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER): `table` is not set, or a number is negative; fix the field that
     *   BadRequest names.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.CollectGarbageResponse collectGarbage(dev.leman.v1.CollectGarbageRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCollectGarbageMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Removes a view: its rows, its history, the files stored next to them, and the hidden tables of its refreshes. A
     * running refresh fails. Its source and its functions stay.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, RESERVED_NAME): `request_id` is empty, or the name is one of Leman's own; fix
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; TableService.DropTable drops it.
     * * `FAILED_PRECONDITION` (VIEW_IN_USE): views of the database read it; drop these first, or set `force`.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DropViewResponse dropView(dev.leman.v1.DropViewRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDropViewMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Reads everything in a database and compares it with the stored digests: functions and their bundles, metadata of
     * columns and views, job history, checkpoints, fragment records, and every committed file. Writes nothing: the
     * database may be read-only. Each message covers what was verified since the previous one, and has a token from which
     * an interrupted call can continue. Files that change meanwhile may be reported as missing: verify again.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_FOUND): there is no such folder; check the path.
     * * `INVALID_ARGUMENT` (BAD_PAGE_TOKEN): the token is of another database; begin without one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue from the last token.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; continue from the last token.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<?, dev.leman.v1.VerifyDatabaseResponse>
        verifyDatabase(dev.leman.v1.VerifyDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.blockingV2ServerStreamingCall(
          getChannel(), getVerifyDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Updates indexes of a table or view, so that each covers all fragments. Commits of others continue meanwhile. The
     * duration depends on the rows that are not covered; if there are none, nothing is done. An interrupted call can be
     * repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `NOT_FOUND` (INDEX_NOT_FOUND): the table has no index of that name; name one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN): the outcome is unknown; retry the same call.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.OptimizeIndicesResponse optimizeIndices(dev.leman.v1.OptimizeIndicesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getOptimizeIndicesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service CommitService.
   * <pre>
   * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
   * tables on Leman's behalf.
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
  public static final class CommitServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<CommitServiceBlockingStub> {
    private CommitServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CommitServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CommitServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns the commit of a request. If the request is in progress, the call waits for it. Requests that added columns
     * or changed functions are found only until the coordinator restarts; a retry of such a request gets the first
     * answer.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` or `request_id` is not set; fill it.
     * * `NOT_FOUND` (COMMIT_NOT_FOUND): the existing history of the table has no file installed by the request; retry it.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.GetCommitResponse getCommit(dev.leman.v1.GetCommitRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetCommitMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Leman's commits in a table's history, newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.ListCommitsResponse listCommits(dev.leman.v1.ListCommitsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListCommitsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Lists Leman's files next to a table's data (checkpoints, fragment records, staged column files) with their use, and
     * deletes those that are no longer needed and old enough. It always keeps files that a version, tag or branch of the
     * table refers to, that an unfinished fragment can reuse, or that an open job may need. An interrupted collection can
     * be repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER): `table` is not set, or a number is negative; fix the field that
     *   BadRequest names.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.CollectGarbageResponse collectGarbage(dev.leman.v1.CollectGarbageRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCollectGarbageMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Removes a view: its rows, its history, the files stored next to them, and the hidden tables of its refreshes. A
     * running refresh fails. Its source and its functions stay.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, RESERVED_NAME): `request_id` is empty, or the name is one of Leman's own; fix
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; TableService.DropTable drops it.
     * * `FAILED_PRECONDITION` (VIEW_IN_USE): views of the database read it; drop these first, or set `force`.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DropViewResponse dropView(dev.leman.v1.DropViewRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDropViewMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Reads everything in a database and compares it with the stored digests: functions and their bundles, metadata of
     * columns and views, job history, checkpoints, fragment records, and every committed file. Writes nothing: the
     * database may be read-only. Each message covers what was verified since the previous one, and has a token from which
     * an interrupted call can continue. Files that change meanwhile may be reported as missing: verify again.
     * Errors:
     * * `NOT_FOUND` (DATABASE_NOT_FOUND): there is no such folder; check the path.
     * * `INVALID_ARGUMENT` (BAD_PAGE_TOKEN): the token is of another database; begin without one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue from the last token.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; continue from the last token.
     * </pre>
     */
    public java.util.Iterator<dev.leman.v1.VerifyDatabaseResponse> verifyDatabase(
        dev.leman.v1.VerifyDatabaseRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getVerifyDatabaseMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Updates indexes of a table or view, so that each covers all fragments. Commits of others continue meanwhile. The
     * duration depends on the rows that are not covered; if there are none, nothing is done. An interrupted call can be
     * repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `NOT_FOUND` (INDEX_NOT_FOUND): the table has no index of that name; name one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN): the outcome is unknown; retry the same call.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.OptimizeIndicesResponse optimizeIndices(dev.leman.v1.OptimizeIndicesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getOptimizeIndicesMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service CommitService.
   * <pre>
   * The history of commits, and maintenance of Leman's files. Served by the commit coordinator, the only writer of user
   * tables on Leman's behalf.
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
  public static final class CommitServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<CommitServiceFutureStub> {
    private CommitServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CommitServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CommitServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns the commit of a request. If the request is in progress, the call waits for it. Requests that added columns
     * or changed functions are found only until the coordinator restarts; a retry of such a request gets the first
     * answer.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` or `request_id` is not set; fill it.
     * * `NOT_FOUND` (COMMIT_NOT_FOUND): the existing history of the table has no file installed by the request; retry it.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetCommitResponse> getCommit(
        dev.leman.v1.GetCommitRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetCommitMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Leman's commits in a table's history, newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListCommitsResponse> listCommits(
        dev.leman.v1.ListCommitsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListCommitsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Lists Leman's files next to a table's data (checkpoints, fragment records, staged column files) with their use, and
     * deletes those that are no longer needed and old enough. It always keeps files that a version, tag or branch of the
     * table refers to, that an unfinished fragment can reuse, or that an open job may need. An interrupted collection can
     * be repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER): `table` is not set, or a number is negative; fix the field that
     *   BadRequest names.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.CollectGarbageResponse> collectGarbage(
        dev.leman.v1.CollectGarbageRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCollectGarbageMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Removes a view: its rows, its history, the files stored next to them, and the hidden tables of its refreshes. A
     * running refresh fails. Its source and its functions stay.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, RESERVED_NAME): `request_id` is empty, or the name is one of Leman's own; fix
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; TableService.DropTable drops it.
     * * `FAILED_PRECONDITION` (VIEW_IN_USE): views of the database read it; drop these first, or set `force`.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.DropViewResponse> dropView(
        dev.leman.v1.DropViewRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDropViewMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Updates indexes of a table or view, so that each covers all fragments. Commits of others continue meanwhile. The
     * duration depends on the rows that are not covered; if there are none, nothing is done. An interrupted call can be
     * repeated, and continues.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `table` is not set; fill it.
     * * `NOT_FOUND` (INDEX_NOT_FOUND): the table has no index of that name; name one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN): the outcome is unknown; retry the same call.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.OptimizeIndicesResponse> optimizeIndices(
        dev.leman.v1.OptimizeIndicesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getOptimizeIndicesMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_GET_COMMIT = 0;
  private static final int METHODID_LIST_COMMITS = 1;
  private static final int METHODID_COLLECT_GARBAGE = 2;
  private static final int METHODID_DROP_VIEW = 3;
  private static final int METHODID_VERIFY_DATABASE = 4;
  private static final int METHODID_OPTIMIZE_INDICES = 5;

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
        case METHODID_GET_COMMIT:
          serviceImpl.getCommit((dev.leman.v1.GetCommitRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetCommitResponse>) responseObserver);
          break;
        case METHODID_LIST_COMMITS:
          serviceImpl.listCommits((dev.leman.v1.ListCommitsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListCommitsResponse>) responseObserver);
          break;
        case METHODID_COLLECT_GARBAGE:
          serviceImpl.collectGarbage((dev.leman.v1.CollectGarbageRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.CollectGarbageResponse>) responseObserver);
          break;
        case METHODID_DROP_VIEW:
          serviceImpl.dropView((dev.leman.v1.DropViewRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.DropViewResponse>) responseObserver);
          break;
        case METHODID_VERIFY_DATABASE:
          serviceImpl.verifyDatabase((dev.leman.v1.VerifyDatabaseRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.VerifyDatabaseResponse>) responseObserver);
          break;
        case METHODID_OPTIMIZE_INDICES:
          serviceImpl.optimizeIndices((dev.leman.v1.OptimizeIndicesRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.OptimizeIndicesResponse>) responseObserver);
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
          getGetCommitMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetCommitRequest,
              dev.leman.v1.GetCommitResponse>(
                service, METHODID_GET_COMMIT)))
        .addMethod(
          getListCommitsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListCommitsRequest,
              dev.leman.v1.ListCommitsResponse>(
                service, METHODID_LIST_COMMITS)))
        .addMethod(
          getCollectGarbageMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.CollectGarbageRequest,
              dev.leman.v1.CollectGarbageResponse>(
                service, METHODID_COLLECT_GARBAGE)))
        .addMethod(
          getDropViewMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.DropViewRequest,
              dev.leman.v1.DropViewResponse>(
                service, METHODID_DROP_VIEW)))
        .addMethod(
          getVerifyDatabaseMethod(),
          io.grpc.stub.ServerCalls.asyncServerStreamingCall(
            new MethodHandlers<
              dev.leman.v1.VerifyDatabaseRequest,
              dev.leman.v1.VerifyDatabaseResponse>(
                service, METHODID_VERIFY_DATABASE)))
        .addMethod(
          getOptimizeIndicesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.OptimizeIndicesRequest,
              dev.leman.v1.OptimizeIndicesResponse>(
                service, METHODID_OPTIMIZE_INDICES)))
        .build();
  }

  private static abstract class CommitServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    CommitServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.CommitProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("CommitService");
    }
  }

  private static final class CommitServiceFileDescriptorSupplier
      extends CommitServiceBaseDescriptorSupplier {
    CommitServiceFileDescriptorSupplier() {}
  }

  private static final class CommitServiceMethodDescriptorSupplier
      extends CommitServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    CommitServiceMethodDescriptorSupplier(java.lang.String methodName) {
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
      synchronized (CommitServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new CommitServiceFileDescriptorSupplier())
              .addMethod(getGetCommitMethod())
              .addMethod(getListCommitsMethod())
              .addMethod(getCollectGarbageMethod())
              .addMethod(getDropViewMethod())
              .addMethod(getVerifyDatabaseMethod())
              .addMethod(getOptimizeIndicesMethod())
              .build();
        }
      }
    }
    return result;
  }
}
