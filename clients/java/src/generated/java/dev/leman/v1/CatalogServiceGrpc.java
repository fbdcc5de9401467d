package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
public final class CatalogServiceGrpc {

  private CatalogServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.CatalogService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.RegisterUdfRequest,
      dev.leman.v1.RegisterUdfResponse> getRegisterUdfMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "RegisterUdf",
      requestType = dev.leman.v1.RegisterUdfRequest.class,
      responseType = dev.leman.v1.RegisterUdfResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.RegisterUdfRequest,
      dev.leman.v1.RegisterUdfResponse> getRegisterUdfMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.RegisterUdfRequest, dev.leman.v1.RegisterUdfResponse> getRegisterUdfMethod;
    if ((getRegisterUdfMethod = CatalogServiceGrpc.getRegisterUdfMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getRegisterUdfMethod = CatalogServiceGrpc.getRegisterUdfMethod) == null) {
          CatalogServiceGrpc.getRegisterUdfMethod = getRegisterUdfMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.RegisterUdfRequest, dev.leman.v1.RegisterUdfResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "RegisterUdf"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RegisterUdfRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RegisterUdfResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("RegisterUdf"))
              .build();
        }
      }
    }
    return getRegisterUdfMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.UploadBundleRequest,
      dev.leman.v1.UploadBundleResponse> getUploadBundleMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "UploadBundle",
      requestType = dev.leman.v1.UploadBundleRequest.class,
      responseType = dev.leman.v1.UploadBundleResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.CLIENT_STREAMING)
  public static io.grpc.MethodDescriptor<dev.leman.v1.UploadBundleRequest,
      dev.leman.v1.UploadBundleResponse> getUploadBundleMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.UploadBundleRequest, dev.leman.v1.UploadBundleResponse> getUploadBundleMethod;
    if ((getUploadBundleMethod = CatalogServiceGrpc.getUploadBundleMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getUploadBundleMethod = CatalogServiceGrpc.getUploadBundleMethod) == null) {
          CatalogServiceGrpc.getUploadBundleMethod = getUploadBundleMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.UploadBundleRequest, dev.leman.v1.UploadBundleResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.CLIENT_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "UploadBundle"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UploadBundleRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UploadBundleResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("UploadBundle"))
              .build();
        }
      }
    }
    return getUploadBundleMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetUdfRequest,
      dev.leman.v1.GetUdfResponse> getGetUdfMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetUdf",
      requestType = dev.leman.v1.GetUdfRequest.class,
      responseType = dev.leman.v1.GetUdfResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetUdfRequest,
      dev.leman.v1.GetUdfResponse> getGetUdfMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetUdfRequest, dev.leman.v1.GetUdfResponse> getGetUdfMethod;
    if ((getGetUdfMethod = CatalogServiceGrpc.getGetUdfMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getGetUdfMethod = CatalogServiceGrpc.getGetUdfMethod) == null) {
          CatalogServiceGrpc.getGetUdfMethod = getGetUdfMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetUdfRequest, dev.leman.v1.GetUdfResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetUdf"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetUdfRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetUdfResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("GetUdf"))
              .build();
        }
      }
    }
    return getGetUdfMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListUdfsRequest,
      dev.leman.v1.ListUdfsResponse> getListUdfsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListUdfs",
      requestType = dev.leman.v1.ListUdfsRequest.class,
      responseType = dev.leman.v1.ListUdfsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListUdfsRequest,
      dev.leman.v1.ListUdfsResponse> getListUdfsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListUdfsRequest, dev.leman.v1.ListUdfsResponse> getListUdfsMethod;
    if ((getListUdfsMethod = CatalogServiceGrpc.getListUdfsMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getListUdfsMethod = CatalogServiceGrpc.getListUdfsMethod) == null) {
          CatalogServiceGrpc.getListUdfsMethod = getListUdfsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListUdfsRequest, dev.leman.v1.ListUdfsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListUdfs"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListUdfsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListUdfsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("ListUdfs"))
              .build();
        }
      }
    }
    return getListUdfsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.AddColumnsRequest,
      dev.leman.v1.AddColumnsResponse> getAddColumnsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AddColumns",
      requestType = dev.leman.v1.AddColumnsRequest.class,
      responseType = dev.leman.v1.AddColumnsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.AddColumnsRequest,
      dev.leman.v1.AddColumnsResponse> getAddColumnsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.AddColumnsRequest, dev.leman.v1.AddColumnsResponse> getAddColumnsMethod;
    if ((getAddColumnsMethod = CatalogServiceGrpc.getAddColumnsMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getAddColumnsMethod = CatalogServiceGrpc.getAddColumnsMethod) == null) {
          CatalogServiceGrpc.getAddColumnsMethod = getAddColumnsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.AddColumnsRequest, dev.leman.v1.AddColumnsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AddColumns"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AddColumnsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AddColumnsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("AddColumns"))
              .build();
        }
      }
    }
    return getAddColumnsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.AlterColumnsRequest,
      dev.leman.v1.AlterColumnsResponse> getAlterColumnsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AlterColumns",
      requestType = dev.leman.v1.AlterColumnsRequest.class,
      responseType = dev.leman.v1.AlterColumnsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.AlterColumnsRequest,
      dev.leman.v1.AlterColumnsResponse> getAlterColumnsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.AlterColumnsRequest, dev.leman.v1.AlterColumnsResponse> getAlterColumnsMethod;
    if ((getAlterColumnsMethod = CatalogServiceGrpc.getAlterColumnsMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getAlterColumnsMethod = CatalogServiceGrpc.getAlterColumnsMethod) == null) {
          CatalogServiceGrpc.getAlterColumnsMethod = getAlterColumnsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.AlterColumnsRequest, dev.leman.v1.AlterColumnsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AlterColumns"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AlterColumnsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AlterColumnsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("AlterColumns"))
              .build();
        }
      }
    }
    return getAlterColumnsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.DescribeTableRequest,
      dev.leman.v1.DescribeTableResponse> getDescribeTableMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DescribeTable",
      requestType = dev.leman.v1.DescribeTableRequest.class,
      responseType = dev.leman.v1.DescribeTableResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.DescribeTableRequest,
      dev.leman.v1.DescribeTableResponse> getDescribeTableMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.DescribeTableRequest, dev.leman.v1.DescribeTableResponse> getDescribeTableMethod;
    if ((getDescribeTableMethod = CatalogServiceGrpc.getDescribeTableMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getDescribeTableMethod = CatalogServiceGrpc.getDescribeTableMethod) == null) {
          CatalogServiceGrpc.getDescribeTableMethod = getDescribeTableMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.DescribeTableRequest, dev.leman.v1.DescribeTableResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DescribeTable"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DescribeTableRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DescribeTableResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("DescribeTable"))
              .build();
        }
      }
    }
    return getDescribeTableMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListTablesRequest,
      dev.leman.v1.ListTablesResponse> getListTablesMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListTables",
      requestType = dev.leman.v1.ListTablesRequest.class,
      responseType = dev.leman.v1.ListTablesResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListTablesRequest,
      dev.leman.v1.ListTablesResponse> getListTablesMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListTablesRequest, dev.leman.v1.ListTablesResponse> getListTablesMethod;
    if ((getListTablesMethod = CatalogServiceGrpc.getListTablesMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getListTablesMethod = CatalogServiceGrpc.getListTablesMethod) == null) {
          CatalogServiceGrpc.getListTablesMethod = getListTablesMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListTablesRequest, dev.leman.v1.ListTablesResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListTables"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListTablesRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListTablesResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("ListTables"))
              .build();
        }
      }
    }
    return getListTablesMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.CreateMaterializedViewRequest,
      dev.leman.v1.CreateMaterializedViewResponse> getCreateMaterializedViewMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CreateMaterializedView",
      requestType = dev.leman.v1.CreateMaterializedViewRequest.class,
      responseType = dev.leman.v1.CreateMaterializedViewResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.CreateMaterializedViewRequest,
      dev.leman.v1.CreateMaterializedViewResponse> getCreateMaterializedViewMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.CreateMaterializedViewRequest, dev.leman.v1.CreateMaterializedViewResponse> getCreateMaterializedViewMethod;
    if ((getCreateMaterializedViewMethod = CatalogServiceGrpc.getCreateMaterializedViewMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getCreateMaterializedViewMethod = CatalogServiceGrpc.getCreateMaterializedViewMethod) == null) {
          CatalogServiceGrpc.getCreateMaterializedViewMethod = getCreateMaterializedViewMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.CreateMaterializedViewRequest, dev.leman.v1.CreateMaterializedViewResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CreateMaterializedView"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CreateMaterializedViewRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CreateMaterializedViewResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("CreateMaterializedView"))
              .build();
        }
      }
    }
    return getCreateMaterializedViewMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetMaterializedViewRequest,
      dev.leman.v1.GetMaterializedViewResponse> getGetMaterializedViewMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetMaterializedView",
      requestType = dev.leman.v1.GetMaterializedViewRequest.class,
      responseType = dev.leman.v1.GetMaterializedViewResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetMaterializedViewRequest,
      dev.leman.v1.GetMaterializedViewResponse> getGetMaterializedViewMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetMaterializedViewRequest, dev.leman.v1.GetMaterializedViewResponse> getGetMaterializedViewMethod;
    if ((getGetMaterializedViewMethod = CatalogServiceGrpc.getGetMaterializedViewMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getGetMaterializedViewMethod = CatalogServiceGrpc.getGetMaterializedViewMethod) == null) {
          CatalogServiceGrpc.getGetMaterializedViewMethod = getGetMaterializedViewMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetMaterializedViewRequest, dev.leman.v1.GetMaterializedViewResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetMaterializedView"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetMaterializedViewRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetMaterializedViewResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("GetMaterializedView"))
              .build();
        }
      }
    }
    return getGetMaterializedViewMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListMaterializedViewsRequest,
      dev.leman.v1.ListMaterializedViewsResponse> getListMaterializedViewsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListMaterializedViews",
      requestType = dev.leman.v1.ListMaterializedViewsRequest.class,
      responseType = dev.leman.v1.ListMaterializedViewsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListMaterializedViewsRequest,
      dev.leman.v1.ListMaterializedViewsResponse> getListMaterializedViewsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListMaterializedViewsRequest, dev.leman.v1.ListMaterializedViewsResponse> getListMaterializedViewsMethod;
    if ((getListMaterializedViewsMethod = CatalogServiceGrpc.getListMaterializedViewsMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getListMaterializedViewsMethod = CatalogServiceGrpc.getListMaterializedViewsMethod) == null) {
          CatalogServiceGrpc.getListMaterializedViewsMethod = getListMaterializedViewsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListMaterializedViewsRequest, dev.leman.v1.ListMaterializedViewsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListMaterializedViews"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListMaterializedViewsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListMaterializedViewsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("ListMaterializedViews"))
              .build();
        }
      }
    }
    return getListMaterializedViewsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.AlterMaterializedViewRequest,
      dev.leman.v1.AlterMaterializedViewResponse> getAlterMaterializedViewMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "AlterMaterializedView",
      requestType = dev.leman.v1.AlterMaterializedViewRequest.class,
      responseType = dev.leman.v1.AlterMaterializedViewResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.AlterMaterializedViewRequest,
      dev.leman.v1.AlterMaterializedViewResponse> getAlterMaterializedViewMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.AlterMaterializedViewRequest, dev.leman.v1.AlterMaterializedViewResponse> getAlterMaterializedViewMethod;
    if ((getAlterMaterializedViewMethod = CatalogServiceGrpc.getAlterMaterializedViewMethod) == null) {
      synchronized (CatalogServiceGrpc.class) {
        if ((getAlterMaterializedViewMethod = CatalogServiceGrpc.getAlterMaterializedViewMethod) == null) {
          CatalogServiceGrpc.getAlterMaterializedViewMethod = getAlterMaterializedViewMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.AlterMaterializedViewRequest, dev.leman.v1.AlterMaterializedViewResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "AlterMaterializedView"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AlterMaterializedViewRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.AlterMaterializedViewResponse.getDefaultInstance()))
              .setSchemaDescriptor(new CatalogServiceMethodDescriptorSupplier("AlterMaterializedView"))
              .build();
        }
      }
    }
    return getAlterMaterializedViewMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static CatalogServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CatalogServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CatalogServiceStub>() {
        @java.lang.Override
        public CatalogServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CatalogServiceStub(channel, callOptions);
        }
      };
    return CatalogServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static CatalogServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CatalogServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CatalogServiceBlockingV2Stub>() {
        @java.lang.Override
        public CatalogServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CatalogServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return CatalogServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static CatalogServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CatalogServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CatalogServiceBlockingStub>() {
        @java.lang.Override
        public CatalogServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CatalogServiceBlockingStub(channel, callOptions);
        }
      };
    return CatalogServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static CatalogServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<CatalogServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<CatalogServiceFutureStub>() {
        @java.lang.Override
        public CatalogServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new CatalogServiceFutureStub(channel, callOptions);
        }
      };
    return CatalogServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
     * Stores a function under its name and version. A call with the same definition succeeds again. Its options
     * (`batch_size`, `checkpoint`, `error_policy`, `call_timeout`, `resources`) may be changed under the same version:
     * they change how it runs, not what it computes. A bundle replaces one that workers cannot load (see
     * GetUdfResponse.needs_bundle), and a definition replaces a damaged one.
     * For a remote function, the planner requests descriptions from its servers. At least one server must answer, and all
     * that answer must describe the same function. Parts that the definition omits (`version`, `input_columns`, the
     * schemas) are filled from the description, and parts that it has must be equal to it. You can change the addresses
     * under the same version.
     * Errors:
     * * `ALREADY_EXISTS` (UDF_EXISTS): another definition has this name and version; register under another version.
     * * `INVALID_ARGUMENT` (BAD_UDF, BAD_SCHEMA, UNKNOWN_VALUE): the definition contradicts itself, or this release does
     *   not know a part of it; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `FAILED_PRECONDITION` (UDF_BUNDLE_MISSING): the bundle was omitted and is not stored, or is damaged; send it.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bundle's bytes do not have the stated digest and size; send
     *   those that do.
     * * `FAILED_PRECONDITION` (UDF_PYTHON_MISMATCH): workers run another Python than the bundle's; make it with theirs.
     *   Nothing is stored.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): the bundle has more bytes than the services take; load large data when the
     *   function is built, instead of pickling it.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind, or at
     *   this address; use another one.
     * * `UNAVAILABLE` (FUNCTION_UNAVAILABLE): no server of the remote function can be reached; start one, then retry the
     *   call.
     * * `NOT_FOUND` (FUNCTION_NOT_FOUND): its server has no function of that name; name one that the message lists.
     * * `FAILED_PRECONDITION` (FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH): its servers contradict the
     *   definition, or each other; correct the definition, or omit what they describe.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_PROTOCOL): its server refuses the services' credentials,
     *   or is not a function server; do what the message says.
     * * `FAILED_PRECONDITION` (FUNCTION_TLS_FAILED): its server's certificate does not verify, or only one side uses TLS,
     *   and no other server answers; do what the message says.
     * </pre>
     */
    default void registerUdf(dev.leman.v1.RegisterUdfRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RegisterUdfResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getRegisterUdfMethod(), responseObserver);
    }

    /**
     * <pre>
     * Stores a bundle, so that RegisterUdf can omit it. The first message is a header; the others have the bytes, in
     * pieces that fit into a message, such as 1 MiB. The bundle is stored only after all bytes have arrived and match the
     * size and digest in the header. If it is stored already, the call returns at once, without waiting for the rest of
     * the stream. A bundle that no function uses is not removed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER, BAD_UDF): the first message is not a header, or has no database,
     *   no size or no sha256; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_STREAM): there is a second header; send one.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for RegisterUdf.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bytes do not have the stated digest and size; send those that
     *   do.
     * * `ABORTED` (UPLOAD_STALLED): nothing was sent for a while; send the bundle again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow pickled functions; use an
     *   entrypoint or SQL.
     * </pre>
     */
    default io.grpc.stub.StreamObserver<dev.leman.v1.UploadBundleRequest> uploadBundle(
        io.grpc.stub.StreamObserver<dev.leman.v1.UploadBundleResponse> responseObserver) {
      return io.grpc.stub.ServerCalls.asyncUnimplementedStreamingCall(getUploadBundleMethod(), responseObserver);
    }

    /**
     * <pre>
     * One function. Without a version: the one registered last. Stored definitions have a digest. A definition that was
     * modified in the store is refused, here and in every other call.
     * Errors:
     * * `NOT_FOUND` (UDF_NOT_FOUND): no such function is registered; register it.
     * * `INVALID_ARGUMENT` (BAD_UDF): an invalid name or version; correct it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored definition is damaged; register it again to repair it.
     * </pre>
     */
    default void getUdf(dev.leman.v1.GetUdfRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetUdfResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetUdfMethod(), responseObserver);
    }

    /**
     * <pre>
     * All functions of a database, by name, then newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored definition is damaged; register that function again to repair it.
     * </pre>
     */
    default void listUdfs(dev.leman.v1.ListUdfsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListUdfsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListUdfsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Adds computed columns, which are NULL at first and need no data file. Validates everything first, and then adds all
     * of them or none. A column may read another column of the same request.
     * With `on_change`, the request declares what the columns should be, and can be repeated: existing computed columns
     * with the same definition stay unchanged. Columns with a different definition (another function or version, other
     * inputs, another expression) are changed in a separate version of the table, after the new columns were added. If
     * this second step fails, repeat the call to complete it. Options of a function, such as its error policy, are not
     * part of the definition.
     * Errors:
     * * `FAILED_PRECONDITION` (COLUMN_CHANGED): with ON_CHANGE_ERROR, columns exist with another definition, and nothing
     *   was done; the message says which, what changed, and how many rows would be stale. Repeat the call with
     *   ON_CHANGE_UPDATE or ON_CHANGE_KEEP, or use another name.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_COLUMN_NAME, BAD_COLUMN, RESERVED_NAME): no column, a repeated one, one with
     *   both a function and an expression, or an invalid name; correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (COLUMN_EXISTS): the table has a column of that name; use another name, or set `on_change` where
     *   it is a computed one.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): with ON_CHANGE_KEEP, as for AlterColumns.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a value of `on_change` that this release does not know; set one that it does.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): a column of that name was added meanwhile; describe the table again.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   table cannot hold the output's; change the function.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    default void addColumns(dev.leman.v1.AddColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AddColumnsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAddColumnsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Gives computed columns other functions: all of them or none. Values and column ids stay; the columns are stale
     * (REASON_UDF_CHANGED) until the next backfill.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST): no column, a repeated one, or one with both a function and an expression;
     *   correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; AlterMaterializedView gives its columns other functions.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; AddColumns adds one.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; add a new column instead.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): values cannot be kept, as the inputs differ or the
     *   column keeps too many versions; omit `keep_values`.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (BINDING_DAMAGED, VIEW_DAMAGED): the metadata of the column or the table is damaged; restore the
     *   previous version of the table; without one, drop the column or the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table cannot hold the function's output; change the function.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    default void alterColumns(dev.leman.v1.AlterColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AlterColumnsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAlterColumnsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Schema, version, rows and computed columns of one table.
     * Errors:
     * * `DATA_LOSS` (BINDING_DAMAGED): a column's metadata is damaged; restore the previous version of the table; without
     *   one, drop the column and add it again.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): names like this one are Leman's own; name another table.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void describeTable(dev.leman.v1.DescribeTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DescribeTableResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDescribeTableMethod(), responseObserver);
    }

    /**
     * <pre>
     * The tables of a database, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    default void listTables(dev.leman.v1.ListTablesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListTablesResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListTablesMethod(), responseObserver);
    }

    /**
     * <pre>
     * Creates a view in one visible step: a placeholder for each matching row of the source, without values, and without
     * calling a function. Validates everything first.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, INVALID_EXPRESSION, VOLATILE_FUNCTION): SQL that is not allowed in a view;
     *   correct the expression that the message names.
     * * `INVALID_ARGUMENT` (NAME_CLASH, RESERVED_NAME, BAD_COLUMN_NAME, BAD_TABLE_NAME, BAD_NUMBER): an invalid name or
     *   number; correct the field that BadRequest names.
     * * `NOT_FOUND` (TABLE_NOT_FOUND, UDF_NOT_FOUND): the source is not there, or a function is not registered in the
     *   view's database; create or register it.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (SOURCE_CHANGED): files of the source were removed while they were read; retry the call.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, COLUMN_NOT_FOUND): the source has no such
     *   column; fix the query.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   view cannot hold a column's; change the function or the query.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED, FILTER_FAILED): valid SQL fails on a value; correct it, or exclude such
     *   rows.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the source is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the source is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void createMaterializedView(dev.leman.v1.CreateMaterializedViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CreateMaterializedViewResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCreateMaterializedViewMethod(), responseObserver);
    }

    /**
     * <pre>
     * A view: its query, source, recorded source version and counts.
     * Errors:
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; use DescribeTable.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    default void getMaterializedView(dev.leman.v1.GetMaterializedViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetMaterializedViewResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetMaterializedViewMethod(), responseObserver);
    }

    /**
     * <pre>
     * The views of a database, by name. A database does not record which of its tables are views, so a call checks at
     * most 256 tables, one after the other. A page may therefore have fewer views than requested, or none, although more
     * follow. Only an empty `next_page_token` marks the end.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    default void listMaterializedViews(dev.leman.v1.ListMaterializedViewsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListMaterializedViewsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListMaterializedViewsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Gives function columns of a view other functions or other inputs: all named ones, or none. The view keeps its
     * values, rows and source version. A changed column is stale (MaterializedView.stale_columns) until the next refresh,
     * which computes this column for every row, and no other columns. A column that gets back the function version that
     * computed its values is no longer stale. In a view without values nothing is stale: its first fill uses the new
     * functions.
     * Nothing else in a view's query can be altered: for another filter, limit, order or SQL expression, create another
     * view. How failed rows are treated is an option of the function (RegisterUdf); the number of rows in a fragment is
     * an option of each refresh.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `functions`.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_UDF): no column, a repeated one, a SQL function, or an invalid function
     *   name; correct the request.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; AlterColumns is for tables.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): no function of the view's query computes the column; name one that is
     *   computed.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH): the source has no such columns; name others
     *   in `input_columns`.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): an input is a column that Leman keeps for itself; name another one.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (VIEW_CHANGED, CONFLICT, TABLE_REPLACED): the view was changed meanwhile; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the view; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the view or its source is not there; check the name, or restore the source.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    default void alterMaterializedView(dev.leman.v1.AlterMaterializedViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AlterMaterializedViewResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getAlterMaterializedViewMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service CatalogService.
   * <pre>
   * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
  public static abstract class CatalogServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return CatalogServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service CatalogService.
   * <pre>
   * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
  public static final class CatalogServiceStub
      extends io.grpc.stub.AbstractAsyncStub<CatalogServiceStub> {
    private CatalogServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CatalogServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CatalogServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores a function under its name and version. A call with the same definition succeeds again. Its options
     * (`batch_size`, `checkpoint`, `error_policy`, `call_timeout`, `resources`) may be changed under the same version:
     * they change how it runs, not what it computes. A bundle replaces one that workers cannot load (see
     * GetUdfResponse.needs_bundle), and a definition replaces a damaged one.
     * For a remote function, the planner requests descriptions from its servers. At least one server must answer, and all
     * that answer must describe the same function. Parts that the definition omits (`version`, `input_columns`, the
     * schemas) are filled from the description, and parts that it has must be equal to it. You can change the addresses
     * under the same version.
     * Errors:
     * * `ALREADY_EXISTS` (UDF_EXISTS): another definition has this name and version; register under another version.
     * * `INVALID_ARGUMENT` (BAD_UDF, BAD_SCHEMA, UNKNOWN_VALUE): the definition contradicts itself, or this release does
     *   not know a part of it; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `FAILED_PRECONDITION` (UDF_BUNDLE_MISSING): the bundle was omitted and is not stored, or is damaged; send it.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bundle's bytes do not have the stated digest and size; send
     *   those that do.
     * * `FAILED_PRECONDITION` (UDF_PYTHON_MISMATCH): workers run another Python than the bundle's; make it with theirs.
     *   Nothing is stored.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): the bundle has more bytes than the services take; load large data when the
     *   function is built, instead of pickling it.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind, or at
     *   this address; use another one.
     * * `UNAVAILABLE` (FUNCTION_UNAVAILABLE): no server of the remote function can be reached; start one, then retry the
     *   call.
     * * `NOT_FOUND` (FUNCTION_NOT_FOUND): its server has no function of that name; name one that the message lists.
     * * `FAILED_PRECONDITION` (FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH): its servers contradict the
     *   definition, or each other; correct the definition, or omit what they describe.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_PROTOCOL): its server refuses the services' credentials,
     *   or is not a function server; do what the message says.
     * * `FAILED_PRECONDITION` (FUNCTION_TLS_FAILED): its server's certificate does not verify, or only one side uses TLS,
     *   and no other server answers; do what the message says.
     * </pre>
     */
    public void registerUdf(dev.leman.v1.RegisterUdfRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RegisterUdfResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getRegisterUdfMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Stores a bundle, so that RegisterUdf can omit it. The first message is a header; the others have the bytes, in
     * pieces that fit into a message, such as 1 MiB. The bundle is stored only after all bytes have arrived and match the
     * size and digest in the header. If it is stored already, the call returns at once, without waiting for the rest of
     * the stream. A bundle that no function uses is not removed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER, BAD_UDF): the first message is not a header, or has no database,
     *   no size or no sha256; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_STREAM): there is a second header; send one.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for RegisterUdf.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bytes do not have the stated digest and size; send those that
     *   do.
     * * `ABORTED` (UPLOAD_STALLED): nothing was sent for a while; send the bundle again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow pickled functions; use an
     *   entrypoint or SQL.
     * </pre>
     */
    public io.grpc.stub.StreamObserver<dev.leman.v1.UploadBundleRequest> uploadBundle(
        io.grpc.stub.StreamObserver<dev.leman.v1.UploadBundleResponse> responseObserver) {
      return io.grpc.stub.ClientCalls.asyncClientStreamingCall(
          getChannel().newCall(getUploadBundleMethod(), getCallOptions()), responseObserver);
    }

    /**
     * <pre>
     * One function. Without a version: the one registered last. Stored definitions have a digest. A definition that was
     * modified in the store is refused, here and in every other call.
     * Errors:
     * * `NOT_FOUND` (UDF_NOT_FOUND): no such function is registered; register it.
     * * `INVALID_ARGUMENT` (BAD_UDF): an invalid name or version; correct it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored definition is damaged; register it again to repair it.
     * </pre>
     */
    public void getUdf(dev.leman.v1.GetUdfRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetUdfResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetUdfMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * All functions of a database, by name, then newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored definition is damaged; register that function again to repair it.
     * </pre>
     */
    public void listUdfs(dev.leman.v1.ListUdfsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListUdfsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListUdfsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Adds computed columns, which are NULL at first and need no data file. Validates everything first, and then adds all
     * of them or none. A column may read another column of the same request.
     * With `on_change`, the request declares what the columns should be, and can be repeated: existing computed columns
     * with the same definition stay unchanged. Columns with a different definition (another function or version, other
     * inputs, another expression) are changed in a separate version of the table, after the new columns were added. If
     * this second step fails, repeat the call to complete it. Options of a function, such as its error policy, are not
     * part of the definition.
     * Errors:
     * * `FAILED_PRECONDITION` (COLUMN_CHANGED): with ON_CHANGE_ERROR, columns exist with another definition, and nothing
     *   was done; the message says which, what changed, and how many rows would be stale. Repeat the call with
     *   ON_CHANGE_UPDATE or ON_CHANGE_KEEP, or use another name.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_COLUMN_NAME, BAD_COLUMN, RESERVED_NAME): no column, a repeated one, one with
     *   both a function and an expression, or an invalid name; correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (COLUMN_EXISTS): the table has a column of that name; use another name, or set `on_change` where
     *   it is a computed one.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): with ON_CHANGE_KEEP, as for AlterColumns.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a value of `on_change` that this release does not know; set one that it does.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): a column of that name was added meanwhile; describe the table again.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   table cannot hold the output's; change the function.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public void addColumns(dev.leman.v1.AddColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AddColumnsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAddColumnsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Gives computed columns other functions: all of them or none. Values and column ids stay; the columns are stale
     * (REASON_UDF_CHANGED) until the next backfill.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST): no column, a repeated one, or one with both a function and an expression;
     *   correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; AlterMaterializedView gives its columns other functions.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; AddColumns adds one.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; add a new column instead.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): values cannot be kept, as the inputs differ or the
     *   column keeps too many versions; omit `keep_values`.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (BINDING_DAMAGED, VIEW_DAMAGED): the metadata of the column or the table is damaged; restore the
     *   previous version of the table; without one, drop the column or the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table cannot hold the function's output; change the function.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public void alterColumns(dev.leman.v1.AlterColumnsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AlterColumnsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAlterColumnsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Schema, version, rows and computed columns of one table.
     * Errors:
     * * `DATA_LOSS` (BINDING_DAMAGED): a column's metadata is damaged; restore the previous version of the table; without
     *   one, drop the column and add it again.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): names like this one are Leman's own; name another table.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void describeTable(dev.leman.v1.DescribeTableRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DescribeTableResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDescribeTableMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * The tables of a database, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public void listTables(dev.leman.v1.ListTablesRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListTablesResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListTablesMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Creates a view in one visible step: a placeholder for each matching row of the source, without values, and without
     * calling a function. Validates everything first.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, INVALID_EXPRESSION, VOLATILE_FUNCTION): SQL that is not allowed in a view;
     *   correct the expression that the message names.
     * * `INVALID_ARGUMENT` (NAME_CLASH, RESERVED_NAME, BAD_COLUMN_NAME, BAD_TABLE_NAME, BAD_NUMBER): an invalid name or
     *   number; correct the field that BadRequest names.
     * * `NOT_FOUND` (TABLE_NOT_FOUND, UDF_NOT_FOUND): the source is not there, or a function is not registered in the
     *   view's database; create or register it.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (SOURCE_CHANGED): files of the source were removed while they were read; retry the call.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, COLUMN_NOT_FOUND): the source has no such
     *   column; fix the query.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   view cannot hold a column's; change the function or the query.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED, FILTER_FAILED): valid SQL fails on a value; correct it, or exclude such
     *   rows.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the source is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the source is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void createMaterializedView(dev.leman.v1.CreateMaterializedViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CreateMaterializedViewResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCreateMaterializedViewMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * A view: its query, source, recorded source version and counts.
     * Errors:
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; use DescribeTable.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public void getMaterializedView(dev.leman.v1.GetMaterializedViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetMaterializedViewResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetMaterializedViewMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * The views of a database, by name. A database does not record which of its tables are views, so a call checks at
     * most 256 tables, one after the other. A page may therefore have fewer views than requested, or none, although more
     * follow. Only an empty `next_page_token` marks the end.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public void listMaterializedViews(dev.leman.v1.ListMaterializedViewsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListMaterializedViewsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListMaterializedViewsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Gives function columns of a view other functions or other inputs: all named ones, or none. The view keeps its
     * values, rows and source version. A changed column is stale (MaterializedView.stale_columns) until the next refresh,
     * which computes this column for every row, and no other columns. A column that gets back the function version that
     * computed its values is no longer stale. In a view without values nothing is stale: its first fill uses the new
     * functions.
     * Nothing else in a view's query can be altered: for another filter, limit, order or SQL expression, create another
     * view. How failed rows are treated is an option of the function (RegisterUdf); the number of rows in a fragment is
     * an option of each refresh.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `functions`.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_UDF): no column, a repeated one, a SQL function, or an invalid function
     *   name; correct the request.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; AlterColumns is for tables.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): no function of the view's query computes the column; name one that is
     *   computed.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH): the source has no such columns; name others
     *   in `input_columns`.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): an input is a column that Leman keeps for itself; name another one.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (VIEW_CHANGED, CONFLICT, TABLE_REPLACED): the view was changed meanwhile; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the view; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the view or its source is not there; check the name, or restore the source.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public void alterMaterializedView(dev.leman.v1.AlterMaterializedViewRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.AlterMaterializedViewResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getAlterMaterializedViewMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service CatalogService.
   * <pre>
   * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
  public static final class CatalogServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<CatalogServiceBlockingV2Stub> {
    private CatalogServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CatalogServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CatalogServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores a function under its name and version. A call with the same definition succeeds again. Its options
     * (`batch_size`, `checkpoint`, `error_policy`, `call_timeout`, `resources`) may be changed under the same version:
     * they change how it runs, not what it computes. A bundle replaces one that workers cannot load (see
     * GetUdfResponse.needs_bundle), and a definition replaces a damaged one.
     * For a remote function, the planner requests descriptions from its servers. At least one server must answer, and all
     * that answer must describe the same function. Parts that the definition omits (`version`, `input_columns`, the
     * schemas) are filled from the description, and parts that it has must be equal to it. You can change the addresses
     * under the same version.
     * Errors:
     * * `ALREADY_EXISTS` (UDF_EXISTS): another definition has this name and version; register under another version.
     * * `INVALID_ARGUMENT` (BAD_UDF, BAD_SCHEMA, UNKNOWN_VALUE): the definition contradicts itself, or this release does
     *   not know a part of it; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `FAILED_PRECONDITION` (UDF_BUNDLE_MISSING): the bundle was omitted and is not stored, or is damaged; send it.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bundle's bytes do not have the stated digest and size; send
     *   those that do.
     * * `FAILED_PRECONDITION` (UDF_PYTHON_MISMATCH): workers run another Python than the bundle's; make it with theirs.
     *   Nothing is stored.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): the bundle has more bytes than the services take; load large data when the
     *   function is built, instead of pickling it.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind, or at
     *   this address; use another one.
     * * `UNAVAILABLE` (FUNCTION_UNAVAILABLE): no server of the remote function can be reached; start one, then retry the
     *   call.
     * * `NOT_FOUND` (FUNCTION_NOT_FOUND): its server has no function of that name; name one that the message lists.
     * * `FAILED_PRECONDITION` (FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH): its servers contradict the
     *   definition, or each other; correct the definition, or omit what they describe.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_PROTOCOL): its server refuses the services' credentials,
     *   or is not a function server; do what the message says.
     * * `FAILED_PRECONDITION` (FUNCTION_TLS_FAILED): its server's certificate does not verify, or only one side uses TLS,
     *   and no other server answers; do what the message says.
     * </pre>
     */
    public dev.leman.v1.RegisterUdfResponse registerUdf(dev.leman.v1.RegisterUdfRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getRegisterUdfMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Stores a bundle, so that RegisterUdf can omit it. The first message is a header; the others have the bytes, in
     * pieces that fit into a message, such as 1 MiB. The bundle is stored only after all bytes have arrived and match the
     * size and digest in the header. If it is stored already, the call returns at once, without waiting for the rest of
     * the stream. A bundle that no function uses is not removed.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD, BAD_NUMBER, BAD_UDF): the first message is not a header, or has no database,
     *   no size or no sha256; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_STREAM): there is a second header; send one.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for RegisterUdf.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bytes do not have the stated digest and size; send those that
     *   do.
     * * `ABORTED` (UPLOAD_STALLED): nothing was sent for a while; send the bundle again.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_UPLOADS): the limit of concurrent uploads is reached; retry the call after
     *   RetryInfo's delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow pickled functions; use an
     *   entrypoint or SQL.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<dev.leman.v1.UploadBundleRequest, dev.leman.v1.UploadBundleResponse>
        uploadBundle() {
      return io.grpc.stub.ClientCalls.blockingClientStreamingCall(
          getChannel(), getUploadBundleMethod(), getCallOptions());
    }

    /**
     * <pre>
     * One function. Without a version: the one registered last. Stored definitions have a digest. A definition that was
     * modified in the store is refused, here and in every other call.
     * Errors:
     * * `NOT_FOUND` (UDF_NOT_FOUND): no such function is registered; register it.
     * * `INVALID_ARGUMENT` (BAD_UDF): an invalid name or version; correct it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored definition is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.GetUdfResponse getUdf(dev.leman.v1.GetUdfRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetUdfMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * All functions of a database, by name, then newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored definition is damaged; register that function again to repair it.
     * </pre>
     */
    public dev.leman.v1.ListUdfsResponse listUdfs(dev.leman.v1.ListUdfsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListUdfsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Adds computed columns, which are NULL at first and need no data file. Validates everything first, and then adds all
     * of them or none. A column may read another column of the same request.
     * With `on_change`, the request declares what the columns should be, and can be repeated: existing computed columns
     * with the same definition stay unchanged. Columns with a different definition (another function or version, other
     * inputs, another expression) are changed in a separate version of the table, after the new columns were added. If
     * this second step fails, repeat the call to complete it. Options of a function, such as its error policy, are not
     * part of the definition.
     * Errors:
     * * `FAILED_PRECONDITION` (COLUMN_CHANGED): with ON_CHANGE_ERROR, columns exist with another definition, and nothing
     *   was done; the message says which, what changed, and how many rows would be stale. Repeat the call with
     *   ON_CHANGE_UPDATE or ON_CHANGE_KEEP, or use another name.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_COLUMN_NAME, BAD_COLUMN, RESERVED_NAME): no column, a repeated one, one with
     *   both a function and an expression, or an invalid name; correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (COLUMN_EXISTS): the table has a column of that name; use another name, or set `on_change` where
     *   it is a computed one.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): with ON_CHANGE_KEEP, as for AlterColumns.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a value of `on_change` that this release does not know; set one that it does.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): a column of that name was added meanwhile; describe the table again.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   table cannot hold the output's; change the function.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.AddColumnsResponse addColumns(dev.leman.v1.AddColumnsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAddColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Gives computed columns other functions: all of them or none. Values and column ids stay; the columns are stale
     * (REASON_UDF_CHANGED) until the next backfill.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST): no column, a repeated one, or one with both a function and an expression;
     *   correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; AlterMaterializedView gives its columns other functions.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; AddColumns adds one.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; add a new column instead.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): values cannot be kept, as the inputs differ or the
     *   column keeps too many versions; omit `keep_values`.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (BINDING_DAMAGED, VIEW_DAMAGED): the metadata of the column or the table is damaged; restore the
     *   previous version of the table; without one, drop the column or the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table cannot hold the function's output; change the function.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.AlterColumnsResponse alterColumns(dev.leman.v1.AlterColumnsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAlterColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Schema, version, rows and computed columns of one table.
     * Errors:
     * * `DATA_LOSS` (BINDING_DAMAGED): a column's metadata is damaged; restore the previous version of the table; without
     *   one, drop the column and add it again.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): names like this one are Leman's own; name another table.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DescribeTableResponse describeTable(dev.leman.v1.DescribeTableRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDescribeTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The tables of a database, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListTablesResponse listTables(dev.leman.v1.ListTablesRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListTablesMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Creates a view in one visible step: a placeholder for each matching row of the source, without values, and without
     * calling a function. Validates everything first.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, INVALID_EXPRESSION, VOLATILE_FUNCTION): SQL that is not allowed in a view;
     *   correct the expression that the message names.
     * * `INVALID_ARGUMENT` (NAME_CLASH, RESERVED_NAME, BAD_COLUMN_NAME, BAD_TABLE_NAME, BAD_NUMBER): an invalid name or
     *   number; correct the field that BadRequest names.
     * * `NOT_FOUND` (TABLE_NOT_FOUND, UDF_NOT_FOUND): the source is not there, or a function is not registered in the
     *   view's database; create or register it.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (SOURCE_CHANGED): files of the source were removed while they were read; retry the call.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, COLUMN_NOT_FOUND): the source has no such
     *   column; fix the query.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   view cannot hold a column's; change the function or the query.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED, FILTER_FAILED): valid SQL fails on a value; correct it, or exclude such
     *   rows.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the source is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the source is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.CreateMaterializedViewResponse createMaterializedView(dev.leman.v1.CreateMaterializedViewRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCreateMaterializedViewMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * A view: its query, source, recorded source version and counts.
     * Errors:
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; use DescribeTable.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.GetMaterializedViewResponse getMaterializedView(dev.leman.v1.GetMaterializedViewRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetMaterializedViewMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The views of a database, by name. A database does not record which of its tables are views, so a call checks at
     * most 256 tables, one after the other. A page may therefore have fewer views than requested, or none, although more
     * follow. Only an empty `next_page_token` marks the end.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListMaterializedViewsResponse listMaterializedViews(dev.leman.v1.ListMaterializedViewsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListMaterializedViewsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Gives function columns of a view other functions or other inputs: all named ones, or none. The view keeps its
     * values, rows and source version. A changed column is stale (MaterializedView.stale_columns) until the next refresh,
     * which computes this column for every row, and no other columns. A column that gets back the function version that
     * computed its values is no longer stale. In a view without values nothing is stale: its first fill uses the new
     * functions.
     * Nothing else in a view's query can be altered: for another filter, limit, order or SQL expression, create another
     * view. How failed rows are treated is an option of the function (RegisterUdf); the number of rows in a fragment is
     * an option of each refresh.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `functions`.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_UDF): no column, a repeated one, a SQL function, or an invalid function
     *   name; correct the request.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; AlterColumns is for tables.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): no function of the view's query computes the column; name one that is
     *   computed.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH): the source has no such columns; name others
     *   in `input_columns`.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): an input is a column that Leman keeps for itself; name another one.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (VIEW_CHANGED, CONFLICT, TABLE_REPLACED): the view was changed meanwhile; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the view; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the view or its source is not there; check the name, or restore the source.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.AlterMaterializedViewResponse alterMaterializedView(dev.leman.v1.AlterMaterializedViewRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getAlterMaterializedViewMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service CatalogService.
   * <pre>
   * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
  public static final class CatalogServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<CatalogServiceBlockingStub> {
    private CatalogServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CatalogServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CatalogServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores a function under its name and version. A call with the same definition succeeds again. Its options
     * (`batch_size`, `checkpoint`, `error_policy`, `call_timeout`, `resources`) may be changed under the same version:
     * they change how it runs, not what it computes. A bundle replaces one that workers cannot load (see
     * GetUdfResponse.needs_bundle), and a definition replaces a damaged one.
     * For a remote function, the planner requests descriptions from its servers. At least one server must answer, and all
     * that answer must describe the same function. Parts that the definition omits (`version`, `input_columns`, the
     * schemas) are filled from the description, and parts that it has must be equal to it. You can change the addresses
     * under the same version.
     * Errors:
     * * `ALREADY_EXISTS` (UDF_EXISTS): another definition has this name and version; register under another version.
     * * `INVALID_ARGUMENT` (BAD_UDF, BAD_SCHEMA, UNKNOWN_VALUE): the definition contradicts itself, or this release does
     *   not know a part of it; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `FAILED_PRECONDITION` (UDF_BUNDLE_MISSING): the bundle was omitted and is not stored, or is damaged; send it.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bundle's bytes do not have the stated digest and size; send
     *   those that do.
     * * `FAILED_PRECONDITION` (UDF_PYTHON_MISMATCH): workers run another Python than the bundle's; make it with theirs.
     *   Nothing is stored.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): the bundle has more bytes than the services take; load large data when the
     *   function is built, instead of pickling it.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind, or at
     *   this address; use another one.
     * * `UNAVAILABLE` (FUNCTION_UNAVAILABLE): no server of the remote function can be reached; start one, then retry the
     *   call.
     * * `NOT_FOUND` (FUNCTION_NOT_FOUND): its server has no function of that name; name one that the message lists.
     * * `FAILED_PRECONDITION` (FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH): its servers contradict the
     *   definition, or each other; correct the definition, or omit what they describe.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_PROTOCOL): its server refuses the services' credentials,
     *   or is not a function server; do what the message says.
     * * `FAILED_PRECONDITION` (FUNCTION_TLS_FAILED): its server's certificate does not verify, or only one side uses TLS,
     *   and no other server answers; do what the message says.
     * </pre>
     */
    public dev.leman.v1.RegisterUdfResponse registerUdf(dev.leman.v1.RegisterUdfRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getRegisterUdfMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One function. Without a version: the one registered last. Stored definitions have a digest. A definition that was
     * modified in the store is refused, here and in every other call.
     * Errors:
     * * `NOT_FOUND` (UDF_NOT_FOUND): no such function is registered; register it.
     * * `INVALID_ARGUMENT` (BAD_UDF): an invalid name or version; correct it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored definition is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.GetUdfResponse getUdf(dev.leman.v1.GetUdfRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetUdfMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * All functions of a database, by name, then newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored definition is damaged; register that function again to repair it.
     * </pre>
     */
    public dev.leman.v1.ListUdfsResponse listUdfs(dev.leman.v1.ListUdfsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListUdfsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Adds computed columns, which are NULL at first and need no data file. Validates everything first, and then adds all
     * of them or none. A column may read another column of the same request.
     * With `on_change`, the request declares what the columns should be, and can be repeated: existing computed columns
     * with the same definition stay unchanged. Columns with a different definition (another function or version, other
     * inputs, another expression) are changed in a separate version of the table, after the new columns were added. If
     * this second step fails, repeat the call to complete it. Options of a function, such as its error policy, are not
     * part of the definition.
     * Errors:
     * * `FAILED_PRECONDITION` (COLUMN_CHANGED): with ON_CHANGE_ERROR, columns exist with another definition, and nothing
     *   was done; the message says which, what changed, and how many rows would be stale. Repeat the call with
     *   ON_CHANGE_UPDATE or ON_CHANGE_KEEP, or use another name.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_COLUMN_NAME, BAD_COLUMN, RESERVED_NAME): no column, a repeated one, one with
     *   both a function and an expression, or an invalid name; correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (COLUMN_EXISTS): the table has a column of that name; use another name, or set `on_change` where
     *   it is a computed one.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): with ON_CHANGE_KEEP, as for AlterColumns.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a value of `on_change` that this release does not know; set one that it does.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): a column of that name was added meanwhile; describe the table again.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   table cannot hold the output's; change the function.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.AddColumnsResponse addColumns(dev.leman.v1.AddColumnsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAddColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Gives computed columns other functions: all of them or none. Values and column ids stay; the columns are stale
     * (REASON_UDF_CHANGED) until the next backfill.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST): no column, a repeated one, or one with both a function and an expression;
     *   correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; AlterMaterializedView gives its columns other functions.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; AddColumns adds one.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; add a new column instead.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): values cannot be kept, as the inputs differ or the
     *   column keeps too many versions; omit `keep_values`.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (BINDING_DAMAGED, VIEW_DAMAGED): the metadata of the column or the table is damaged; restore the
     *   previous version of the table; without one, drop the column or the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table cannot hold the function's output; change the function.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.AlterColumnsResponse alterColumns(dev.leman.v1.AlterColumnsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAlterColumnsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Schema, version, rows and computed columns of one table.
     * Errors:
     * * `DATA_LOSS` (BINDING_DAMAGED): a column's metadata is damaged; restore the previous version of the table; without
     *   one, drop the column and add it again.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): names like this one are Leman's own; name another table.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.DescribeTableResponse describeTable(dev.leman.v1.DescribeTableRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDescribeTableMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The tables of a database, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListTablesResponse listTables(dev.leman.v1.ListTablesRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListTablesMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Creates a view in one visible step: a placeholder for each matching row of the source, without values, and without
     * calling a function. Validates everything first.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, INVALID_EXPRESSION, VOLATILE_FUNCTION): SQL that is not allowed in a view;
     *   correct the expression that the message names.
     * * `INVALID_ARGUMENT` (NAME_CLASH, RESERVED_NAME, BAD_COLUMN_NAME, BAD_TABLE_NAME, BAD_NUMBER): an invalid name or
     *   number; correct the field that BadRequest names.
     * * `NOT_FOUND` (TABLE_NOT_FOUND, UDF_NOT_FOUND): the source is not there, or a function is not registered in the
     *   view's database; create or register it.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (SOURCE_CHANGED): files of the source were removed while they were read; retry the call.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, COLUMN_NOT_FOUND): the source has no such
     *   column; fix the query.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   view cannot hold a column's; change the function or the query.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED, FILTER_FAILED): valid SQL fails on a value; correct it, or exclude such
     *   rows.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the source is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the source is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.CreateMaterializedViewResponse createMaterializedView(dev.leman.v1.CreateMaterializedViewRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCreateMaterializedViewMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * A view: its query, source, recorded source version and counts.
     * Errors:
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; use DescribeTable.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public dev.leman.v1.GetMaterializedViewResponse getMaterializedView(dev.leman.v1.GetMaterializedViewRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetMaterializedViewMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The views of a database, by name. A database does not record which of its tables are views, so a call checks at
     * most 256 tables, one after the other. A page may therefore have fewer views than requested, or none, although more
     * follow. Only an empty `next_page_token` marks the end.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListMaterializedViewsResponse listMaterializedViews(dev.leman.v1.ListMaterializedViewsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListMaterializedViewsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Gives function columns of a view other functions or other inputs: all named ones, or none. The view keeps its
     * values, rows and source version. A changed column is stale (MaterializedView.stale_columns) until the next refresh,
     * which computes this column for every row, and no other columns. A column that gets back the function version that
     * computed its values is no longer stale. In a view without values nothing is stale: its first fill uses the new
     * functions.
     * Nothing else in a view's query can be altered: for another filter, limit, order or SQL expression, create another
     * view. How failed rows are treated is an option of the function (RegisterUdf); the number of rows in a fragment is
     * an option of each refresh.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `functions`.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_UDF): no column, a repeated one, a SQL function, or an invalid function
     *   name; correct the request.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; AlterColumns is for tables.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): no function of the view's query computes the column; name one that is
     *   computed.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH): the source has no such columns; name others
     *   in `input_columns`.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): an input is a column that Leman keeps for itself; name another one.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (VIEW_CHANGED, CONFLICT, TABLE_REPLACED): the view was changed meanwhile; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the view; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the view or its source is not there; check the name, or restore the source.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public dev.leman.v1.AlterMaterializedViewResponse alterMaterializedView(dev.leman.v1.AlterMaterializedViewRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getAlterMaterializedViewMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service CatalogService.
   * <pre>
   * Tables, their computed columns, and the functions that compute them. Served by the planner.
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
  public static final class CatalogServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<CatalogServiceFutureStub> {
    private CatalogServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected CatalogServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new CatalogServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Stores a function under its name and version. A call with the same definition succeeds again. Its options
     * (`batch_size`, `checkpoint`, `error_policy`, `call_timeout`, `resources`) may be changed under the same version:
     * they change how it runs, not what it computes. A bundle replaces one that workers cannot load (see
     * GetUdfResponse.needs_bundle), and a definition replaces a damaged one.
     * For a remote function, the planner requests descriptions from its servers. At least one server must answer, and all
     * that answer must describe the same function. Parts that the definition omits (`version`, `input_columns`, the
     * schemas) are filled from the description, and parts that it has must be equal to it. You can change the addresses
     * under the same version.
     * Errors:
     * * `ALREADY_EXISTS` (UDF_EXISTS): another definition has this name and version; register under another version.
     * * `INVALID_ARGUMENT` (BAD_UDF, BAD_SCHEMA, UNKNOWN_VALUE): the definition contradicts itself, or this release does
     *   not know a part of it; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `FAILED_PRECONDITION` (UDF_BUNDLE_MISSING): the bundle was omitted and is not stored, or is damaged; send it.
     * * `FAILED_PRECONDITION` (UDF_DIGEST_MISMATCH): the bundle's bytes do not have the stated digest and size; send
     *   those that do.
     * * `FAILED_PRECONDITION` (UDF_PYTHON_MISMATCH): workers run another Python than the bundle's; make it with theirs.
     *   Nothing is stored.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): the bundle has more bytes than the services take; load large data when the
     *   function is built, instead of pickling it.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind, or at
     *   this address; use another one.
     * * `UNAVAILABLE` (FUNCTION_UNAVAILABLE): no server of the remote function can be reached; start one, then retry the
     *   call.
     * * `NOT_FOUND` (FUNCTION_NOT_FOUND): its server has no function of that name; name one that the message lists.
     * * `FAILED_PRECONDITION` (FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH): its servers contradict the
     *   definition, or each other; correct the definition, or omit what they describe.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_PROTOCOL): its server refuses the services' credentials,
     *   or is not a function server; do what the message says.
     * * `FAILED_PRECONDITION` (FUNCTION_TLS_FAILED): its server's certificate does not verify, or only one side uses TLS,
     *   and no other server answers; do what the message says.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.RegisterUdfResponse> registerUdf(
        dev.leman.v1.RegisterUdfRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getRegisterUdfMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * One function. Without a version: the one registered last. Stored definitions have a digest. A definition that was
     * modified in the store is refused, here and in every other call.
     * Errors:
     * * `NOT_FOUND` (UDF_NOT_FOUND): no such function is registered; register it.
     * * `INVALID_ARGUMENT` (BAD_UDF): an invalid name or version; correct it.
     * * `DATA_LOSS` (UDF_DAMAGED): the stored definition is damaged; register it again to repair it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetUdfResponse> getUdf(
        dev.leman.v1.GetUdfRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetUdfMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * All functions of a database, by name, then newest first.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored definition is damaged; register that function again to repair it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListUdfsResponse> listUdfs(
        dev.leman.v1.ListUdfsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListUdfsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Adds computed columns, which are NULL at first and need no data file. Validates everything first, and then adds all
     * of them or none. A column may read another column of the same request.
     * With `on_change`, the request declares what the columns should be, and can be repeated: existing computed columns
     * with the same definition stay unchanged. Columns with a different definition (another function or version, other
     * inputs, another expression) are changed in a separate version of the table, after the new columns were added. If
     * this second step fails, repeat the call to complete it. Options of a function, such as its error policy, are not
     * part of the definition.
     * Errors:
     * * `FAILED_PRECONDITION` (COLUMN_CHANGED): with ON_CHANGE_ERROR, columns exist with another definition, and nothing
     *   was done; the message says which, what changed, and how many rows would be stale. Repeat the call with
     *   ON_CHANGE_UPDATE or ON_CHANGE_KEEP, or use another name.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_COLUMN_NAME, BAD_COLUMN, RESERVED_NAME): no column, a repeated one, one with
     *   both a function and an expression, or an invalid name; correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (COLUMN_EXISTS): the table has a column of that name; use another name, or set `on_change` where
     *   it is a computed one.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): with ON_CHANGE_KEEP, as for AlterColumns.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a value of `on_change` that this release does not know; set one that it does.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (COLUMN_EXISTS): a column of that name was added meanwhile; describe the table again.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   table cannot hold the output's; change the function.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): a view gets its columns from its query; create another view.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the table is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.AddColumnsResponse> addColumns(
        dev.leman.v1.AddColumnsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAddColumnsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Gives computed columns other functions: all of them or none. Values and column ids stay; the columns are stale
     * (REASON_UDF_CHANGED) until the next backfill.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST): no column, a repeated one, or one with both a function and an expression;
     *   correct the request.
     * * `INVALID_ARGUMENT` (BAD_UDF): a column has neither a function nor an expression, or the name or version is
     *   invalid; correct it.
     * * `INVALID_ARGUMENT` (INVALID_EXPRESSION): the SQL expression cannot be computed by a column; fix it.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered; register it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (IS_A_VIEW): it is a view; AlterMaterializedView gives its columns other functions.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): the column is not a computed one; AddColumns adds one.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, INPUT_IS_OUTPUT): the function's inputs are
     *   not this table's; name others in `input_columns`.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; add a new column instead.
     * * `FAILED_PRECONDITION` (COLUMN_CYCLE): computed columns would form a cycle; change the inputs of one of them.
     * * `FAILED_PRECONDITION` (KEPT_INPUTS_DIFFER, TOO_MANY_KEPT): values cannot be kept, as the inputs differ or the
     *   column keeps too many versions; omit `keep_values`.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (BINDING_DAMAGED, VIEW_DAMAGED): the metadata of the column or the table is damaged; restore the
     *   previous version of the table; without one, drop the column or the view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (TYPE_NOT_STORABLE): the table cannot hold the function's output; change the function.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.AlterColumnsResponse> alterColumns(
        dev.leman.v1.AlterColumnsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAlterColumnsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Schema, version, rows and computed columns of one table.
     * Errors:
     * * `DATA_LOSS` (BINDING_DAMAGED): a column's metadata is damaged; restore the previous version of the table; without
     *   one, drop the column and add it again.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): names like this one are Leman's own; name another table.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.DescribeTableResponse> describeTable(
        dev.leman.v1.DescribeTableRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDescribeTableMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * The tables of a database, by name.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListTablesResponse> listTables(
        dev.leman.v1.ListTablesRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListTablesMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Creates a view in one visible step: a placeholder for each matching row of the source, without values, and without
     * calling a function. Validates everything first.
     * Errors:
     * * `INVALID_ARGUMENT` (INVALID_FILTER, INVALID_EXPRESSION, VOLATILE_FUNCTION): SQL that is not allowed in a view;
     *   correct the expression that the message names.
     * * `INVALID_ARGUMENT` (NAME_CLASH, RESERVED_NAME, BAD_COLUMN_NAME, BAD_TABLE_NAME, BAD_NUMBER): an invalid name or
     *   number; correct the field that BadRequest names.
     * * `NOT_FOUND` (TABLE_NOT_FOUND, UDF_NOT_FOUND): the source is not there, or a function is not registered in the
     *   view's database; create or register it.
     * * `ALREADY_EXISTS` (TABLE_EXISTS): a table or view of that name exists; use another name, or drop it.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (SOURCE_CHANGED): files of the source were removed while they were read; retry the call.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, COLUMN_NOT_FOUND): the source has no such
     *   column; fix the query.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH, TYPE_NOT_STORABLE): an input has another type than was declared, or the
     *   view cannot hold a column's; change the function or the query.
     * * `FAILED_PRECONDITION` (EXPRESSION_FAILED, FILTER_FAILED): valid SQL fails on a value; correct it, or exclude such
     *   rows.
     * * `ABORTED` (CONFLICT, TABLE_REPLACED): other writers committed at the same time at every try, or the table was
     *   recreated; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the table; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `FAILED_PRECONDITION` (FILE_FORMAT_NOT_SUPPORTED): the source is in Lance's first file format; rewrite it.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the source is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.CreateMaterializedViewResponse> createMaterializedView(
        dev.leman.v1.CreateMaterializedViewRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCreateMaterializedViewMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * A view: its query, source, recorded source version and counts.
     * Errors:
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; use DescribeTable.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the database has no such table; check the name.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetMaterializedViewResponse> getMaterializedView(
        dev.leman.v1.GetMaterializedViewRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetMaterializedViewMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * The views of a database, by name. A database does not record which of its tables are views, so a call checks at
     * most 256 tables, one after the other. A page may therefore have fewer views than requested, or none, although more
     * follow. Only an empty `next_page_token` marks the end.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListMaterializedViewsResponse> listMaterializedViews(
        dev.leman.v1.ListMaterializedViewsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListMaterializedViewsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Gives function columns of a view other functions or other inputs: all named ones, or none. The view keeps its
     * values, rows and source version. A changed column is stale (MaterializedView.stale_columns) until the next refresh,
     * which computes this column for every row, and no other columns. A column that gets back the function version that
     * computed its values is no longer stale. In a view without values nothing is stale: its first fill uses the new
     * functions.
     * Nothing else in a view's query can be altered: for another filter, limit, order or SQL expression, create another
     * view. How failed rows are treated is an option of the function (RegisterUdf); the number of rows in a fragment is
     * an option of each refresh.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name
     *   `functions`.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_UDF): no column, a repeated one, a SQL function, or an invalid function
     *   name; correct the request.
     * * `NOT_FOUND` (UDF_NOT_FOUND): a function is not registered in the view's database; register it.
     * * `FAILED_PRECONDITION` (NOT_A_VIEW): the table has no query; AlterColumns is for tables.
     * * `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED): no function of the view's query computes the column; name one that is
     *   computed.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH): the source has no such columns; name others
     *   in `input_columns`.
     * * `INVALID_ARGUMENT` (RESERVED_NAME): an input is a column that Leman keeps for itself; name another one.
     * * `FAILED_PRECONDITION` (TYPE_MISMATCH): the function has another output type than the column, or another input
     *   type; create another view.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `ABORTED` (VIEW_CHANGED, CONFLICT, TABLE_REPLACED): the view was changed meanwhile; retry the call.
     * * `FAILED_PRECONDITION` (COMMIT_REFUSED): Lance refuses, and a retry would not help; do what the message says.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the planner has no commit coordinator set, or is
     *   refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the planner cannot reach the commit coordinator; retry the same call after
     *   RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (COMMIT_QUEUE_FULL): too many requests wait for the view; retry the call after RetryInfo's
     *   delay.
     * * `UNAVAILABLE` (COMMIT_UNKNOWN, DRAINING): the outcome is unknown, or the commit coordinator is stopping; retry
     *   the same call.
     * * `DATA_LOSS` (VIEW_DAMAGED): the view's metadata is damaged; restore the previous version; without one, drop the
     *   view and create it again.
     * * `NOT_FOUND` (TABLE_NOT_FOUND): the view or its source is not there; check the name, or restore the source.
     * * `FAILED_PRECONDITION` (TABLE_NOT_SUPPORTED): a later release of Lance wrote the table; use a later release of
     *   Leman.
     * * `DATA_LOSS` (TABLE_DAMAGED): a file of the table is damaged or missing; restore the file that the message names.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * `DATA_LOSS` (UDF_DAMAGED): a stored function is damaged; register it again to repair it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.AlterMaterializedViewResponse> alterMaterializedView(
        dev.leman.v1.AlterMaterializedViewRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getAlterMaterializedViewMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_REGISTER_UDF = 0;
  private static final int METHODID_GET_UDF = 1;
  private static final int METHODID_LIST_UDFS = 2;
  private static final int METHODID_ADD_COLUMNS = 3;
  private static final int METHODID_ALTER_COLUMNS = 4;
  private static final int METHODID_DESCRIBE_TABLE = 5;
  private static final int METHODID_LIST_TABLES = 6;
  private static final int METHODID_CREATE_MATERIALIZED_VIEW = 7;
  private static final int METHODID_GET_MATERIALIZED_VIEW = 8;
  private static final int METHODID_LIST_MATERIALIZED_VIEWS = 9;
  private static final int METHODID_ALTER_MATERIALIZED_VIEW = 10;
  private static final int METHODID_UPLOAD_BUNDLE = 11;

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
        case METHODID_REGISTER_UDF:
          serviceImpl.registerUdf((dev.leman.v1.RegisterUdfRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.RegisterUdfResponse>) responseObserver);
          break;
        case METHODID_GET_UDF:
          serviceImpl.getUdf((dev.leman.v1.GetUdfRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetUdfResponse>) responseObserver);
          break;
        case METHODID_LIST_UDFS:
          serviceImpl.listUdfs((dev.leman.v1.ListUdfsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListUdfsResponse>) responseObserver);
          break;
        case METHODID_ADD_COLUMNS:
          serviceImpl.addColumns((dev.leman.v1.AddColumnsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.AddColumnsResponse>) responseObserver);
          break;
        case METHODID_ALTER_COLUMNS:
          serviceImpl.alterColumns((dev.leman.v1.AlterColumnsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.AlterColumnsResponse>) responseObserver);
          break;
        case METHODID_DESCRIBE_TABLE:
          serviceImpl.describeTable((dev.leman.v1.DescribeTableRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.DescribeTableResponse>) responseObserver);
          break;
        case METHODID_LIST_TABLES:
          serviceImpl.listTables((dev.leman.v1.ListTablesRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListTablesResponse>) responseObserver);
          break;
        case METHODID_CREATE_MATERIALIZED_VIEW:
          serviceImpl.createMaterializedView((dev.leman.v1.CreateMaterializedViewRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.CreateMaterializedViewResponse>) responseObserver);
          break;
        case METHODID_GET_MATERIALIZED_VIEW:
          serviceImpl.getMaterializedView((dev.leman.v1.GetMaterializedViewRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetMaterializedViewResponse>) responseObserver);
          break;
        case METHODID_LIST_MATERIALIZED_VIEWS:
          serviceImpl.listMaterializedViews((dev.leman.v1.ListMaterializedViewsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListMaterializedViewsResponse>) responseObserver);
          break;
        case METHODID_ALTER_MATERIALIZED_VIEW:
          serviceImpl.alterMaterializedView((dev.leman.v1.AlterMaterializedViewRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.AlterMaterializedViewResponse>) responseObserver);
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
        case METHODID_UPLOAD_BUNDLE:
          return (io.grpc.stub.StreamObserver<Req>) serviceImpl.uploadBundle(
              (io.grpc.stub.StreamObserver<dev.leman.v1.UploadBundleResponse>) responseObserver);
        default:
          throw new AssertionError();
      }
    }
  }

  public static final io.grpc.ServerServiceDefinition bindService(AsyncService service) {
    return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
        .addMethod(
          getRegisterUdfMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.RegisterUdfRequest,
              dev.leman.v1.RegisterUdfResponse>(
                service, METHODID_REGISTER_UDF)))
        .addMethod(
          getUploadBundleMethod(),
          io.grpc.stub.ServerCalls.asyncClientStreamingCall(
            new MethodHandlers<
              dev.leman.v1.UploadBundleRequest,
              dev.leman.v1.UploadBundleResponse>(
                service, METHODID_UPLOAD_BUNDLE)))
        .addMethod(
          getGetUdfMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetUdfRequest,
              dev.leman.v1.GetUdfResponse>(
                service, METHODID_GET_UDF)))
        .addMethod(
          getListUdfsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListUdfsRequest,
              dev.leman.v1.ListUdfsResponse>(
                service, METHODID_LIST_UDFS)))
        .addMethod(
          getAddColumnsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.AddColumnsRequest,
              dev.leman.v1.AddColumnsResponse>(
                service, METHODID_ADD_COLUMNS)))
        .addMethod(
          getAlterColumnsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.AlterColumnsRequest,
              dev.leman.v1.AlterColumnsResponse>(
                service, METHODID_ALTER_COLUMNS)))
        .addMethod(
          getDescribeTableMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.DescribeTableRequest,
              dev.leman.v1.DescribeTableResponse>(
                service, METHODID_DESCRIBE_TABLE)))
        .addMethod(
          getListTablesMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListTablesRequest,
              dev.leman.v1.ListTablesResponse>(
                service, METHODID_LIST_TABLES)))
        .addMethod(
          getCreateMaterializedViewMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.CreateMaterializedViewRequest,
              dev.leman.v1.CreateMaterializedViewResponse>(
                service, METHODID_CREATE_MATERIALIZED_VIEW)))
        .addMethod(
          getGetMaterializedViewMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetMaterializedViewRequest,
              dev.leman.v1.GetMaterializedViewResponse>(
                service, METHODID_GET_MATERIALIZED_VIEW)))
        .addMethod(
          getListMaterializedViewsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListMaterializedViewsRequest,
              dev.leman.v1.ListMaterializedViewsResponse>(
                service, METHODID_LIST_MATERIALIZED_VIEWS)))
        .addMethod(
          getAlterMaterializedViewMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.AlterMaterializedViewRequest,
              dev.leman.v1.AlterMaterializedViewResponse>(
                service, METHODID_ALTER_MATERIALIZED_VIEW)))
        .build();
  }

  private static abstract class CatalogServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    CatalogServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.CatalogProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("CatalogService");
    }
  }

  private static final class CatalogServiceFileDescriptorSupplier
      extends CatalogServiceBaseDescriptorSupplier {
    CatalogServiceFileDescriptorSupplier() {}
  }

  private static final class CatalogServiceMethodDescriptorSupplier
      extends CatalogServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    CatalogServiceMethodDescriptorSupplier(java.lang.String methodName) {
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
      synchronized (CatalogServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new CatalogServiceFileDescriptorSupplier())
              .addMethod(getRegisterUdfMethod())
              .addMethod(getUploadBundleMethod())
              .addMethod(getGetUdfMethod())
              .addMethod(getListUdfsMethod())
              .addMethod(getAddColumnsMethod())
              .addMethod(getAlterColumnsMethod())
              .addMethod(getDescribeTableMethod())
              .addMethod(getListTablesMethod())
              .addMethod(getCreateMaterializedViewMethod())
              .addMethod(getGetMaterializedViewMethod())
              .addMethod(getListMaterializedViewsMethod())
              .addMethod(getAlterMaterializedViewMethod())
              .build();
        }
      }
    }
    return result;
  }
}
