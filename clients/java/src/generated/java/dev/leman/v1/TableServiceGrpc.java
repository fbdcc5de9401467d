package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
 * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
 *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
public final class TableServiceGrpc {

  private TableServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.TableService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ReadRowsRequest,
      dev.leman.v1.ReadRowsResponse> getReadRowsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ReadRows",
      requestType = dev.leman.v1.ReadRowsRequest.class,
      responseType = dev.leman.v1.ReadRowsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ReadRowsRequest,
      dev.leman.v1.ReadRowsResponse> getReadRowsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ReadRowsRequest, dev.leman.v1.ReadRowsResponse> getReadRowsMethod;
    if ((getReadRowsMethod = TableServiceGrpc.getReadRowsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getReadRowsMethod = TableServiceGrpc.getReadRowsMethod) == null) {
          TableServiceGrpc.getReadRowsMethod = getReadRowsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ReadRowsRequest, dev.leman.v1.ReadRowsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ReadRows"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ReadRowsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ReadRowsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("ReadRows"))
              .build();
        }
      }
    }
    return getReadRowsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.CreateTableRequest,
      dev.leman.v1.CreateTableResponse> getCreateTableMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CreateTable",
      requestType = dev.leman.v1.CreateTableRequest.class,
      responseType = dev.leman.v1.CreateTableResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.CreateTableRequest,
      dev.leman.v1.CreateTableResponse> getCreateTableMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.CreateTableRequest, dev.leman.v1.CreateTableResponse> getCreateTableMethod;
    if ((getCreateTableMethod = TableServiceGrpc.getCreateTableMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getCreateTableMethod = TableServiceGrpc.getCreateTableMethod) == null) {
          TableServiceGrpc.getCreateTableMethod = getCreateTableMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.CreateTableRequest, dev.leman.v1.CreateTableResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CreateTable"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CreateTableRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CreateTableResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("CreateTable"))
              .build();
        }
      }
    }
    return getCreateTableMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.AppendRowsRequest,
      dev.leman.v1.AppendRowsResponse> getAppendRowsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AppendRows",
      requestType = dev.leman.v1.AppendRowsRequest.class,
      responseType = dev.leman.v1.AppendRowsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.CLIENT_STREAMING)
  public static io.grpc.MethodDescriptor<dev.leman.v1.AppendRowsRequest,
      dev.leman.v1.AppendRowsResponse> getAppendRowsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.AppendRowsRequest, dev.leman.v1.AppendRowsResponse> getAppendRowsMethod;
    if ((getAppendRowsMethod = TableServiceGrpc.getAppendRowsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getAppendRowsMethod = TableServiceGrpc.getAppendRowsMethod) == null) {
          TableServiceGrpc.getAppendRowsMethod = getAppendRowsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.AppendRowsRequest, dev.leman.v1.AppendRowsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.CLIENT_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AppendRows"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AppendRowsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AppendRowsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("AppendRows"))
              .build();
        }
      }
    }
    return getAppendRowsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.DeleteRowsRequest,
      dev.leman.v1.DeleteRowsResponse> getDeleteRowsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DeleteRows",
      requestType = dev.leman.v1.DeleteRowsRequest.class,
      responseType = dev.leman.v1.DeleteRowsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.DeleteRowsRequest,
      dev.leman.v1.DeleteRowsResponse> getDeleteRowsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.DeleteRowsRequest, dev.leman.v1.DeleteRowsResponse> getDeleteRowsMethod;
    if ((getDeleteRowsMethod = TableServiceGrpc.getDeleteRowsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getDeleteRowsMethod = TableServiceGrpc.getDeleteRowsMethod) == null) {
          TableServiceGrpc.getDeleteRowsMethod = getDeleteRowsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.DeleteRowsRequest, dev.leman.v1.DeleteRowsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DeleteRows"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DeleteRowsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DeleteRowsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("DeleteRows"))
              .build();
        }
      }
    }
    return getDeleteRowsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.UpdateRowsRequest,
      dev.leman.v1.UpdateRowsResponse> getUpdateRowsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "UpdateRows",
      requestType = dev.leman.v1.UpdateRowsRequest.class,
      responseType = dev.leman.v1.UpdateRowsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.UpdateRowsRequest,
      dev.leman.v1.UpdateRowsResponse> getUpdateRowsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.UpdateRowsRequest, dev.leman.v1.UpdateRowsResponse> getUpdateRowsMethod;
    if ((getUpdateRowsMethod = TableServiceGrpc.getUpdateRowsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getUpdateRowsMethod = TableServiceGrpc.getUpdateRowsMethod) == null) {
          TableServiceGrpc.getUpdateRowsMethod = getUpdateRowsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.UpdateRowsRequest, dev.leman.v1.UpdateRowsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "UpdateRows"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UpdateRowsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UpdateRowsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("UpdateRows"))
              .build();
        }
      }
    }
    return getUpdateRowsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.MergeRowsRequest,
      dev.leman.v1.MergeRowsResponse> getMergeRowsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "MergeRows",
      requestType = dev.leman.v1.MergeRowsRequest.class,
      responseType = dev.leman.v1.MergeRowsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.CLIENT_STREAMING)
  public static io.grpc.MethodDescriptor<dev.leman.v1.MergeRowsRequest,
      dev.leman.v1.MergeRowsResponse> getMergeRowsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.MergeRowsRequest, dev.leman.v1.MergeRowsResponse> getMergeRowsMethod;
    if ((getMergeRowsMethod = TableServiceGrpc.getMergeRowsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getMergeRowsMethod = TableServiceGrpc.getMergeRowsMethod) == null) {
          TableServiceGrpc.getMergeRowsMethod = getMergeRowsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.MergeRowsRequest, dev.leman.v1.MergeRowsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.CLIENT_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "MergeRows"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.MergeRowsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.MergeRowsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("MergeRows"))
              .build();
        }
      }
    }
    return getMergeRowsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.DropTableRequest,
      dev.leman.v1.DropTableResponse> getDropTableMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DropTable",
      requestType = dev.leman.v1.DropTableRequest.class,
      responseType = dev.leman.v1.DropTableResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.DropTableRequest,
      dev.leman.v1.DropTableResponse> getDropTableMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.DropTableRequest, dev.leman.v1.DropTableResponse> getDropTableMethod;
    if ((getDropTableMethod = TableServiceGrpc.getDropTableMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getDropTableMethod = TableServiceGrpc.getDropTableMethod) == null) {
          TableServiceGrpc.getDropTableMethod = getDropTableMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.DropTableRequest, dev.leman.v1.DropTableResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DropTable"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DropTableRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DropTableResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("DropTable"))
              .build();
        }
      }
    }
    return getDropTableMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.RenameTableRequest,
      dev.leman.v1.RenameTableResponse> getRenameTableMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "RenameTable",
      requestType = dev.leman.v1.RenameTableRequest.class,
      responseType = dev.leman.v1.RenameTableResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.RenameTableRequest,
      dev.leman.v1.RenameTableResponse> getRenameTableMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.RenameTableRequest, dev.leman.v1.RenameTableResponse> getRenameTableMethod;
    if ((getRenameTableMethod = TableServiceGrpc.getRenameTableMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getRenameTableMethod = TableServiceGrpc.getRenameTableMethod) == null) {
          TableServiceGrpc.getRenameTableMethod = getRenameTableMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.RenameTableRequest, dev.leman.v1.RenameTableResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "RenameTable"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RenameTableRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RenameTableResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("RenameTable"))
              .build();
        }
      }
    }
    return getRenameTableMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.AddPlainColumnsRequest,
      dev.leman.v1.AddPlainColumnsResponse> getAddPlainColumnsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AddPlainColumns",
      requestType = dev.leman.v1.AddPlainColumnsRequest.class,
      responseType = dev.leman.v1.AddPlainColumnsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.AddPlainColumnsRequest,
      dev.leman.v1.AddPlainColumnsResponse> getAddPlainColumnsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.AddPlainColumnsRequest, dev.leman.v1.AddPlainColumnsResponse> getAddPlainColumnsMethod;
    if ((getAddPlainColumnsMethod = TableServiceGrpc.getAddPlainColumnsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getAddPlainColumnsMethod = TableServiceGrpc.getAddPlainColumnsMethod) == null) {
          TableServiceGrpc.getAddPlainColumnsMethod = getAddPlainColumnsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.AddPlainColumnsRequest, dev.leman.v1.AddPlainColumnsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AddPlainColumns"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AddPlainColumnsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AddPlainColumnsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("AddPlainColumns"))
              .build();
        }
      }
    }
    return getAddPlainColumnsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.DropColumnsRequest,
      dev.leman.v1.DropColumnsResponse> getDropColumnsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DropColumns",
      requestType = dev.leman.v1.DropColumnsRequest.class,
      responseType = dev.leman.v1.DropColumnsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.DropColumnsRequest,
      dev.leman.v1.DropColumnsResponse> getDropColumnsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.DropColumnsRequest, dev.leman.v1.DropColumnsResponse> getDropColumnsMethod;
    if ((getDropColumnsMethod = TableServiceGrpc.getDropColumnsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getDropColumnsMethod = TableServiceGrpc.getDropColumnsMethod) == null) {
          TableServiceGrpc.getDropColumnsMethod = getDropColumnsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.DropColumnsRequest, dev.leman.v1.DropColumnsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DropColumns"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DropColumnsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DropColumnsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("DropColumns"))
              .build();
        }
      }
    }
    return getDropColumnsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.AlterPlainColumnsRequest,
      dev.leman.v1.AlterPlainColumnsResponse> getAlterPlainColumnsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AlterPlainColumns",
      requestType = dev.leman.v1.AlterPlainColumnsRequest.class,
      responseType = dev.leman.v1.AlterPlainColumnsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.AlterPlainColumnsRequest,
      dev.leman.v1.AlterPlainColumnsResponse> getAlterPlainColumnsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.AlterPlainColumnsRequest, dev.leman.v1.AlterPlainColumnsResponse> getAlterPlainColumnsMethod;
    if ((getAlterPlainColumnsMethod = TableServiceGrpc.getAlterPlainColumnsMethod) == null) {
      synchronized (TableServiceGrpc.class) {
        if ((getAlterPlainColumnsMethod = TableServiceGrpc.getAlterPlainColumnsMethod) == null) {
          TableServiceGrpc.getAlterPlainColumnsMethod = getAlterPlainColumnsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.AlterPlainColumnsRequest, dev.leman.v1.AlterPlainColumnsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AlterPlainColumns"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AlterPlainColumnsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AlterPlainColumnsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new TableServiceMethodDescriptorSupplier("AlterPlainColumns"))
              .build();
        }
      }
    }
    return getAlterPlainColumnsMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static TableServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TableServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TableServiceStub>() {
        @java.lang.Override
        public TableServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TableServiceStub(channel, callOptions);
        }
      };
    return TableServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static TableServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TableServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TableServiceBlockingV2Stub>() {
        @java.lang.Override
        public TableServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TableServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return TableServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static TableServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TableServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TableServiceBlockingStub>() {
        @java.lang.Override
        public TableServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TableServiceBlockingStub(channel, callOptions);
        }
      };
    return TableServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static TableServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<TableServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<TableServiceFutureStub>() {
        @java.lang.Override
        public TableServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new TableServiceFutureStub(channel, callOptions);
        }
      };
    return TableServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
   *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
     * Streams the rows of a table or view in one version, in their order. Of a view, it returns only rows with values,
     * and only the columns that queries show. The concatenated bytes of all messages are one Arrow IPC stream. A message
     * has at most 1 MiB of it, and may end within a record batch. The memory of a call is bounded, whatever the size of
     * the table and the speed of the reader.
     * To continue an interrupted call, send another one with the version and the incarnation of the first message, and
     * with the number of rows read as its offset. A call with `include_checkpointed` cannot be continued: it starts over.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, BAD_NUMBER, BAD_COLUMN): the filter cannot be used, a number is negative, or
     *   a column is named twice; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): `tag` is empty, or a version or tag comes with `include_checkpointed`, which
     *   reads the latest version; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): `include_checkpointed` is set, and the rows of a view appear with its
     *   refreshes.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version (any more), or no such tag; name
     *   one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column, or queries do not show it; name one of
     *   those that the message lists.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance wrote a column that it cannot read; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_READS): the limit of concurrent reads is reached; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue as after an interruption.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no answer for a minute; continue as after an interruption.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `ABORTED` (TABLE_REPLACED): the table is not the one of the request's `incarnation`; start again.
     * </pre>
     */
    default void readRows(dev.leman.v1.ReadRowsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ReadRowsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getReadRowsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Creates a table without rows. Leman's own metadata in the schema (`leman::…`) is dropped: it belongs to the table
     * that the schema was read from.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): a field is empty, the bytes are not
     *   an Arrow schema, it has no column, a repeated one, or an invalid name; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance does not store a column's type; do what the message says.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * </pre>
     */
    default void createTable(dev.leman.v1.CreateTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CreateTableResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCreateTableMethod(), responseObserver);
    }

    /**
     * <pre>
     * Adds all rows or none, in one version of the table, once the stream has ended. The first message is the header; the
     * concatenated bytes of all others are one Arrow IPC stream with its end marker. Missing columns become NULL; the
     * next backfill computes those that are computed columns. Given values of a computed column are stored; a backfill
     * with `where` can keep them. Values are cast if nothing is lost (int32 → int64, text in a dictionary → text). A call
     * that ends early changes nothing, and its data is removed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER, BAD_STREAM, BATCH_TOO_LARGE, BAD_COLUMN): no header, a wrong field
     *   in it, the bytes are not a whole Arrow IPC stream, a record batch has more than 256 MiB, or a column is repeated;
     *   correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_REQUIRED, TYPE_MISMATCH, NULL_VALUE): the rows do not fit the
     *   table; do what the message says.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; add them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ABORTED` (SCHEMA_CHANGED, FILES_GONE): a column was changed, or sent data was removed, before all was sent;
     *   check the table, and send the rows again.
     * * `ABORTED` (UPLOAD_STALLED, UPLOAD_ENDED): nothing was received for LEMAN_COMMIT__UPLOAD_IDLE_SECONDS, or the call
     *   ended early; send the rows again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request, or other rows, used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default io.grpc.stub.StreamObserver<dev.leman.v1.AppendRowsRequest> appendRows(
        io.grpc.stub.StreamObserver<dev.leman.v1.AppendRowsResponse> responseObserver) {
      return io.grpc.stub.ServerCalls.asyncUnimplementedStreamingCall(getAppendRowsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Deletes rows. Their values stay in older versions of the table. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER): a field is empty, or the filter cannot be used; fix the field
     *   that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; delete them there.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void deleteRows(dev.leman.v1.DeleteRowsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DeleteRowsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDeleteRowsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Sets new values in columns of rows, all of them or none, in one version of the table. The rows move to new
     * fragments, at the end of the table; their row ids stay, if they are stable. Computed columns that depend on a
     * changed column, directly or not, become NULL there, and the next backfill computes them. It also computes the other
     * computed columns of these rows, because the rows have moved. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER, INVALID_EXPRESSION, BAD_COLUMN, BAD_STREAM): a field is empty,
     *   the filter or an expression cannot be used, a column is named twice, or `values` are not an Arrow IPC stream of
     *   one row; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED, EXPRESSION_FAILED): the filter or an expression cannot be evaluated for a
     *   row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, TYPE_MISMATCH, NULL_VALUE): the values do not fit the table; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): an expression names a column that the table does not have; correct
     *   it.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; change its inputs.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; update them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void updateRows(dev.leman.v1.UpdateRowsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UpdateRowsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getUpdateRowsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Merges rows with those of the table that have the same keys: updates, inserts and deletes, all or nothing, in one
     * version of the table, once the stream has ended. The stream is that of AppendRows. An updated row moves, as in
     * UpdateRows, and keeps its values in columns that are missing from the stream; in an inserted row these columns are
     * NULL. A NULL key matches no other. Other commits of the table wait during the merge.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_STREAM, BATCH_TOO_LARGE, BAD_COLUMN, INVALID_FILTER): no header, the merge
     *   would change nothing, the bytes are not a whole Arrow IPC stream, a record batch has more than 256 MiB, a key is
     *   missing in the rows, a column is repeated, or a condition is invalid; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): a condition is given without the action that it limits; set both or neither.
     * * `INVALID_ARGUMENT` (MERGE_TOO_LARGE): the rows have more bytes than LEMAN_COMMIT__MAX_MERGE_BYTES; send them in
     *   several calls.
     * * `FAILED_PRECONDITION` (DUPLICATE_KEY): several of the rows match one row of the table; send one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_REQUIRED, TYPE_MISMATCH, NULL_VALUE): the rows do not fit the
     *   table; do what the message says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): a condition cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; merge them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ABORTED` (SCHEMA_CHANGED): a column was changed before all was sent; check the table, and send the rows again.
     * * `ABORTED` (UPLOAD_STALLED, UPLOAD_ENDED): nothing was received for LEMAN_COMMIT__UPLOAD_IDLE_SECONDS, or the call
     *   ended early; send the rows again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request, or other rows, used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default io.grpc.stub.StreamObserver<dev.leman.v1.MergeRowsRequest> mergeRows(
        io.grpc.stub.StreamObserver<dev.leman.v1.MergeRowsResponse> responseObserver) {
      return io.grpc.stub.ServerCalls.asyncUnimplementedStreamingCall(getMergeRowsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Removes a table with all its versions, computed values and checkpoints. The history of its jobs and registered
     * functions stay. With `force`, running jobs of the table fail, and views of it keep their rows and cannot be
     * refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `request_id` is empty; fill it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; use CommitService.DropView.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): views of this database read it, or jobs of it have not ended, as the facts
     *   `views` and `jobs` say; drop or end these first, or set `force`. Views of other databases are not checked.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * </pre>
     */
    default void dropTable(dev.leman.v1.DropTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DropTableResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDropTableMethod(), responseObserver);
    }

    /**
     * <pre>
     * Renames a table in its database, atomically: it always has exactly one of the two names. Its versions, row ids and
     * computed values stay. References to the old name are not updated. Jobs stay in the history under the old name and
     * cannot be retried. Checkpoints of unfinished backfills are not used under the new name: their rows are computed
     * again. With `force`, running jobs fail, and views of the table keep their rows but cannot be refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): a field is empty; fill it.
     * * `FAILED_PRECONDITION` (RENAME_NOT_SUPPORTED): the database is in an object store, which can only copy; create a
     *   table of the new name and append the rows of this one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; create another one.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): as for DropTable.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of the new name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void renameTable(dev.leman.v1.RenameTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RenameTableResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getRenameTableMethod(), responseObserver);
    }

    /**
     * <pre>
     * Adds columns that no function computes: all NULL, without writing data; all of them or none. CatalogService.AddColumns
     * adds computed ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): as for CreateTable; also a column that
     *   may not be NULL.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support a column's type; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): the table has a column of that name; use another one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void addPlainColumns(dev.leman.v1.AddPlainColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AddPlainColumnsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAddPlainColumnsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Drops columns, computed ones too: all of them or none. Their values stay in older versions of the table. With
     * `force`, computed columns that read a dropped column keep their values but cannot be computed any more, views that
     * read one cannot be refreshed any more, and jobs that compute one fail.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_COLUMN): no column, or a repeated one; correct the field that BadRequest
     *   names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `FAILED_PRECONDITION` (LAST_COLUMN): no column would be left; drop the table.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void dropColumns(dev.leman.v1.DropColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DropColumnsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDropColumnsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Changes names, types, or nullability of columns: all of them or none. A renamed column stays an input of the
     * computed columns that read it, and keeps its checkpoints, but a view that reads it no longer finds it. To change a
     * type, all values of the column are rewritten, while other commits of the table wait. The type of a computed column
     * cannot be changed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): no column, a repeated one or one
     *   without a change, or an invalid name or type; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_EXISTS): the table has no such column, or has one of the new
     *   name.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support the type; do what the message
     *   says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): the type of a computed column is that of its function; add another
     *   column.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void alterPlainColumns(dev.leman.v1.AlterPlainColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AlterPlainColumnsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAlterPlainColumnsMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service TableService.
   * <pre>
   * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
   *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
  public static abstract class TableServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return TableServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service TableService.
   * <pre>
   * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
   *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
  public static final class TableServiceStub
      extends io.grpc.stub.AbstractAsyncStub<TableServiceStub> {
    private TableServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TableServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TableServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Streams the rows of a table or view in one version, in their order. Of a view, it returns only rows with values,
     * and only the columns that queries show. The concatenated bytes of all messages are one Arrow IPC stream. A message
     * has at most 1 MiB of it, and may end within a record batch. The memory of a call is bounded, whatever the size of
     * the table and the speed of the reader.
     * To continue an interrupted call, send another one with the version and the incarnation of the first message, and
     * with the number of rows read as its offset. A call with `include_checkpointed` cannot be continued: it starts over.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, BAD_NUMBER, BAD_COLUMN): the filter cannot be used, a number is negative, or
     *   a column is named twice; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): `tag` is empty, or a version or tag comes with `include_checkpointed`, which
     *   reads the latest version; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): `include_checkpointed` is set, and the rows of a view appear with its
     *   refreshes.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version (any more), or no such tag; name
     *   one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column, or queries do not show it; name one of
     *   those that the message lists.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance wrote a column that it cannot read; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_READS): the limit of concurrent reads is reached; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue as after an interruption.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no answer for a minute; continue as after an interruption.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `ABORTED` (TABLE_REPLACED): the table is not the one of the request's `incarnation`; start again.
     * </pre>
     */
    public void readRows(dev.leman.v1.ReadRowsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ReadRowsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getReadRowsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Creates a table without rows. Leman's own metadata in the schema (`leman::…`) is dropped: it belongs to the table
     * that the schema was read from.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): a field is empty, the bytes are not
     *   an Arrow schema, it has no column, a repeated one, or an invalid name; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance does not store a column's type; do what the message says.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * </pre>
     */
    public void createTable(dev.leman.v1.CreateTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CreateTableResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCreateTableMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Adds all rows or none, in one version of the table, once the stream has ended. The first message is the header; the
     * concatenated bytes of all others are one Arrow IPC stream with its end marker. Missing columns become NULL; the
     * next backfill computes those that are computed columns. Given values of a computed column are stored; a backfill
     * with `where` can keep them. Values are cast if nothing is lost (int32 → int64, text in a dictionary → text). A call
     * that ends early changes nothing, and its data is removed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER, BAD_STREAM, BATCH_TOO_LARGE, BAD_COLUMN): no header, a wrong field
     *   in it, the bytes are not a whole Arrow IPC stream, a record batch has more than 256 MiB, or a column is repeated;
     *   correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_REQUIRED, TYPE_MISMATCH, NULL_VALUE): the rows do not fit the
     *   table; do what the message says.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; add them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ABORTED` (SCHEMA_CHANGED, FILES_GONE): a column was changed, or sent data was removed, before all was sent;
     *   check the table, and send the rows again.
     * * `ABORTED` (UPLOAD_STALLED, UPLOAD_ENDED): nothing was received for LEMAN_COMMIT__UPLOAD_IDLE_SECONDS, or the call
     *   ended early; send the rows again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request, or other rows, used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<dev.leman.v1.AppendRowsRequest> appendRows(
        io.grpc.stub.StreamObserver<dev.leman.v1.AppendRowsResponse> responseObserver) {
      return io.grpc.stub.ClientCalls.asyncClientStreamingCall(
          getChannel().newCall(getAppendRowsMethod(), getCallOptions()), responseObserver);
    }

    /**
     * <pre>
     * Deletes rows. Their values stay in older versions of the table. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER): a field is empty, or the filter cannot be used; fix the field
     *   that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; delete them there.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void deleteRows(dev.leman.v1.DeleteRowsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DeleteRowsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDeleteRowsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Sets new values in columns of rows, all of them or none, in one version of the table. The rows move to new
     * fragments, at the end of the table; their row ids stay, if they are stable. Computed columns that depend on a
     * changed column, directly or not, become NULL there, and the next backfill computes them. It also computes the other
     * computed columns of these rows, because the rows have moved. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER, INVALID_EXPRESSION, BAD_COLUMN, BAD_STREAM): a field is empty,
     *   the filter or an expression cannot be used, a column is named twice, or `values` are not an Arrow IPC stream of
     *   one row; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED, EXPRESSION_FAILED): the filter or an expression cannot be evaluated for a
     *   row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, TYPE_MISMATCH, NULL_VALUE): the values do not fit the table; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): an expression names a column that the table does not have; correct
     *   it.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; change its inputs.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; update them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void updateRows(dev.leman.v1.UpdateRowsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UpdateRowsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getUpdateRowsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Merges rows with those of the table that have the same keys: updates, inserts and deletes, all or nothing, in one
     * version of the table, once the stream has ended. The stream is that of AppendRows. An updated row moves, as in
     * UpdateRows, and keeps its values in columns that are missing from the stream; in an inserted row these columns are
     * NULL. A NULL key matches no other. Other commits of the table wait during the merge.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_STREAM, BATCH_TOO_LARGE, BAD_COLUMN, INVALID_FILTER): no header, the merge
     *   would change nothing, the bytes are not a whole Arrow IPC stream, a record batch has more than 256 MiB, a key is
     *   missing in the rows, a column is repeated, or a condition is invalid; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): a condition is given without the action that it limits; set both or neither.
     * * `INVALID_ARGUMENT` (MERGE_TOO_LARGE): the rows have more bytes than LEMAN_COMMIT__MAX_MERGE_BYTES; send them in
     *   several calls.
     * * `FAILED_PRECONDITION` (DUPLICATE_KEY): several of the rows match one row of the table; send one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_REQUIRED, TYPE_MISMATCH, NULL_VALUE): the rows do not fit the
     *   table; do what the message says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): a condition cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; merge them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ABORTED` (SCHEMA_CHANGED): a column was changed before all was sent; check the table, and send the rows again.
     * * `ABORTED` (UPLOAD_STALLED, UPLOAD_ENDED): nothing was received for LEMAN_COMMIT__UPLOAD_IDLE_SECONDS, or the call
     *   ended early; send the rows again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request, or other rows, used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<dev.leman.v1.MergeRowsRequest> mergeRows(
        io.grpc.stub.StreamObserver<dev.leman.v1.MergeRowsResponse> responseObserver) {
      return io.grpc.stub.ClientCalls.asyncClientStreamingCall(
          getChannel().newCall(getMergeRowsMethod(), getCallOptions()), responseObserver);
    }

    /**
     * <pre>
     * Removes a table with all its versions, computed values and checkpoints. The history of its jobs and registered
     * functions stay. With `force`, running jobs of the table fail, and views of it keep their rows and cannot be
     * refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `request_id` is empty; fill it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; use CommitService.DropView.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): views of this database read it, or jobs of it have not ended, as the facts
     *   `views` and `jobs` say; drop or end these first, or set `force`. Views of other databases are not checked.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * </pre>
     */
    public void dropTable(dev.leman.v1.DropTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DropTableResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDropTableMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Renames a table in its database, atomically: it always has exactly one of the two names. Its versions, row ids and
     * computed values stay. References to the old name are not updated. Jobs stay in the history under the old name and
     * cannot be retried. Checkpoints of unfinished backfills are not used under the new name: their rows are computed
     * again. With `force`, running jobs fail, and views of the table keep their rows but cannot be refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): a field is empty; fill it.
     * * `FAILED_PRECONDITION` (RENAME_NOT_SUPPORTED): the database is in an object store, which can only copy; create a
     *   table of the new name and append the rows of this one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; create another one.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): as for DropTable.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of the new name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void renameTable(dev.leman.v1.RenameTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RenameTableResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getRenameTableMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Adds columns that no function computes: all NULL, without writing data; all of them or none. CatalogService.AddColumns
     * adds computed ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): as for CreateTable; also a column that
     *   may not be NULL.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support a column's type; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): the table has a column of that name; use another one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void addPlainColumns(dev.leman.v1.AddPlainColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AddPlainColumnsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAddPlainColumnsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Drops columns, computed ones too: all of them or none. Their values stay in older versions of the table. With
     * `force`, computed columns that read a dropped column keep their values but cannot be computed any more, views that
     * read one cannot be refreshed any more, and jobs that compute one fail.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_COLUMN): no column, or a repeated one; correct the field that BadRequest
     *   names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `FAILED_PRECONDITION` (LAST_COLUMN): no column would be left; drop the table.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void dropColumns(dev.leman.v1.DropColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DropColumnsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDropColumnsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Changes names, types, or nullability of columns: all of them or none. A renamed column stays an input of the
     * computed columns that read it, and keeps its checkpoints, but a view that reads it no longer finds it. To change a
     * type, all values of the column are rewritten, while other commits of the table wait. The type of a computed column
     * cannot be changed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): no column, a repeated one or one
     *   without a change, or an invalid name or type; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_EXISTS): the table has no such column, or has one of the new
     *   name.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support the type; do what the message
     *   says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): the type of a computed column is that of its function; add another
     *   column.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void alterPlainColumns(dev.leman.v1.AlterPlainColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AlterPlainColumnsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAlterPlainColumnsMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service TableService.
   * <pre>
   * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
   *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
  public static final class TableServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<TableServiceBlockingV2Stub> {
    private TableServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TableServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TableServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Streams the rows of a table or view in one version, in their order. Of a view, it returns only rows with values,
     * and only the columns that queries show. The concatenated bytes of all messages are one Arrow IPC stream. A message
     * has at most 1 MiB of it, and may end within a record batch. The memory of a call is bounded, whatever the size of
     * the table and the speed of the reader.
     * To continue an interrupted call, send another one with the version and the incarnation of the first message, and
     * with the number of rows read as its offset. A call with `include_checkpointed` cannot be continued: it starts over.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, BAD_NUMBER, BAD_COLUMN): the filter cannot be used, a number is negative, or
     *   a column is named twice; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): `tag` is empty, or a version or tag comes with `include_checkpointed`, which
     *   reads the latest version; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): `include_checkpointed` is set, and the rows of a view appear with its
     *   refreshes.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version (any more), or no such tag; name
     *   one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column, or queries do not show it; name one of
     *   those that the message lists.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance wrote a column that it cannot read; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_READS): the limit of concurrent reads is reached; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue as after an interruption.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no answer for a minute; continue as after an interruption.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `ABORTED` (TABLE_REPLACED): the table is not the one of the request's `incarnation`; start again.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<?, dev.leman.v1.ReadRowsResponse>
        readRows(dev.leman.v1.ReadRowsRequest request) {
      return io.grpc.stub.ClientCalls.blockingV2ServerStreamingCall(
          getChannel(), getReadRowsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Creates a table without rows. Leman's own metadata in the schema (`leman::…`) is dropped: it belongs to the table
     * that the schema was read from.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): a field is empty, the bytes are not
     *   an Arrow schema, it has no column, a repeated one, or an invalid name; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance does not store a column's type; do what the message says.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * </pre>
     */
    public dev.leman.v1.CreateTableResponse createTable(dev.leman.v1.CreateTableRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCreateTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Adds all rows or none, in one version of the table, once the stream has ended. The first message is the header; the
     * concatenated bytes of all others are one Arrow IPC stream with its end marker. Missing columns become NULL; the
     * next backfill computes those that are computed columns. Given values of a computed column are stored; a backfill
     * with `where` can keep them. Values are cast if nothing is lost (int32 → int64, text in a dictionary → text). A call
     * that ends early changes nothing, and its data is removed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER, BAD_STREAM, BATCH_TOO_LARGE, BAD_COLUMN): no header, a wrong field
     *   in it, the bytes are not a whole Arrow IPC stream, a record batch has more than 256 MiB, or a column is repeated;
     *   correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_REQUIRED, TYPE_MISMATCH, NULL_VALUE): the rows do not fit the
     *   table; do what the message says.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; add them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ABORTED` (SCHEMA_CHANGED, FILES_GONE): a column was changed, or sent data was removed, before all was sent;
     *   check the table, and send the rows again.
     * * `ABORTED` (UPLOAD_STALLED, UPLOAD_ENDED): nothing was received for LEMAN_COMMIT__UPLOAD_IDLE_SECONDS, or the call
     *   ended early; send the rows again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request, or other rows, used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<dev.leman.v1.AppendRowsRequest, dev.leman.v1.AppendRowsResponse>
        appendRows() {
      return io.grpc.stub.ClientCalls.blockingClientStreamingCall(
          getChannel(), getAppendRowsMethod(), getCallOptions());
    }

    /**
     * <pre>
     * Deletes rows. Their values stay in older versions of the table. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER): a field is empty, or the filter cannot be used; fix the field
     *   that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; delete them there.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DeleteRowsResponse deleteRows(dev.leman.v1.DeleteRowsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDeleteRowsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Sets new values in columns of rows, all of them or none, in one version of the table. The rows move to new
     * fragments, at the end of the table; their row ids stay, if they are stable. Computed columns that depend on a
     * changed column, directly or not, become NULL there, and the next backfill computes them. It also computes the other
     * computed columns of these rows, because the rows have moved. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER, INVALID_EXPRESSION, BAD_COLUMN, BAD_STREAM): a field is empty,
     *   the filter or an expression cannot be used, a column is named twice, or `values` are not an Arrow IPC stream of
     *   one row; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED, EXPRESSION_FAILED): the filter or an expression cannot be evaluated for a
     *   row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, TYPE_MISMATCH, NULL_VALUE): the values do not fit the table; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): an expression names a column that the table does not have; correct
     *   it.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; change its inputs.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; update them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.UpdateRowsResponse updateRows(dev.leman.v1.UpdateRowsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getUpdateRowsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Merges rows with those of the table that have the same keys: updates, inserts and deletes, all or nothing, in one
     * version of the table, once the stream has ended. The stream is that of AppendRows. An updated row moves, as in
     * UpdateRows, and keeps its values in columns that are missing from the stream; in an inserted row these columns are
     * NULL. A NULL key matches no other. Other commits of the table wait during the merge.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_STREAM, BATCH_TOO_LARGE, BAD_COLUMN, INVALID_FILTER): no header, the merge
     *   would change nothing, the bytes are not a whole Arrow IPC stream, a record batch has more than 256 MiB, a key is
     *   missing in the rows, a column is repeated, or a condition is invalid; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): a condition is given without the action that it limits; set both or neither.
     * * `INVALID_ARGUMENT` (MERGE_TOO_LARGE): the rows have more bytes than LEMAN_COMMIT__MAX_MERGE_BYTES; send them in
     *   several calls.
     * * `FAILED_PRECONDITION` (DUPLICATE_KEY): several of the rows match one row of the table; send one of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_REQUIRED, TYPE_MISMATCH, NULL_VALUE): the rows do not fit the
     *   table; do what the message says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): a condition cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; merge them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ABORTED` (SCHEMA_CHANGED): a column was changed before all was sent; check the table, and send the rows again.
     * * `ABORTED` (UPLOAD_STALLED, UPLOAD_ENDED): nothing was received for LEMAN_COMMIT__UPLOAD_IDLE_SECONDS, or the call
     *   ended early; send the rows again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request, or other rows, used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<dev.leman.v1.MergeRowsRequest, dev.leman.v1.MergeRowsResponse>
        mergeRows() {
      return io.grpc.stub.ClientCalls.blockingClientStreamingCall(
          getChannel(), getMergeRowsMethod(), getCallOptions());
    }

    /**
     * <pre>
     * Removes a table with all its versions, computed values and checkpoints. The history of its jobs and registered
     * functions stay. With `force`, running jobs of the table fail, and views of it keep their rows and cannot be
     * refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `request_id` is empty; fill it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; use CommitService.DropView.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): views of this database read it, or jobs of it have not ended, as the facts
     *   `views` and `jobs` say; drop or end these first, or set `force`. Views of other databases are not checked.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * </pre>
     */
    public dev.leman.v1.DropTableResponse dropTable(dev.leman.v1.DropTableRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDropTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Renames a table in its database, atomically: it always has exactly one of the two names. Its versions, row ids and
     * computed values stay. References to the old name are not updated. Jobs stay in the history under the old name and
     * cannot be retried. Checkpoints of unfinished backfills are not used under the new name: their rows are computed
     * again. With `force`, running jobs fail, and views of the table keep their rows but cannot be refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): a field is empty; fill it.
     * * `FAILED_PRECONDITION` (RENAME_NOT_SUPPORTED): the database is in an object store, which can only copy; create a
     *   table of the new name and append the rows of this one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; create another one.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): as for DropTable.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of the new name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.RenameTableResponse renameTable(dev.leman.v1.RenameTableRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getRenameTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Adds columns that no function computes: all NULL, without writing data; all of them or none. CatalogService.AddColumns
     * adds computed ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): as for CreateTable; also a column that
     *   may not be NULL.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support a column's type; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): the table has a column of that name; use another one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.AddPlainColumnsResponse addPlainColumns(dev.leman.v1.AddPlainColumnsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAddPlainColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Drops columns, computed ones too: all of them or none. Their values stay in older versions of the table. With
     * `force`, computed columns that read a dropped column keep their values but cannot be computed any more, views that
     * read one cannot be refreshed any more, and jobs that compute one fail.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_COLUMN): no column, or a repeated one; correct the field that BadRequest
     *   names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `FAILED_PRECONDITION` (LAST_COLUMN): no column would be left; drop the table.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DropColumnsResponse dropColumns(dev.leman.v1.DropColumnsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDropColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Changes names, types, or nullability of columns: all of them or none. A renamed column stays an input of the
     * computed columns that read it, and keeps its checkpoints, but a view that reads it no longer finds it. To change a
     * type, all values of the column are rewritten, while other commits of the table wait. The type of a computed column
     * cannot be changed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): no column, a repeated one or one
     *   without a change, or an invalid name or type; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_EXISTS): the table has no such column, or has one of the new
     *   name.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support the type; do what the message
     *   says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): the type of a computed column is that of its function; add another
     *   column.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.AlterPlainColumnsResponse alterPlainColumns(dev.leman.v1.AlterPlainColumnsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAlterPlainColumnsMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service TableService.
   * <pre>
   * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
   *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
  public static final class TableServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<TableServiceBlockingStub> {
    private TableServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TableServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TableServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Streams the rows of a table or view in one version, in their order. Of a view, it returns only rows with values,
     * and only the columns that queries show. The concatenated bytes of all messages are one Arrow IPC stream. A message
     * has at most 1 MiB of it, and may end within a record batch. The memory of a call is bounded, whatever the size of
     * the table and the speed of the reader.
     * To continue an interrupted call, send another one with the version and the incarnation of the first message, and
     * with the number of rows read as its offset. A call with `include_checkpointed` cannot be continued: it starts over.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, BAD_NUMBER, BAD_COLUMN): the filter cannot be used, a number is negative, or
     *   a column is named twice; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_REQUEST): `tag` is empty, or a version or tag comes with `include_checkpointed`, which
     *   reads the latest version; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): `include_checkpointed` is set, and the rows of a view appear with its
     *   refreshes.
     * * `NOT_FOUND` (VERSION_NOT_FOUND, TAG_NOT_FOUND): the table has no such version (any more), or no such tag; name
     *   one that it has.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column, or queries do not show it; name one of
     *   those that the message lists.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance wrote a column that it cannot read; leave it out.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_READS): the limit of concurrent reads is reached; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; continue as after an interruption.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no answer for a minute; continue as after an interruption.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `ABORTED` (TABLE_REPLACED): the table is not the one of the request's `incarnation`; start again.
     * </pre>
     */
    public java.util.Iterator<dev.leman.v1.ReadRowsResponse> readRows(
        dev.leman.v1.ReadRowsRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getReadRowsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Creates a table without rows. Leman's own metadata in the schema (`leman::…`) is dropped: it belongs to the table
     * that the schema was read from.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): a field is empty, the bytes are not
     *   an Arrow schema, it has no column, a repeated one, or an invalid name; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance does not store a column's type; do what the message says.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * </pre>
     */
    public dev.leman.v1.CreateTableResponse createTable(dev.leman.v1.CreateTableRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCreateTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Deletes rows. Their values stay in older versions of the table. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER): a field is empty, or the filter cannot be used; fix the field
     *   that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; delete them there.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DeleteRowsResponse deleteRows(dev.leman.v1.DeleteRowsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDeleteRowsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Sets new values in columns of rows, all of them or none, in one version of the table. The rows move to new
     * fragments, at the end of the table; their row ids stay, if they are stable. Computed columns that depend on a
     * changed column, directly or not, become NULL there, and the next backfill computes them. It also computes the other
     * computed columns of these rows, because the rows have moved. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER, INVALID_EXPRESSION, BAD_COLUMN, BAD_STREAM): a field is empty,
     *   the filter or an expression cannot be used, a column is named twice, or `values` are not an Arrow IPC stream of
     *   one row; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED, EXPRESSION_FAILED): the filter or an expression cannot be evaluated for a
     *   row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, TYPE_MISMATCH, NULL_VALUE): the values do not fit the table; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): an expression names a column that the table does not have; correct
     *   it.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; change its inputs.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; update them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.UpdateRowsResponse updateRows(dev.leman.v1.UpdateRowsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getUpdateRowsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Removes a table with all its versions, computed values and checkpoints. The history of its jobs and registered
     * functions stay. With `force`, running jobs of the table fail, and views of it keep their rows and cannot be
     * refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `request_id` is empty; fill it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; use CommitService.DropView.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): views of this database read it, or jobs of it have not ended, as the facts
     *   `views` and `jobs` say; drop or end these first, or set `force`. Views of other databases are not checked.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * </pre>
     */
    public dev.leman.v1.DropTableResponse dropTable(dev.leman.v1.DropTableRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDropTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Renames a table in its database, atomically: it always has exactly one of the two names. Its versions, row ids and
     * computed values stay. References to the old name are not updated. Jobs stay in the history under the old name and
     * cannot be retried. Checkpoints of unfinished backfills are not used under the new name: their rows are computed
     * again. With `force`, running jobs fail, and views of the table keep their rows but cannot be refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): a field is empty; fill it.
     * * `FAILED_PRECONDITION` (RENAME_NOT_SUPPORTED): the database is in an object store, which can only copy; create a
     *   table of the new name and append the rows of this one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; create another one.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): as for DropTable.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of the new name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.RenameTableResponse renameTable(dev.leman.v1.RenameTableRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getRenameTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Adds columns that no function computes: all NULL, without writing data; all of them or none. CatalogService.AddColumns
     * adds computed ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): as for CreateTable; also a column that
     *   may not be NULL.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support a column's type; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): the table has a column of that name; use another one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.AddPlainColumnsResponse addPlainColumns(dev.leman.v1.AddPlainColumnsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAddPlainColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Drops columns, computed ones too: all of them or none. Their values stay in older versions of the table. With
     * `force`, computed columns that read a dropped column keep their values but cannot be computed any more, views that
     * read one cannot be refreshed any more, and jobs that compute one fail.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_COLUMN): no column, or a repeated one; correct the field that BadRequest
     *   names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `FAILED_PRECONDITION` (LAST_COLUMN): no column would be left; drop the table.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DropColumnsResponse dropColumns(dev.leman.v1.DropColumnsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDropColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Changes names, types, or nullability of columns: all of them or none. A renamed column stays an input of the
     * computed columns that read it, and keeps its checkpoints, but a view that reads it no longer finds it. To change a
     * type, all values of the column are rewritten, while other commits of the table wait. The type of a computed column
     * cannot be changed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): no column, a repeated one or one
     *   without a change, or an invalid name or type; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_EXISTS): the table has no such column, or has one of the new
     *   name.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support the type; do what the message
     *   says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): the type of a computed column is that of its function; add another
     *   column.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.AlterPlainColumnsResponse alterPlainColumns(dev.leman.v1.AlterPlainColumnsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAlterPlainColumnsMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service TableService.
   * <pre>
   * Tables and their rows, for callers without Lance. Served by the commit coordinator.
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
   * * `INVALID_ARGUMENT` (BAD_DATABASE, RESERVED_DATABASE, BAD_TABLE_NAME, RESERVED_NAME): the database path or the
   *   table name is not valid, or Leman's own; correct the field that BadRequest names.
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
  public static final class TableServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<TableServiceFutureStub> {
    private TableServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected TableServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new TableServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Creates a table without rows. Leman's own metadata in the schema (`leman::…`) is dropped: it belongs to the table
     * that the schema was read from.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): a field is empty, the bytes are not
     *   an Arrow schema, it has no column, a repeated one, or an invalid name; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): Lance does not store a column's type; do what the message says.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.CreateTableResponse> createTable(
        dev.leman.v1.CreateTableRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCreateTableMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Deletes rows. Their values stay in older versions of the table. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER): a field is empty, or the filter cannot be used; fix the field
     *   that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; delete them there.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.DeleteRowsResponse> deleteRows(
        dev.leman.v1.DeleteRowsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDeleteRowsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Sets new values in columns of rows, all of them or none, in one version of the table. The rows move to new
     * fragments, at the end of the table; their row ids stay, if they are stable. Computed columns that depend on a
     * changed column, directly or not, become NULL there, and the next backfill computes them. It also computes the other
     * computed columns of these rows, because the rows have moved. Other commits of the table wait meanwhile.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, INVALID_FILTER, INVALID_EXPRESSION, BAD_COLUMN, BAD_STREAM): a field is empty,
     *   the filter or an expression cannot be used, a column is named twice, or `values` are not an Arrow IPC stream of
     *   one row; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (FILTER_FAILED, EXPRESSION_FAILED): the filter or an expression cannot be evaluated for a
     *   row; make it valid for all of them.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, TYPE_MISMATCH, NULL_VALUE): the values do not fit the table; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING): an expression names a column that the table does not have; correct
     *   it.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): a function computes the column; change its inputs.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): rows of a view come from its source; update them there.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is of Lance's first file format; rewrite it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.UpdateRowsResponse> updateRows(
        dev.leman.v1.UpdateRowsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getUpdateRowsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Removes a table with all its versions, computed values and checkpoints. The history of its jobs and registered
     * functions stay. With `force`, running jobs of the table fail, and views of it keep their rows and cannot be
     * refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `request_id` is empty; fill it.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; use CommitService.DropView.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): views of this database read it, or jobs of it have not ended, as the facts
     *   `views` and `jobs` say; drop or end these first, or set `force`. Views of other databases are not checked.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `UNAVAILABLE` (DRAINING): the commit coordinator is stopping; retry the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.DropTableResponse> dropTable(
        dev.leman.v1.DropTableRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDropTableMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Renames a table in its database, atomically: it always has exactly one of the two names. Its versions, row ids and
     * computed values stay. References to the old name are not updated. Jobs stay in the history under the old name and
     * cannot be retried. Checkpoints of unfinished backfills are not used under the new name: their rows are computed
     * again. With `force`, running jobs fail, and views of the table keep their rows but cannot be refreshed any more.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): a field is empty; fill it.
     * * `FAILED_PRECONDITION` (RENAME_NOT_SUPPORTED): the database is in an object store, which can only copy; create a
     *   table of the new name and append the rows of this one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; create another one.
     * * `FAILED_PRECONDITION` (TABLE_IN_USE): as for DropTable.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of the new name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.RenameTableResponse> renameTable(
        dev.leman.v1.RenameTableRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getRenameTableMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Adds columns that no function computes: all NULL, without writing data; all of them or none. CatalogService.AddColumns
     * adds computed ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): as for CreateTable; also a column that
     *   may not be NULL.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support a column's type; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): the table has a column of that name; use another one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.AddPlainColumnsResponse> addPlainColumns(
        dev.leman.v1.AddPlainColumnsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAddPlainColumnsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Drops columns, computed ones too: all of them or none. Their values stay in older versions of the table. With
     * `force`, computed columns that read a dropped column keep their values but cannot be computed any more, views that
     * read one cannot be refreshed any more, and jobs that compute one fail.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_COLUMN): no column, or a repeated one; correct the field that BadRequest
     *   names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND): the table has no such column; name one that it has.
     * * `FAILED_PRECONDITION` (LAST_COLUMN): no column would be left; drop the table.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.DropColumnsResponse> dropColumns(
        dev.leman.v1.DropColumnsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDropColumnsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Changes names, types, or nullability of columns: all of them or none. A renamed column stays an input of the
     * computed columns that read it, and keeps its checkpoints, but a view that reads it no longer finds it. To change a
     * type, all values of the column are rewritten, while other commits of the table wait. The type of a computed column
     * cannot be changed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_SCHEMA, BAD_COLUMN, BAD_COLUMN_NAME): no column, a repeated one or one
     *   without a change, or an invalid name or type; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_FOUND, COLUMN_EXISTS): the table has no such column, or has one of the new
     *   name.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table's file format does not support the type; do what the message
     *   says.
     * * `FAILED_PRECONDITION` (COLUMN_IS_COMPUTED): the type of a computed column is that of its function; add another
     *   column.
     * * `FAILED_PRECONDITION` (COLUMN_IN_USE): computed columns or jobs of the table, or views of this database, read or
     *   compute a column, as the facts `columns`, `jobs` and `views` say; change these first, or set `force`.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (CONFLICT): other writers committed at the same time at every try; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.AlterPlainColumnsResponse> alterPlainColumns(
        dev.leman.v1.AlterPlainColumnsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAlterPlainColumnsMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_READ_ROWS = 0;
  private static final int METHODID_CREATE_TABLE = 1;
  private static final int METHODID_DELETE_ROWS = 2;
  private static final int METHODID_UPDATE_ROWS = 3;
  private static final int METHODID_DROP_TABLE = 4;
  private static final int METHODID_RENAME_TABLE = 5;
  private static final int METHODID_ADD_PLAIN_COLUMNS = 6;
  private static final int METHODID_DROP_COLUMNS = 7;
  private static final int METHODID_ALTER_PLAIN_COLUMNS = 8;
  private static final int METHODID_APPEND_ROWS = 9;
  private static final int METHODID_MERGE_ROWS = 10;

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
        case METHODID_READ_ROWS:
          serviceImpl.readRows((dev.leman.v1.ReadRowsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ReadRowsResponse>) responseObserver);
          break;
        case METHODID_CREATE_TABLE:
          serviceImpl.createTable((dev.leman.v1.CreateTableRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.CreateTableResponse>) responseObserver);
          break;
        case METHODID_DELETE_ROWS:
          serviceImpl.deleteRows((dev.leman.v1.DeleteRowsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.DeleteRowsResponse>) responseObserver);
          break;
        case METHODID_UPDATE_ROWS:
          serviceImpl.updateRows((dev.leman.v1.UpdateRowsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.UpdateRowsResponse>) responseObserver);
          break;
        case METHODID_DROP_TABLE:
          serviceImpl.dropTable((dev.leman.v1.DropTableRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.DropTableResponse>) responseObserver);
          break;
        case METHODID_RENAME_TABLE:
          serviceImpl.renameTable((dev.leman.v1.RenameTableRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.RenameTableResponse>) responseObserver);
          break;
        case METHODID_ADD_PLAIN_COLUMNS:
          serviceImpl.addPlainColumns((dev.leman.v1.AddPlainColumnsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.AddPlainColumnsResponse>) responseObserver);
          break;
        case METHODID_DROP_COLUMNS:
          serviceImpl.dropColumns((dev.leman.v1.DropColumnsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.DropColumnsResponse>) responseObserver);
          break;
        case METHODID_ALTER_PLAIN_COLUMNS:
          serviceImpl.alterPlainColumns((dev.leman.v1.AlterPlainColumnsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.AlterPlainColumnsResponse>) responseObserver);
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
        case METHODID_APPEND_ROWS:
          return (io.grpc.stub.StreamObserver<Req>) serviceImpl.appendRows(
              (io.grpc.stub.StreamObserver<dev.leman.v1.AppendRowsResponse>) responseObserver);
        case METHODID_MERGE_ROWS:
          return (io.grpc.stub.StreamObserver<Req>) serviceImpl.mergeRows(
              (io.grpc.stub.StreamObserver<dev.leman.v1.MergeRowsResponse>) responseObserver);
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getReadRowsMethod(),
          io.grpc.stub.ServerCalls.asyncServerStreamingCall(
            new MethodHandlers<
              dev.leman.v1.ReadRowsRequest,
              dev.leman.v1.ReadRowsResponse>(
                service, METHODID_READ_ROWS)))
        .addMethod(
          getCreateTableMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.CreateTableRequest,
              dev.leman.v1.CreateTableResponse>(
                service, METHODID_CREATE_TABLE)))
        .addMethod(
          getAppendRowsMethod(),
          io.grpc.stub.ServerCalls.asyncClientStreamingCall(
            new MethodHandlers<
              dev.leman.v1.AppendRowsRequest,
              dev.leman.v1.AppendRowsResponse>(
                service, METHODID_APPEND_ROWS)))
        .addMethod(
          getDeleteRowsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.DeleteRowsRequest,
              dev.leman.v1.DeleteRowsResponse>(
                service, METHODID_DELETE_ROWS)))
        .addMethod(
          getUpdateRowsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.UpdateRowsRequest,
              dev.leman.v1.UpdateRowsResponse>(
                service, METHODID_UPDATE_ROWS)))
        .addMethod(
          getMergeRowsMethod(),
          io.grpc.stub.ServerCalls.asyncClientStreamingCall(
            new MethodHandlers<
              dev.leman.v1.MergeRowsRequest,
              dev.leman.v1.MergeRowsResponse>(
                service, METHODID_MERGE_ROWS)))
        .addMethod(
          getDropTableMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.DropTableRequest,
              dev.leman.v1.DropTableResponse>(
                service, METHODID_DROP_TABLE)))
        .addMethod(
          getRenameTableMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.RenameTableRequest,
              dev.leman.v1.RenameTableResponse>(
                service, METHODID_RENAME_TABLE)))
        .addMethod(
          getAddPlainColumnsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.AddPlainColumnsRequest,
              dev.leman.v1.AddPlainColumnsResponse>(
                service, METHODID_ADD_PLAIN_COLUMNS)))
        .addMethod(
          getDropColumnsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.DropColumnsRequest,
              dev.leman.v1.DropColumnsResponse>(
                service, METHODID_DROP_COLUMNS)))
        .addMethod(
          getAlterPlainColumnsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.AlterPlainColumnsRequest,
              dev.leman.v1.AlterPlainColumnsResponse>(
                service, METHODID_ALTER_PLAIN_COLUMNS)))
        .build();
  }

  private static abstract class TableServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    TableServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.TablesProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("TableService");
    }
  }

  private static final class TableServiceFileDescriptorSupplier
      extends TableServiceBaseDescriptorSupplier {
    TableServiceFileDescriptorSupplier() {}
  }

  private static final class TableServiceMethodDescriptorSupplier
      extends TableServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    TableServiceMethodDescriptorSupplier(java.lang.String methodName) {
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
      synchronized (TableServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new TableServiceFileDescriptorSupplier())
              .addMethod(getReadRowsMethod())
              .addMethod(getCreateTableMethod())
              .addMethod(getAppendRowsMethod())
              .addMethod(getDeleteRowsMethod())
              .addMethod(getUpdateRowsMethod())
              .addMethod(getMergeRowsMethod())
              .addMethod(getDropTableMethod())
              .addMethod(getRenameTableMethod())
              .addMethod(getAddPlainColumnsMethod())
              .addMethod(getDropColumnsMethod())
              .addMethod(getAlterPlainColumnsMethod())
              .build();
        }
      }
    }
    return result;
  }
}
