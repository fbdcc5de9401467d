package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Runs jobs. Served by the executor.
 * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
 * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
public final class JobServiceGrpc {

  private JobServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.JobService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.CreateJobRequest,
      dev.leman.v1.CreateJobResponse> getCreateJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CreateJob",
      requestType = dev.leman.v1.CreateJobRequest.class,
      responseType = dev.leman.v1.CreateJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.CreateJobRequest,
      dev.leman.v1.CreateJobResponse> getCreateJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.CreateJobRequest, dev.leman.v1.CreateJobResponse> getCreateJobMethod;
    if ((getCreateJobMethod = JobServiceGrpc.getCreateJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getCreateJobMethod = JobServiceGrpc.getCreateJobMethod) == null) {
          JobServiceGrpc.getCreateJobMethod = getCreateJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.CreateJobRequest, dev.leman.v1.CreateJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CreateJob"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CreateJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CreateJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("CreateJob"))
              .build();
        }
      }
    }
    return getCreateJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetJobRequest,
      dev.leman.v1.GetJobResponse> getGetJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetJob",
      requestType = dev.leman.v1.GetJobRequest.class,
      responseType = dev.leman.v1.GetJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetJobRequest,
      dev.leman.v1.GetJobResponse> getGetJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetJobRequest, dev.leman.v1.GetJobResponse> getGetJobMethod;
    if ((getGetJobMethod = JobServiceGrpc.getGetJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getGetJobMethod = JobServiceGrpc.getGetJobMethod) == null) {
          JobServiceGrpc.getGetJobMethod = getGetJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetJobRequest, dev.leman.v1.GetJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetJob"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("GetJob"))
              .build();
        }
      }
    }
    return getGetJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListJobsRequest,
      dev.leman.v1.ListJobsResponse> getListJobsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListJobs",
      requestType = dev.leman.v1.ListJobsRequest.class,
      responseType = dev.leman.v1.ListJobsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListJobsRequest,
      dev.leman.v1.ListJobsResponse> getListJobsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListJobsRequest, dev.leman.v1.ListJobsResponse> getListJobsMethod;
    if ((getListJobsMethod = JobServiceGrpc.getListJobsMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getListJobsMethod = JobServiceGrpc.getListJobsMethod) == null) {
          JobServiceGrpc.getListJobsMethod = getListJobsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListJobsRequest, dev.leman.v1.ListJobsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListJobs"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListJobsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListJobsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("ListJobs"))
              .build();
        }
      }
    }
    return getListJobsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.WatchJobRequest,
      dev.leman.v1.WatchJobResponse> getWatchJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "WatchJob",
      requestType = dev.leman.v1.WatchJobRequest.class,
      responseType = dev.leman.v1.WatchJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<dev.leman.v1.WatchJobRequest,
      dev.leman.v1.WatchJobResponse> getWatchJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.WatchJobRequest, dev.leman.v1.WatchJobResponse> getWatchJobMethod;
    if ((getWatchJobMethod = JobServiceGrpc.getWatchJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getWatchJobMethod = JobServiceGrpc.getWatchJobMethod) == null) {
          JobServiceGrpc.getWatchJobMethod = getWatchJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.WatchJobRequest, dev.leman.v1.WatchJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "WatchJob"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.WatchJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.WatchJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("WatchJob"))
              .build();
        }
      }
    }
    return getWatchJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.WaitJobRequest,
      dev.leman.v1.WaitJobResponse> getWaitJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "WaitJob",
      requestType = dev.leman.v1.WaitJobRequest.class,
      responseType = dev.leman.v1.WaitJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.WaitJobRequest,
      dev.leman.v1.WaitJobResponse> getWaitJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.WaitJobRequest, dev.leman.v1.WaitJobResponse> getWaitJobMethod;
    if ((getWaitJobMethod = JobServiceGrpc.getWaitJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getWaitJobMethod = JobServiceGrpc.getWaitJobMethod) == null) {
          JobServiceGrpc.getWaitJobMethod = getWaitJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.WaitJobRequest, dev.leman.v1.WaitJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "WaitJob"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.WaitJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.WaitJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("WaitJob"))
              .build();
        }
      }
    }
    return getWaitJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.UpdateJobRequest,
      dev.leman.v1.UpdateJobResponse> getUpdateJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "UpdateJob",
      requestType = dev.leman.v1.UpdateJobRequest.class,
      responseType = dev.leman.v1.UpdateJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.UpdateJobRequest,
      dev.leman.v1.UpdateJobResponse> getUpdateJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.UpdateJobRequest, dev.leman.v1.UpdateJobResponse> getUpdateJobMethod;
    if ((getUpdateJobMethod = JobServiceGrpc.getUpdateJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getUpdateJobMethod = JobServiceGrpc.getUpdateJobMethod) == null) {
          JobServiceGrpc.getUpdateJobMethod = getUpdateJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.UpdateJobRequest, dev.leman.v1.UpdateJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "UpdateJob"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UpdateJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.UpdateJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("UpdateJob"))
              .build();
        }
      }
    }
    return getUpdateJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.CancelJobRequest,
      dev.leman.v1.CancelJobResponse> getCancelJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CancelJob",
      requestType = dev.leman.v1.CancelJobRequest.class,
      responseType = dev.leman.v1.CancelJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.CancelJobRequest,
      dev.leman.v1.CancelJobResponse> getCancelJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.CancelJobRequest, dev.leman.v1.CancelJobResponse> getCancelJobMethod;
    if ((getCancelJobMethod = JobServiceGrpc.getCancelJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getCancelJobMethod = JobServiceGrpc.getCancelJobMethod) == null) {
          JobServiceGrpc.getCancelJobMethod = getCancelJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.CancelJobRequest, dev.leman.v1.CancelJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CancelJob"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CancelJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CancelJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("CancelJob"))
              .build();
        }
      }
    }
    return getCancelJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.PauseJobRequest,
      dev.leman.v1.PauseJobResponse> getPauseJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "PauseJob",
      requestType = dev.leman.v1.PauseJobRequest.class,
      responseType = dev.leman.v1.PauseJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.PauseJobRequest,
      dev.leman.v1.PauseJobResponse> getPauseJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.PauseJobRequest, dev.leman.v1.PauseJobResponse> getPauseJobMethod;
    if ((getPauseJobMethod = JobServiceGrpc.getPauseJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getPauseJobMethod = JobServiceGrpc.getPauseJobMethod) == null) {
          JobServiceGrpc.getPauseJobMethod = getPauseJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.PauseJobRequest, dev.leman.v1.PauseJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "PauseJob"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.PauseJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.PauseJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("PauseJob"))
              .build();
        }
      }
    }
    return getPauseJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ResumeJobRequest,
      dev.leman.v1.ResumeJobResponse> getResumeJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ResumeJob",
      requestType = dev.leman.v1.ResumeJobRequest.class,
      responseType = dev.leman.v1.ResumeJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ResumeJobRequest,
      dev.leman.v1.ResumeJobResponse> getResumeJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ResumeJobRequest, dev.leman.v1.ResumeJobResponse> getResumeJobMethod;
    if ((getResumeJobMethod = JobServiceGrpc.getResumeJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getResumeJobMethod = JobServiceGrpc.getResumeJobMethod) == null) {
          JobServiceGrpc.getResumeJobMethod = getResumeJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ResumeJobRequest, dev.leman.v1.ResumeJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ResumeJob"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ResumeJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ResumeJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("ResumeJob"))
              .build();
        }
      }
    }
    return getResumeJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.CancelJobsRequest,
      dev.leman.v1.CancelJobsResponse> getCancelJobsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CancelJobs",
      requestType = dev.leman.v1.CancelJobsRequest.class,
      responseType = dev.leman.v1.CancelJobsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.CancelJobsRequest,
      dev.leman.v1.CancelJobsResponse> getCancelJobsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.CancelJobsRequest, dev.leman.v1.CancelJobsResponse> getCancelJobsMethod;
    if ((getCancelJobsMethod = JobServiceGrpc.getCancelJobsMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getCancelJobsMethod = JobServiceGrpc.getCancelJobsMethod) == null) {
          JobServiceGrpc.getCancelJobsMethod = getCancelJobsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.CancelJobsRequest, dev.leman.v1.CancelJobsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CancelJobs"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CancelJobsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.CancelJobsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("CancelJobs"))
              .build();
        }
      }
    }
    return getCancelJobsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.DeleteJobRequest,
      dev.leman.v1.DeleteJobResponse> getDeleteJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DeleteJob",
      requestType = dev.leman.v1.DeleteJobRequest.class,
      responseType = dev.leman.v1.DeleteJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.DeleteJobRequest,
      dev.leman.v1.DeleteJobResponse> getDeleteJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.DeleteJobRequest, dev.leman.v1.DeleteJobResponse> getDeleteJobMethod;
    if ((getDeleteJobMethod = JobServiceGrpc.getDeleteJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getDeleteJobMethod = JobServiceGrpc.getDeleteJobMethod) == null) {
          JobServiceGrpc.getDeleteJobMethod = getDeleteJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.DeleteJobRequest, dev.leman.v1.DeleteJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DeleteJob"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DeleteJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.DeleteJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("DeleteJob"))
              .build();
        }
      }
    }
    return getDeleteJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.RetryJobRequest,
      dev.leman.v1.RetryJobResponse> getRetryJobMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "RetryJob",
      requestType = dev.leman.v1.RetryJobRequest.class,
      responseType = dev.leman.v1.RetryJobResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.RetryJobRequest,
      dev.leman.v1.RetryJobResponse> getRetryJobMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.RetryJobRequest, dev.leman.v1.RetryJobResponse> getRetryJobMethod;
    if ((getRetryJobMethod = JobServiceGrpc.getRetryJobMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getRetryJobMethod = JobServiceGrpc.getRetryJobMethod) == null) {
          JobServiceGrpc.getRetryJobMethod = getRetryJobMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.RetryJobRequest, dev.leman.v1.RetryJobResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "RetryJob"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RetryJobRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.RetryJobResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("RetryJob"))
              .build();
        }
      }
    }
    return getRetryJobMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.ListJobErrorsRequest,
      dev.leman.v1.ListJobErrorsResponse> getListJobErrorsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListJobErrors",
      requestType = dev.leman.v1.ListJobErrorsRequest.class,
      responseType = dev.leman.v1.ListJobErrorsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.ListJobErrorsRequest,
      dev.leman.v1.ListJobErrorsResponse> getListJobErrorsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.ListJobErrorsRequest, dev.leman.v1.ListJobErrorsResponse> getListJobErrorsMethod;
    if ((getListJobErrorsMethod = JobServiceGrpc.getListJobErrorsMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getListJobErrorsMethod = JobServiceGrpc.getListJobErrorsMethod) == null) {
          JobServiceGrpc.getListJobErrorsMethod = getListJobErrorsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.ListJobErrorsRequest, dev.leman.v1.ListJobErrorsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListJobErrors"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListJobErrorsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.ListJobErrorsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("ListJobErrors"))
              .build();
        }
      }
    }
    return getListJobErrorsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GroupJobErrorsRequest,
      dev.leman.v1.GroupJobErrorsResponse> getGroupJobErrorsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GroupJobErrors",
      requestType = dev.leman.v1.GroupJobErrorsRequest.class,
      responseType = dev.leman.v1.GroupJobErrorsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GroupJobErrorsRequest,
      dev.leman.v1.GroupJobErrorsResponse> getGroupJobErrorsMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GroupJobErrorsRequest, dev.leman.v1.GroupJobErrorsResponse> getGroupJobErrorsMethod;
    if ((getGroupJobErrorsMethod = JobServiceGrpc.getGroupJobErrorsMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getGroupJobErrorsMethod = JobServiceGrpc.getGroupJobErrorsMethod) == null) {
          JobServiceGrpc.getGroupJobErrorsMethod = getGroupJobErrorsMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GroupJobErrorsRequest, dev.leman.v1.GroupJobErrorsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GroupJobErrors"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GroupJobErrorsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GroupJobErrorsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("GroupJobErrors"))
              .build();
        }
      }
    }
    return getGroupJobErrorsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.PreviewFunctionRequest,
      dev.leman.v1.PreviewFunctionResponse> getPreviewFunctionMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "PreviewFunction",
      requestType = dev.leman.v1.PreviewFunctionRequest.class,
      responseType = dev.leman.v1.PreviewFunctionResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.PreviewFunctionRequest,
      dev.leman.v1.PreviewFunctionResponse> getPreviewFunctionMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.PreviewFunctionRequest, dev.leman.v1.PreviewFunctionResponse> getPreviewFunctionMethod;
    if ((getPreviewFunctionMethod = JobServiceGrpc.getPreviewFunctionMethod) == null) {
      synchronized (JobServiceGrpc.class) {
        if ((getPreviewFunctionMethod = JobServiceGrpc.getPreviewFunctionMethod) == null) {
          JobServiceGrpc.getPreviewFunctionMethod = getPreviewFunctionMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.PreviewFunctionRequest, dev.leman.v1.PreviewFunctionResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "PreviewFunction"))
              .setIdempotent(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.PreviewFunctionRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.PreviewFunctionResponse.getDefaultInstance()))
              .setSchemaDescriptor(new JobServiceMethodDescriptorSupplier("PreviewFunction"))
              .build();
        }
      }
    }
    return getPreviewFunctionMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static JobServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<JobServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<JobServiceStub>() {
        @java.lang.Override
        public JobServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new JobServiceStub(channel, callOptions);
        }
      };
    return JobServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static JobServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<JobServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<JobServiceBlockingV2Stub>() {
        @java.lang.Override
        public JobServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new JobServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return JobServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static JobServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<JobServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<JobServiceBlockingStub>() {
        @java.lang.Override
        public JobServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new JobServiceBlockingStub(channel, callOptions);
        }
      };
    return JobServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static JobServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<JobServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<JobServiceFutureStub>() {
        @java.lang.Override
        public JobServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new JobServiceFutureStub(channel, callOptions);
        }
      };
    return JobServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Runs jobs. Served by the executor.
   * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
   * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
     * Accepts a job and returns once it is planned. The job is then running, or queued (PENDING) if the limit of running
     * jobs is reached, or already done if there was little or nothing to do (such as a refresh that appends or evicts few
     * rows and calls no function). If the call is interrupted, the job either was not created or runs to its end: a retry
     * with the same request id returns it.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_STALE): the column or the view reads computed columns that are not current;
     *   backfill these first, or set BackfillSpec.on_stale_input or RefreshSpec.on_stale_input.
     * * `INVALID_ARGUMENT` (BAD_ENV): an invalid variable in `env`, or too many; correct it.
     * * `FAILED_PRECONDITION` (ENV_NOT_USABLE): SQL and remote functions cannot use the job's environment; leave `env`
     *   out.
     * * `PERMISSION_DENIED` (ENV_NOT_ALLOWED): the policy of the services does not allow that variable; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_LABEL): an invalid label, or too many; correct it.
     * * Those of PlannerService.ExplainPlan, such as `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and
     *   `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED), for a refresh of PlannerService.ExplainRefresh: the plan is made
     *   before the answer.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    default void createJob(dev.leman.v1.CreateJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CreateJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCreateJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * One job, running or from history.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * </pre>
     */
    default void getJob(dev.leman.v1.GetJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Jobs that match a filter, newest first by default.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state or an order that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_TIME): an invalid time; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    default void listJobs(dev.leman.v1.ListJobsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListJobsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListJobsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Streams the changes of a job. The first message has its current state. Further messages come when something has
     * changed, and at least every 15 seconds. The last message has a terminal state. Every message has the whole job.
     * If a stream ends before a terminal state, resume it with a new call whose `after_sequence` is the `sequence` of the
     * last message received. This works on any executor, and after restarts. No event is then repeated, the end of the
     * job is always reported, and `events_missing` says if other events may be missing.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `after_sequence` is negative; give 0, or the sequence of a message.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; watch again.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; watch again, and read what comes.
     * </pre>
     */
    default void watchJob(dev.leman.v1.WatchJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.WatchJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getWatchJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Waits until a job has ended, or until `timeout` has passed, and returns the current job; a paused job has not
     * ended. For callers that cannot hold a stream; others use WatchJob.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `timeout` is negative; set a time, or leave it out.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; wait again.
     * </pre>
     */
    default void waitJob(dev.leman.v1.WaitJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.WaitJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getWaitJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Changes labels or the priority of a job that has not ended. The priority matters only while the job waits for its
     * turn.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name `labels`,
     *   `priority` or both.
     * * `INVALID_ARGUMENT` (BAD_LABEL, BAD_NUMBER): an invalid label or priority; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    default void updateJob(dev.leman.v1.UpdateJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UpdateJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getUpdateJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Cancels a job. Finished work is kept. Returns the updated job; an ended job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    default void cancelJob(dev.leman.v1.CancelJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CancelJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCancelJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Pauses a job. Running calls of the function finish first, computed rows are checkpointed, and complete files are
     * committed, so that nothing is computed again. Meanwhile the job is PAUSING, and then PAUSED. It releases its slot,
     * its workers and its reservations, and stays PAUSED over restarts and takeovers, until it is resumed or cancelled. A
     * job that finishes before it has paused ends normally. A queued job is PAUSED at once. A paused job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    default void pauseJob(dev.leman.v1.PauseJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.PauseJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getPauseJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Resumes a job that is paused or pausing: it is queued with its original age (PENDING), planned again, and computes
     * what is left. A job that is not paused stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    default void resumeJob(dev.leman.v1.ResumeJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ResumeJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getResumeJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Cancels all open jobs that match a filter, like CancelJob. A retry cancels the remaining ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `filter` is not set; set an empty one to cancel all jobs of the database.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE, BAD_TIME): as for ListJobs.
     * </pre>
     */
    default void cancelJobs(dev.leman.v1.CancelJobsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CancelJobsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCancelJobsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Deletes an ended job from the history, with its stored failed rows. Computed values stay in its table, and
     * checkpoints for later jobs stay too. Its id and its request id are not used again. Other jobs may still refer to it
     * (`retry_of`, `failed_in`). Other executors may return it for two more seconds. Deleting it again succeeds.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job and never had; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * </pre>
     */
    default void deleteJob(dev.leman.v1.DeleteJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DeleteJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDeleteJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * Starts a job that calls the function again, only for the rows of an ended job's column that are marked as failed.
     * They are found by their state in the table, even if updates or compaction have moved them. A row whose inputs
     * changed since counts as not computed, not as failed: a plain backfill computes it.
     * With another function, the column has that function from then on. `keep_others` controls the other rows. If true,
     * they keep their values and count as current, and only rows that failed under the earlier version are computed; the
     * version that computed a value is then recorded for each row. If false, they are stale, as after
     * CatalogService.AlterColumns, and the job computes them too.
     * The job's `where` applies to its retry.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * * `FAILED_PRECONDITION` (NOT_A_BACKFILL): the job refreshed a view, or filled several columns and another function
     *   is given; do what the message says.
     * * `ABORTED` (TABLE_REPLACED): the job's table was dropped, and a new table has its name; backfill that one if it is
     *   meant.
     * * `FAILED_PRECONDITION` (NOTHING_TO_RETRY): the job ended early and no row is marked as failed; run the backfill
     *   again.
     * * `FAILED_PRECONDITION` (KEEP_OTHERS_FUNCTION): the job computed with a function that is not the column's; leave
     *   `keep_others` out.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * Those of CatalogService.AlterColumns, with another function, and of PlannerService.ExplainPlan.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    default void retryJob(dev.leman.v1.RetryJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RetryJobResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getRetryJobMethod(), responseObserver);
    }

    /**
     * <pre>
     * The rows of a job for which the function failed. `warnings` lists rows that are lost because files were damaged or
     * removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    default void listJobErrors(dev.leman.v1.ListJobErrorsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListJobErrorsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListJobErrorsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Counts the rows of a job for which the function failed, grouped by cause. Rows with the same class of exception
     * form one group if the first lines of their messages (of a validation error by pydantic also its fields and reasons)
     * differ only in numbers and quoted texts. The rows are those of ListJobErrors. `warnings` lists rows that are lost because files were damaged or removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `examples` is negative or above 5; give a number within its bounds.
     * </pre>
     */
    default void groupJobErrors(dev.leman.v1.GroupJobErrorsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GroupJobErrorsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGroupJobErrorsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Tries a function on a few rows of a table, and returns its results, its errors and its duration. The rows are read,
     * passed to the function and converted as in a job, but in a function process on the executor's machine, without
     * Spark. Nothing is written: no column, no checkpoint, no version and no job. A function that the request defines is
     * not registered. Side effects of the function itself do happen.
     * If the function fails on a row, ends its process or does not return, the call succeeds and reports this with the
     * row. If the caller disconnects, the function's process ends.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER, BAD_UDF): no function is named, or fields contradict each other, or
     *   a number is out of its bounds; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (UDF_NOT_LOADABLE, UDF_DIGEST_MISMATCH, UDF_PYTHON_MISMATCH): the function cannot be set
     *   up, or not within the preview's timeout; install what it imports, or send its bundle.
     * * `FAILED_PRECONDITION` (UDF_BROKE_DESCRIPTORS): the function closed descriptors that its process needs; do what
     *   the message says.
     * * `FAILED_PRECONDITION` (WORKER_LOST): the function's process ended before it was called; try again.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): no process for functions starts; do what the message says.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_TLS_FAILED, FUNCTION_VERSION_MISMATCH,
     *   FUNCTION_SIGNATURE_MISMATCH, FUNCTION_PROTOCOL), `UNAVAILABLE` (FUNCTION_UNAVAILABLE), `NOT_FOUND`
     *   (FUNCTION_NOT_FOUND): the server of a remote function; as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; correct it.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner set, or is refused by
     *   it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner; retry the same call after RetryInfo's
     *   delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * Those of CatalogService.AddColumns for a function, of PlannerService.ExplainPlan for a column, such as
     *   `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED).
     * </pre>
     */
    default void previewFunction(dev.leman.v1.PreviewFunctionRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.PreviewFunctionResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getPreviewFunctionMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service JobService.
   * <pre>
   * Runs jobs. Served by the executor.
   * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
   * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
  public static abstract class JobServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return JobServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service JobService.
   * <pre>
   * Runs jobs. Served by the executor.
   * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
   * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
  public static final class JobServiceStub
      extends io.grpc.stub.AbstractAsyncStub<JobServiceStub> {
    private JobServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected JobServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new JobServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Accepts a job and returns once it is planned. The job is then running, or queued (PENDING) if the limit of running
     * jobs is reached, or already done if there was little or nothing to do (such as a refresh that appends or evicts few
     * rows and calls no function). If the call is interrupted, the job either was not created or runs to its end: a retry
     * with the same request id returns it.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_STALE): the column or the view reads computed columns that are not current;
     *   backfill these first, or set BackfillSpec.on_stale_input or RefreshSpec.on_stale_input.
     * * `INVALID_ARGUMENT` (BAD_ENV): an invalid variable in `env`, or too many; correct it.
     * * `FAILED_PRECONDITION` (ENV_NOT_USABLE): SQL and remote functions cannot use the job's environment; leave `env`
     *   out.
     * * `PERMISSION_DENIED` (ENV_NOT_ALLOWED): the policy of the services does not allow that variable; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_LABEL): an invalid label, or too many; correct it.
     * * Those of PlannerService.ExplainPlan, such as `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and
     *   `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED), for a refresh of PlannerService.ExplainRefresh: the plan is made
     *   before the answer.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public void createJob(dev.leman.v1.CreateJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CreateJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCreateJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * One job, running or from history.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * </pre>
     */
    public void getJob(dev.leman.v1.GetJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Jobs that match a filter, newest first by default.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state or an order that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_TIME): an invalid time; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public void listJobs(dev.leman.v1.ListJobsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListJobsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListJobsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Streams the changes of a job. The first message has its current state. Further messages come when something has
     * changed, and at least every 15 seconds. The last message has a terminal state. Every message has the whole job.
     * If a stream ends before a terminal state, resume it with a new call whose `after_sequence` is the `sequence` of the
     * last message received. This works on any executor, and after restarts. No event is then repeated, the end of the
     * job is always reported, and `events_missing` says if other events may be missing.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `after_sequence` is negative; give 0, or the sequence of a message.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; watch again.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; watch again, and read what comes.
     * </pre>
     */
    public void watchJob(dev.leman.v1.WatchJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.WatchJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getWatchJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Waits until a job has ended, or until `timeout` has passed, and returns the current job; a paused job has not
     * ended. For callers that cannot hold a stream; others use WatchJob.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `timeout` is negative; set a time, or leave it out.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; wait again.
     * </pre>
     */
    public void waitJob(dev.leman.v1.WaitJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.WaitJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getWaitJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Changes labels or the priority of a job that has not ended. The priority matters only while the job waits for its
     * turn.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name `labels`,
     *   `priority` or both.
     * * `INVALID_ARGUMENT` (BAD_LABEL, BAD_NUMBER): an invalid label or priority; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public void updateJob(dev.leman.v1.UpdateJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.UpdateJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getUpdateJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Cancels a job. Finished work is kept. Returns the updated job; an ended job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public void cancelJob(dev.leman.v1.CancelJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CancelJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCancelJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Pauses a job. Running calls of the function finish first, computed rows are checkpointed, and complete files are
     * committed, so that nothing is computed again. Meanwhile the job is PAUSING, and then PAUSED. It releases its slot,
     * its workers and its reservations, and stays PAUSED over restarts and takeovers, until it is resumed or cancelled. A
     * job that finishes before it has paused ends normally. A queued job is PAUSED at once. A paused job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public void pauseJob(dev.leman.v1.PauseJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.PauseJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getPauseJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Resumes a job that is paused or pausing: it is queued with its original age (PENDING), planned again, and computes
     * what is left. A job that is not paused stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public void resumeJob(dev.leman.v1.ResumeJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ResumeJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getResumeJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Cancels all open jobs that match a filter, like CancelJob. A retry cancels the remaining ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `filter` is not set; set an empty one to cancel all jobs of the database.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE, BAD_TIME): as for ListJobs.
     * </pre>
     */
    public void cancelJobs(dev.leman.v1.CancelJobsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.CancelJobsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCancelJobsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Deletes an ended job from the history, with its stored failed rows. Computed values stay in its table, and
     * checkpoints for later jobs stay too. Its id and its request id are not used again. Other jobs may still refer to it
     * (`retry_of`, `failed_in`). Other executors may return it for two more seconds. Deleting it again succeeds.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job and never had; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * </pre>
     */
    public void deleteJob(dev.leman.v1.DeleteJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.DeleteJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDeleteJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Starts a job that calls the function again, only for the rows of an ended job's column that are marked as failed.
     * They are found by their state in the table, even if updates or compaction have moved them. A row whose inputs
     * changed since counts as not computed, not as failed: a plain backfill computes it.
     * With another function, the column has that function from then on. `keep_others` controls the other rows. If true,
     * they keep their values and count as current, and only rows that failed under the earlier version are computed; the
     * version that computed a value is then recorded for each row. If false, they are stale, as after
     * CatalogService.AlterColumns, and the job computes them too.
     * The job's `where` applies to its retry.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * * `FAILED_PRECONDITION` (NOT_A_BACKFILL): the job refreshed a view, or filled several columns and another function
     *   is given; do what the message says.
     * * `ABORTED` (TABLE_REPLACED): the job's table was dropped, and a new table has its name; backfill that one if it is
     *   meant.
     * * `FAILED_PRECONDITION` (NOTHING_TO_RETRY): the job ended early and no row is marked as failed; run the backfill
     *   again.
     * * `FAILED_PRECONDITION` (KEEP_OTHERS_FUNCTION): the job computed with a function that is not the column's; leave
     *   `keep_others` out.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * Those of CatalogService.AlterColumns, with another function, and of PlannerService.ExplainPlan.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public void retryJob(dev.leman.v1.RetryJobRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.RetryJobResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getRetryJobMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * The rows of a job for which the function failed. `warnings` lists rows that are lost because files were damaged or
     * removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public void listJobErrors(dev.leman.v1.ListJobErrorsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.ListJobErrorsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListJobErrorsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Counts the rows of a job for which the function failed, grouped by cause. Rows with the same class of exception
     * form one group if the first lines of their messages (of a validation error by pydantic also its fields and reasons)
     * differ only in numbers and quoted texts. The rows are those of ListJobErrors. `warnings` lists rows that are lost because files were damaged or removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `examples` is negative or above 5; give a number within its bounds.
     * </pre>
     */
    public void groupJobErrors(dev.leman.v1.GroupJobErrorsRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GroupJobErrorsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGroupJobErrorsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Tries a function on a few rows of a table, and returns its results, its errors and its duration. The rows are read,
     * passed to the function and converted as in a job, but in a function process on the executor's machine, without
     * Spark. Nothing is written: no column, no checkpoint, no version and no job. A function that the request defines is
     * not registered. Side effects of the function itself do happen.
     * If the function fails on a row, ends its process or does not return, the call succeeds and reports this with the
     * row. If the caller disconnects, the function's process ends.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER, BAD_UDF): no function is named, or fields contradict each other, or
     *   a number is out of its bounds; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (UDF_NOT_LOADABLE, UDF_DIGEST_MISMATCH, UDF_PYTHON_MISMATCH): the function cannot be set
     *   up, or not within the preview's timeout; install what it imports, or send its bundle.
     * * `FAILED_PRECONDITION` (UDF_BROKE_DESCRIPTORS): the function closed descriptors that its process needs; do what
     *   the message says.
     * * `FAILED_PRECONDITION` (WORKER_LOST): the function's process ended before it was called; try again.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): no process for functions starts; do what the message says.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_TLS_FAILED, FUNCTION_VERSION_MISMATCH,
     *   FUNCTION_SIGNATURE_MISMATCH, FUNCTION_PROTOCOL), `UNAVAILABLE` (FUNCTION_UNAVAILABLE), `NOT_FOUND`
     *   (FUNCTION_NOT_FOUND): the server of a remote function; as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; correct it.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner set, or is refused by
     *   it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner; retry the same call after RetryInfo's
     *   delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * Those of CatalogService.AddColumns for a function, of PlannerService.ExplainPlan for a column, such as
     *   `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED).
     * </pre>
     */
    public void previewFunction(dev.leman.v1.PreviewFunctionRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.PreviewFunctionResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getPreviewFunctionMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service JobService.
   * <pre>
   * Runs jobs. Served by the executor.
   * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
   * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
  public static final class JobServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<JobServiceBlockingV2Stub> {
    private JobServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected JobServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new JobServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Accepts a job and returns once it is planned. The job is then running, or queued (PENDING) if the limit of running
     * jobs is reached, or already done if there was little or nothing to do (such as a refresh that appends or evicts few
     * rows and calls no function). If the call is interrupted, the job either was not created or runs to its end: a retry
     * with the same request id returns it.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_STALE): the column or the view reads computed columns that are not current;
     *   backfill these first, or set BackfillSpec.on_stale_input or RefreshSpec.on_stale_input.
     * * `INVALID_ARGUMENT` (BAD_ENV): an invalid variable in `env`, or too many; correct it.
     * * `FAILED_PRECONDITION` (ENV_NOT_USABLE): SQL and remote functions cannot use the job's environment; leave `env`
     *   out.
     * * `PERMISSION_DENIED` (ENV_NOT_ALLOWED): the policy of the services does not allow that variable; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_LABEL): an invalid label, or too many; correct it.
     * * Those of PlannerService.ExplainPlan, such as `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and
     *   `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED), for a refresh of PlannerService.ExplainRefresh: the plan is made
     *   before the answer.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.CreateJobResponse createJob(dev.leman.v1.CreateJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCreateJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One job, running or from history.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * </pre>
     */
    public dev.leman.v1.GetJobResponse getJob(dev.leman.v1.GetJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Jobs that match a filter, newest first by default.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state or an order that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_TIME): an invalid time; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListJobsResponse listJobs(dev.leman.v1.ListJobsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListJobsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Streams the changes of a job. The first message has its current state. Further messages come when something has
     * changed, and at least every 15 seconds. The last message has a terminal state. Every message has the whole job.
     * If a stream ends before a terminal state, resume it with a new call whose `after_sequence` is the `sequence` of the
     * last message received. This works on any executor, and after restarts. No event is then repeated, the end of the
     * job is always reported, and `events_missing` says if other events may be missing.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `after_sequence` is negative; give 0, or the sequence of a message.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; watch again.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; watch again, and read what comes.
     * </pre>
     */
    @io.grpc.ExperimentalApi("https://github.com/grpc/grpc-java/issues/10918")
    public io.grpc.stub.BlockingClientCall<?, dev.leman.v1.WatchJobResponse>
        watchJob(dev.leman.v1.WatchJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingV2ServerStreamingCall(
          getChannel(), getWatchJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Waits until a job has ended, or until `timeout` has passed, and returns the current job; a paused job has not
     * ended. For callers that cannot hold a stream; others use WatchJob.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `timeout` is negative; set a time, or leave it out.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; wait again.
     * </pre>
     */
    public dev.leman.v1.WaitJobResponse waitJob(dev.leman.v1.WaitJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getWaitJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Changes labels or the priority of a job that has not ended. The priority matters only while the job waits for its
     * turn.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name `labels`,
     *   `priority` or both.
     * * `INVALID_ARGUMENT` (BAD_LABEL, BAD_NUMBER): an invalid label or priority; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.UpdateJobResponse updateJob(dev.leman.v1.UpdateJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getUpdateJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Cancels a job. Finished work is kept. Returns the updated job; an ended job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.CancelJobResponse cancelJob(dev.leman.v1.CancelJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCancelJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Pauses a job. Running calls of the function finish first, computed rows are checkpointed, and complete files are
     * committed, so that nothing is computed again. Meanwhile the job is PAUSING, and then PAUSED. It releases its slot,
     * its workers and its reservations, and stays PAUSED over restarts and takeovers, until it is resumed or cancelled. A
     * job that finishes before it has paused ends normally. A queued job is PAUSED at once. A paused job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.PauseJobResponse pauseJob(dev.leman.v1.PauseJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getPauseJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Resumes a job that is paused or pausing: it is queued with its original age (PENDING), planned again, and computes
     * what is left. A job that is not paused stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.ResumeJobResponse resumeJob(dev.leman.v1.ResumeJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getResumeJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Cancels all open jobs that match a filter, like CancelJob. A retry cancels the remaining ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `filter` is not set; set an empty one to cancel all jobs of the database.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE, BAD_TIME): as for ListJobs.
     * </pre>
     */
    public dev.leman.v1.CancelJobsResponse cancelJobs(dev.leman.v1.CancelJobsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getCancelJobsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Deletes an ended job from the history, with its stored failed rows. Computed values stay in its table, and
     * checkpoints for later jobs stay too. Its id and its request id are not used again. Other jobs may still refer to it
     * (`retry_of`, `failed_in`). Other executors may return it for two more seconds. Deleting it again succeeds.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job and never had; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * </pre>
     */
    public dev.leman.v1.DeleteJobResponse deleteJob(dev.leman.v1.DeleteJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getDeleteJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Starts a job that calls the function again, only for the rows of an ended job's column that are marked as failed.
     * They are found by their state in the table, even if updates or compaction have moved them. A row whose inputs
     * changed since counts as not computed, not as failed: a plain backfill computes it.
     * With another function, the column has that function from then on. `keep_others` controls the other rows. If true,
     * they keep their values and count as current, and only rows that failed under the earlier version are computed; the
     * version that computed a value is then recorded for each row. If false, they are stale, as after
     * CatalogService.AlterColumns, and the job computes them too.
     * The job's `where` applies to its retry.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * * `FAILED_PRECONDITION` (NOT_A_BACKFILL): the job refreshed a view, or filled several columns and another function
     *   is given; do what the message says.
     * * `ABORTED` (TABLE_REPLACED): the job's table was dropped, and a new table has its name; backfill that one if it is
     *   meant.
     * * `FAILED_PRECONDITION` (NOTHING_TO_RETRY): the job ended early and no row is marked as failed; run the backfill
     *   again.
     * * `FAILED_PRECONDITION` (KEEP_OTHERS_FUNCTION): the job computed with a function that is not the column's; leave
     *   `keep_others` out.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * Those of CatalogService.AlterColumns, with another function, and of PlannerService.ExplainPlan.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.RetryJobResponse retryJob(dev.leman.v1.RetryJobRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getRetryJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The rows of a job for which the function failed. `warnings` lists rows that are lost because files were damaged or
     * removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListJobErrorsResponse listJobErrors(dev.leman.v1.ListJobErrorsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getListJobErrorsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Counts the rows of a job for which the function failed, grouped by cause. Rows with the same class of exception
     * form one group if the first lines of their messages (of a validation error by pydantic also its fields and reasons)
     * differ only in numbers and quoted texts. The rows are those of ListJobErrors. `warnings` lists rows that are lost because files were damaged or removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `examples` is negative or above 5; give a number within its bounds.
     * </pre>
     */
    public dev.leman.v1.GroupJobErrorsResponse groupJobErrors(dev.leman.v1.GroupJobErrorsRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGroupJobErrorsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Tries a function on a few rows of a table, and returns its results, its errors and its duration. The rows are read,
     * passed to the function and converted as in a job, but in a function process on the executor's machine, without
     * Spark. Nothing is written: no column, no checkpoint, no version and no job. A function that the request defines is
     * not registered. Side effects of the function itself do happen.
     * If the function fails on a row, ends its process or does not return, the call succeeds and reports this with the
     * row. If the caller disconnects, the function's process ends.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER, BAD_UDF): no function is named, or fields contradict each other, or
     *   a number is out of its bounds; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (UDF_NOT_LOADABLE, UDF_DIGEST_MISMATCH, UDF_PYTHON_MISMATCH): the function cannot be set
     *   up, or not within the preview's timeout; install what it imports, or send its bundle.
     * * `FAILED_PRECONDITION` (UDF_BROKE_DESCRIPTORS): the function closed descriptors that its process needs; do what
     *   the message says.
     * * `FAILED_PRECONDITION` (WORKER_LOST): the function's process ended before it was called; try again.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): no process for functions starts; do what the message says.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_TLS_FAILED, FUNCTION_VERSION_MISMATCH,
     *   FUNCTION_SIGNATURE_MISMATCH, FUNCTION_PROTOCOL), `UNAVAILABLE` (FUNCTION_UNAVAILABLE), `NOT_FOUND`
     *   (FUNCTION_NOT_FOUND): the server of a remote function; as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; correct it.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner set, or is refused by
     *   it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner; retry the same call after RetryInfo's
     *   delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * Those of CatalogService.AddColumns for a function, of PlannerService.ExplainPlan for a column, such as
     *   `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED).
     * </pre>
     */
    public dev.leman.v1.PreviewFunctionResponse previewFunction(dev.leman.v1.PreviewFunctionRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getPreviewFunctionMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service JobService.
   * <pre>
   * Runs jobs. Served by the executor.
   * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
   * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
  public static final class JobServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<JobServiceBlockingStub> {
    private JobServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected JobServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new JobServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Accepts a job and returns once it is planned. The job is then running, or queued (PENDING) if the limit of running
     * jobs is reached, or already done if there was little or nothing to do (such as a refresh that appends or evicts few
     * rows and calls no function). If the call is interrupted, the job either was not created or runs to its end: a retry
     * with the same request id returns it.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_STALE): the column or the view reads computed columns that are not current;
     *   backfill these first, or set BackfillSpec.on_stale_input or RefreshSpec.on_stale_input.
     * * `INVALID_ARGUMENT` (BAD_ENV): an invalid variable in `env`, or too many; correct it.
     * * `FAILED_PRECONDITION` (ENV_NOT_USABLE): SQL and remote functions cannot use the job's environment; leave `env`
     *   out.
     * * `PERMISSION_DENIED` (ENV_NOT_ALLOWED): the policy of the services does not allow that variable; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_LABEL): an invalid label, or too many; correct it.
     * * Those of PlannerService.ExplainPlan, such as `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and
     *   `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED), for a refresh of PlannerService.ExplainRefresh: the plan is made
     *   before the answer.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.CreateJobResponse createJob(dev.leman.v1.CreateJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCreateJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * One job, running or from history.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * </pre>
     */
    public dev.leman.v1.GetJobResponse getJob(dev.leman.v1.GetJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Jobs that match a filter, newest first by default.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state or an order that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_TIME): an invalid time; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListJobsResponse listJobs(dev.leman.v1.ListJobsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListJobsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Streams the changes of a job. The first message has its current state. Further messages come when something has
     * changed, and at least every 15 seconds. The last message has a terminal state. Every message has the whole job.
     * If a stream ends before a terminal state, resume it with a new call whose `after_sequence` is the `sequence` of the
     * last message received. This works on any executor, and after restarts. No event is then repeated, the end of the
     * job is always reported, and `events_missing` says if other events may be missing.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `after_sequence` is negative; give 0, or the sequence of a message.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; watch again.
     * * `UNAVAILABLE` (READER_STALLED): the reader took no message for a minute; watch again, and read what comes.
     * </pre>
     */
    public java.util.Iterator<dev.leman.v1.WatchJobResponse> watchJob(
        dev.leman.v1.WatchJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getWatchJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Waits until a job has ended, or until `timeout` has passed, and returns the current job; a paused job has not
     * ended. For callers that cannot hold a stream; others use WatchJob.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `timeout` is negative; set a time, or leave it out.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; wait again.
     * </pre>
     */
    public dev.leman.v1.WaitJobResponse waitJob(dev.leman.v1.WaitJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getWaitJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Changes labels or the priority of a job that has not ended. The priority matters only while the job waits for its
     * turn.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name `labels`,
     *   `priority` or both.
     * * `INVALID_ARGUMENT` (BAD_LABEL, BAD_NUMBER): an invalid label or priority; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.UpdateJobResponse updateJob(dev.leman.v1.UpdateJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getUpdateJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Cancels a job. Finished work is kept. Returns the updated job; an ended job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.CancelJobResponse cancelJob(dev.leman.v1.CancelJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCancelJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Pauses a job. Running calls of the function finish first, computed rows are checkpointed, and complete files are
     * committed, so that nothing is computed again. Meanwhile the job is PAUSING, and then PAUSED. It releases its slot,
     * its workers and its reservations, and stays PAUSED over restarts and takeovers, until it is resumed or cancelled. A
     * job that finishes before it has paused ends normally. A queued job is PAUSED at once. A paused job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.PauseJobResponse pauseJob(dev.leman.v1.PauseJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getPauseJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Resumes a job that is paused or pausing: it is queued with its original age (PENDING), planned again, and computes
     * what is left. A job that is not paused stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public dev.leman.v1.ResumeJobResponse resumeJob(dev.leman.v1.ResumeJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getResumeJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Cancels all open jobs that match a filter, like CancelJob. A retry cancels the remaining ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `filter` is not set; set an empty one to cancel all jobs of the database.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE, BAD_TIME): as for ListJobs.
     * </pre>
     */
    public dev.leman.v1.CancelJobsResponse cancelJobs(dev.leman.v1.CancelJobsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCancelJobsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Deletes an ended job from the history, with its stored failed rows. Computed values stay in its table, and
     * checkpoints for later jobs stay too. Its id and its request id are not used again. Other jobs may still refer to it
     * (`retry_of`, `failed_in`). Other executors may return it for two more seconds. Deleting it again succeeds.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job and never had; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * </pre>
     */
    public dev.leman.v1.DeleteJobResponse deleteJob(dev.leman.v1.DeleteJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDeleteJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Starts a job that calls the function again, only for the rows of an ended job's column that are marked as failed.
     * They are found by their state in the table, even if updates or compaction have moved them. A row whose inputs
     * changed since counts as not computed, not as failed: a plain backfill computes it.
     * With another function, the column has that function from then on. `keep_others` controls the other rows. If true,
     * they keep their values and count as current, and only rows that failed under the earlier version are computed; the
     * version that computed a value is then recorded for each row. If false, they are stale, as after
     * CatalogService.AlterColumns, and the job computes them too.
     * The job's `where` applies to its retry.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * * `FAILED_PRECONDITION` (NOT_A_BACKFILL): the job refreshed a view, or filled several columns and another function
     *   is given; do what the message says.
     * * `ABORTED` (TABLE_REPLACED): the job's table was dropped, and a new table has its name; backfill that one if it is
     *   meant.
     * * `FAILED_PRECONDITION` (NOTHING_TO_RETRY): the job ended early and no row is marked as failed; run the backfill
     *   again.
     * * `FAILED_PRECONDITION` (KEEP_OTHERS_FUNCTION): the job computed with a function that is not the column's; leave
     *   `keep_others` out.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * Those of CatalogService.AlterColumns, with another function, and of PlannerService.ExplainPlan.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public dev.leman.v1.RetryJobResponse retryJob(dev.leman.v1.RetryJobRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getRetryJobMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * The rows of a job for which the function failed. `warnings` lists rows that are lost because files were damaged or
     * removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public dev.leman.v1.ListJobErrorsResponse listJobErrors(dev.leman.v1.ListJobErrorsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListJobErrorsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Counts the rows of a job for which the function failed, grouped by cause. Rows with the same class of exception
     * form one group if the first lines of their messages (of a validation error by pydantic also its fields and reasons)
     * differ only in numbers and quoted texts. The rows are those of ListJobErrors. `warnings` lists rows that are lost because files were damaged or removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `examples` is negative or above 5; give a number within its bounds.
     * </pre>
     */
    public dev.leman.v1.GroupJobErrorsResponse groupJobErrors(dev.leman.v1.GroupJobErrorsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGroupJobErrorsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Tries a function on a few rows of a table, and returns its results, its errors and its duration. The rows are read,
     * passed to the function and converted as in a job, but in a function process on the executor's machine, without
     * Spark. Nothing is written: no column, no checkpoint, no version and no job. A function that the request defines is
     * not registered. Side effects of the function itself do happen.
     * If the function fails on a row, ends its process or does not return, the call succeeds and reports this with the
     * row. If the caller disconnects, the function's process ends.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER, BAD_UDF): no function is named, or fields contradict each other, or
     *   a number is out of its bounds; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (UDF_NOT_LOADABLE, UDF_DIGEST_MISMATCH, UDF_PYTHON_MISMATCH): the function cannot be set
     *   up, or not within the preview's timeout; install what it imports, or send its bundle.
     * * `FAILED_PRECONDITION` (UDF_BROKE_DESCRIPTORS): the function closed descriptors that its process needs; do what
     *   the message says.
     * * `FAILED_PRECONDITION` (WORKER_LOST): the function's process ended before it was called; try again.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): no process for functions starts; do what the message says.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_TLS_FAILED, FUNCTION_VERSION_MISMATCH,
     *   FUNCTION_SIGNATURE_MISMATCH, FUNCTION_PROTOCOL), `UNAVAILABLE` (FUNCTION_UNAVAILABLE), `NOT_FOUND`
     *   (FUNCTION_NOT_FOUND): the server of a remote function; as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; correct it.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner set, or is refused by
     *   it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner; retry the same call after RetryInfo's
     *   delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * Those of CatalogService.AddColumns for a function, of PlannerService.ExplainPlan for a column, such as
     *   `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED).
     * </pre>
     */
    public dev.leman.v1.PreviewFunctionResponse previewFunction(dev.leman.v1.PreviewFunctionRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getPreviewFunctionMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service JobService.
   * <pre>
   * Runs jobs. Served by the executor.
   * A job that cannot start is an error of CreateJob; one that fails while it runs carries a google.rpc.Status. Every
   * error carries google.rpc.ErrorInfo with domain `leman`, a reason and facts; reasons are in parentheses.
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
  public static final class JobServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<JobServiceFutureStub> {
    private JobServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected JobServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new JobServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Accepts a job and returns once it is planned. The job is then running, or queued (PENDING) if the limit of running
     * jobs is reached, or already done if there was little or nothing to do (such as a refresh that appends or evicts few
     * rows and calls no function). If the call is interrupted, the job either was not created or runs to its end: a retry
     * with the same request id returns it.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `FAILED_PRECONDITION` (INPUT_COLUMN_STALE): the column or the view reads computed columns that are not current;
     *   backfill these first, or set BackfillSpec.on_stale_input or RefreshSpec.on_stale_input.
     * * `INVALID_ARGUMENT` (BAD_ENV): an invalid variable in `env`, or too many; correct it.
     * * `FAILED_PRECONDITION` (ENV_NOT_USABLE): SQL and remote functions cannot use the job's environment; leave `env`
     *   out.
     * * `PERMISSION_DENIED` (ENV_NOT_ALLOWED): the policy of the services does not allow that variable; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_LABEL): an invalid label, or too many; correct it.
     * * Those of PlannerService.ExplainPlan, such as `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and
     *   `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED), for a refresh of PlannerService.ExplainRefresh: the plan is made
     *   before the answer.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.CreateJobResponse> createJob(
        dev.leman.v1.CreateJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCreateJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * One job, running or from history.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetJobResponse> getJob(
        dev.leman.v1.GetJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Jobs that match a filter, newest first by default.
     * Errors:
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE): a state or an order that this release does not know; ask for one that it does.
     * * `INVALID_ARGUMENT` (BAD_TIME): an invalid time; correct the field that BadRequest names.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListJobsResponse> listJobs(
        dev.leman.v1.ListJobsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListJobsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Waits until a job has ended, or until `timeout` has passed, and returns the current job; a paused job has not
     * ended. For callers that cannot hold a stream; others use WatchJob.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `timeout` is negative; set a time, or leave it out.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; wait again.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.WaitJobResponse> waitJob(
        dev.leman.v1.WaitJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getWaitJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Changes labels or the priority of a job that has not ended. The priority matters only while the job waits for its
     * turn.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_UPDATE_MASK): the mask is empty, or names a field that cannot be changed; name `labels`,
     *   `priority` or both.
     * * `INVALID_ARGUMENT` (BAD_LABEL, BAD_NUMBER): an invalid label or priority; fix the field that BadRequest names.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.UpdateJobResponse> updateJob(
        dev.leman.v1.UpdateJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getUpdateJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Cancels a job. Finished work is kept. Returns the updated job; an ended job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.CancelJobResponse> cancelJob(
        dev.leman.v1.CancelJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCancelJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Pauses a job. Running calls of the function finish first, computed rows are checkpointed, and complete files are
     * committed, so that nothing is computed again. Meanwhile the job is PAUSING, and then PAUSED. It releases its slot,
     * its workers and its reservations, and stays PAUSED over restarts and takeovers, until it is resumed or cancelled. A
     * job that finishes before it has paused ends normally. A queued job is PAUSED at once. A paused job stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.PauseJobResponse> pauseJob(
        dev.leman.v1.PauseJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getPauseJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Resumes a job that is paused or pausing: it is queued with its original age (PENDING), planned again, and computes
     * what is left. A job that is not paused stays unchanged.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_ENDED): the job has ended and cannot be changed.
     * * `FAILED_PRECONDITION` (JOB_CANCELLING): the job is being cancelled.
     * * `UNAVAILABLE` (JOB_ELSEWHERE): another executor runs the job; call that one, or retry.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ResumeJobResponse> resumeJob(
        dev.leman.v1.ResumeJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getResumeJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Cancels all open jobs that match a filter, like CancelJob. A retry cancels the remaining ones.
     * Errors:
     * * `INVALID_ARGUMENT` (MISSING_FIELD): `filter` is not set; set an empty one to cancel all jobs of the database.
     * * `INVALID_ARGUMENT` (UNKNOWN_VALUE, BAD_TIME): as for ListJobs.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.CancelJobsResponse> cancelJobs(
        dev.leman.v1.CancelJobsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCancelJobsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Deletes an ended job from the history, with its stored failed rows. Computed values stay in its table, and
     * checkpoints for later jobs stay too. Its id and its request id are not used again. Other jobs may still refer to it
     * (`retry_of`, `failed_in`). Other executors may return it for two more seconds. Deleting it again succeeds.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job and never had; ListJobs lists all.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.DeleteJobResponse> deleteJob(
        dev.leman.v1.DeleteJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDeleteJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Starts a job that calls the function again, only for the rows of an ended job's column that are marked as failed.
     * They are found by their state in the table, even if updates or compaction have moved them. A row whose inputs
     * changed since counts as not computed, not as failed: a plain backfill computes it.
     * With another function, the column has that function from then on. `keep_others` controls the other rows. If true,
     * they keep their values and count as current, and only rows that failed under the earlier version are computed; the
     * version that computed a value is then recorded for each row. If false, they are stale, as after
     * CatalogService.AlterColumns, and the job computes them too.
     * The job's `where` applies to its retry.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `NOT_FOUND` (UDF_NOT_FOUND): the function is not registered; register it.
     * * `FAILED_PRECONDITION` (JOB_RUNNING): the job has not ended; wait for it, or cancel it.
     * * `FAILED_PRECONDITION` (NOT_A_BACKFILL): the job refreshed a view, or filled several columns and another function
     *   is given; do what the message says.
     * * `ABORTED` (TABLE_REPLACED): the job's table was dropped, and a new table has its name; backfill that one if it is
     *   meant.
     * * `FAILED_PRECONDITION` (NOTHING_TO_RETRY): the job ended early and no row is marked as failed; run the backfill
     *   again.
     * * `FAILED_PRECONDITION` (KEEP_OTHERS_FUNCTION): the job computed with a function that is not the column's; leave
     *   `keep_others` out.
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER): fields that contradict each other, or a negative number; correct
     *   the field that BadRequest names.
     * * `ALREADY_EXISTS` (REQUEST_ID_REUSED): another request used this id; use a new one.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner or commit coordinator
     *   set, or is refused by it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner or commit coordinator; retry the same
     *   call after RetryInfo's delay.
     * * `RESOURCE_EXHAUSTED` (TOO_MANY_JOBS, TOO_MANY_WAITING_JOBS): the queue is full, or the limit of waiting jobs of
     *   the caller or of the database is reached; retry the call after RetryInfo's delay.
     * * `UNAVAILABLE` (DRAINING): the executor is shutting down; retry the same call.
     * * `UNAVAILABLE` (WORKERS_CANNOT_REACH_DRIVER): no Spark worker has connected; retry the same call after RetryInfo's
     *   delay, and do what the message says.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): Spark's workers cannot run the required Python; do what the
     *   message says.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * Those of CatalogService.AlterColumns, with another function, and of PlannerService.ExplainPlan.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.RetryJobResponse> retryJob(
        dev.leman.v1.RetryJobRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getRetryJobMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * The rows of a job for which the function failed. `warnings` lists rows that are lost because files were damaged or
     * removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.ListJobErrorsResponse> listJobErrors(
        dev.leman.v1.ListJobErrorsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListJobErrorsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Counts the rows of a job for which the function failed, grouped by cause. Rows with the same class of exception
     * form one group if the first lines of their messages (of a validation error by pydantic also its fields and reasons)
     * differ only in numbers and quoted texts. The rows are those of ListJobErrors. `warnings` lists rows that are lost because files were damaged or removed.
     * Errors:
     * * `NOT_FOUND` (JOB_NOT_FOUND): the database's history has no such job; ListJobs lists all.
     * * `INVALID_ARGUMENT` (BAD_PAGE_SIZE, BAD_PAGE_TOKEN): a negative size, or a token of another listing; begin with
     *   the first page.
     * * `INVALID_ARGUMENT` (BAD_NUMBER): `examples` is negative or above 5; give a number within its bounds.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GroupJobErrorsResponse> groupJobErrors(
        dev.leman.v1.GroupJobErrorsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGroupJobErrorsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Tries a function on a few rows of a table, and returns its results, its errors and its duration. The rows are read,
     * passed to the function and converted as in a job, but in a function process on the executor's machine, without
     * Spark. Nothing is written: no column, no checkpoint, no version and no job. A function that the request defines is
     * not registered. Side effects of the function itself do happen.
     * If the function fails on a row, ends its process or does not return, the call succeeds and reports this with the
     * row. If the caller disconnects, the function's process ends.
     * Errors:
     * * `INVALID_ARGUMENT` (BAD_REQUEST, BAD_NUMBER, BAD_UDF): no function is named, or fields contradict each other, or
     *   a number is out of its bounds; correct the field that BadRequest names.
     * * `FAILED_PRECONDITION` (UDF_NOT_LOADABLE, UDF_DIGEST_MISMATCH, UDF_PYTHON_MISMATCH): the function cannot be set
     *   up, or not within the preview's timeout; install what it imports, or send its bundle.
     * * `FAILED_PRECONDITION` (UDF_BROKE_DESCRIPTORS): the function closed descriptors that its process needs; do what
     *   the message says.
     * * `FAILED_PRECONDITION` (WORKER_LOST): the function's process ended before it was called; try again.
     * * `FAILED_PRECONDITION` (WORKER_PYTHON_UNUSABLE): no process for functions starts; do what the message says.
     * * `INVALID_ARGUMENT` (BUNDLE_TOO_LARGE): as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FUNCTION_ACCESS_DENIED, FUNCTION_TLS_FAILED, FUNCTION_VERSION_MISMATCH,
     *   FUNCTION_SIGNATURE_MISMATCH, FUNCTION_PROTOCOL), `UNAVAILABLE` (FUNCTION_UNAVAILABLE), `NOT_FOUND`
     *   (FUNCTION_NOT_FOUND): the server of a remote function; as for CatalogService.RegisterUdf.
     * * `FAILED_PRECONDITION` (FILTER_FAILED): the filter cannot be evaluated for a row; correct it.
     * * `INVALID_ARGUMENT` (BAD_ENV), `FAILED_PRECONDITION` (ENV_NOT_USABLE), `PERMISSION_DENIED` (ENV_NOT_ALLOWED): as
     *   for CreateJob.
     * * `FAILED_PRECONDITION` (RESOURCES_NOT_AVAILABLE): no worker has the resources that the function asks for; ask for
     *   less, or add workers.
     * * `FAILED_PRECONDITION` (PEER_NOT_SET, PEER_REFUSED, WRONG_PEER): the executor has no planner set, or is refused by
     *   it; correct the setting that the message names.
     * * `UNAVAILABLE` (PEER_UNAVAILABLE): the executor cannot reach its planner; retry the same call after RetryInfo's
     *   delay.
     * * `PERMISSION_DENIED` (UDF_NOT_ALLOWED): the policy of the services does not allow functions of this kind; use
     *   another one.
     * * Those of CatalogService.AddColumns for a function, of PlannerService.ExplainPlan for a column, such as
     *   `INVALID_ARGUMENT` (INVALID_FILTER), `NOT_FOUND` (TAG_NOT_FOUND) and `FAILED_PRECONDITION` (COLUMN_NOT_DEFINED).
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.PreviewFunctionResponse> previewFunction(
        dev.leman.v1.PreviewFunctionRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getPreviewFunctionMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_CREATE_JOB = 0;
  private static final int METHODID_GET_JOB = 1;
  private static final int METHODID_LIST_JOBS = 2;
  private static final int METHODID_WATCH_JOB = 3;
  private static final int METHODID_WAIT_JOB = 4;
  private static final int METHODID_UPDATE_JOB = 5;
  private static final int METHODID_CANCEL_JOB = 6;
  private static final int METHODID_PAUSE_JOB = 7;
  private static final int METHODID_RESUME_JOB = 8;
  private static final int METHODID_CANCEL_JOBS = 9;
  private static final int METHODID_DELETE_JOB = 10;
  private static final int METHODID_RETRY_JOB = 11;
  private static final int METHODID_LIST_JOB_ERRORS = 12;
  private static final int METHODID_GROUP_JOB_ERRORS = 13;
  private static final int METHODID_PREVIEW_FUNCTION = 14;

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
        case METHODID_CREATE_JOB:
          serviceImpl.createJob((dev.leman.v1.CreateJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.CreateJobResponse>) responseObserver);
          break;
        case METHODID_GET_JOB:
          serviceImpl.getJob((dev.leman.v1.GetJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetJobResponse>) responseObserver);
          break;
        case METHODID_LIST_JOBS:
          serviceImpl.listJobs((dev.leman.v1.ListJobsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListJobsResponse>) responseObserver);
          break;
        case METHODID_WATCH_JOB:
          serviceImpl.watchJob((dev.leman.v1.WatchJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.WatchJobResponse>) responseObserver);
          break;
        case METHODID_WAIT_JOB:
          serviceImpl.waitJob((dev.leman.v1.WaitJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.WaitJobResponse>) responseObserver);
          break;
        case METHODID_UPDATE_JOB:
          serviceImpl.updateJob((dev.leman.v1.UpdateJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.UpdateJobResponse>) responseObserver);
          break;
        case METHODID_CANCEL_JOB:
          serviceImpl.cancelJob((dev.leman.v1.CancelJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.CancelJobResponse>) responseObserver);
          break;
        case METHODID_PAUSE_JOB:
          serviceImpl.pauseJob((dev.leman.v1.PauseJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.PauseJobResponse>) responseObserver);
          break;
        case METHODID_RESUME_JOB:
          serviceImpl.resumeJob((dev.leman.v1.ResumeJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ResumeJobResponse>) responseObserver);
          break;
        case METHODID_CANCEL_JOBS:
          serviceImpl.cancelJobs((dev.leman.v1.CancelJobsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.CancelJobsResponse>) responseObserver);
          break;
        case METHODID_DELETE_JOB:
          serviceImpl.deleteJob((dev.leman.v1.DeleteJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.DeleteJobResponse>) responseObserver);
          break;
        case METHODID_RETRY_JOB:
          serviceImpl.retryJob((dev.leman.v1.RetryJobRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.RetryJobResponse>) responseObserver);
          break;
        case METHODID_LIST_JOB_ERRORS:
          serviceImpl.listJobErrors((dev.leman.v1.ListJobErrorsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.ListJobErrorsResponse>) responseObserver);
          break;
        case METHODID_GROUP_JOB_ERRORS:
          serviceImpl.groupJobErrors((dev.leman.v1.GroupJobErrorsRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GroupJobErrorsResponse>) responseObserver);
          break;
        case METHODID_PREVIEW_FUNCTION:
          serviceImpl.previewFunction((dev.leman.v1.PreviewFunctionRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.PreviewFunctionResponse>) responseObserver);
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
          getCreateJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.CreateJobRequest,
              dev.leman.v1.CreateJobResponse>(
                service, METHODID_CREATE_JOB)))
        .addMethod(
          getGetJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetJobRequest,
              dev.leman.v1.GetJobResponse>(
                service, METHODID_GET_JOB)))
        .addMethod(
          getListJobsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListJobsRequest,
              dev.leman.v1.ListJobsResponse>(
                service, METHODID_LIST_JOBS)))
        .addMethod(
          getWatchJobMethod(),
          io.grpc.stub.ServerCalls.asyncServerStreamingCall(
            new MethodHandlers<
              dev.leman.v1.WatchJobRequest,
              dev.leman.v1.WatchJobResponse>(
                service, METHODID_WATCH_JOB)))
        .addMethod(
          getWaitJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.WaitJobRequest,
              dev.leman.v1.WaitJobResponse>(
                service, METHODID_WAIT_JOB)))
        .addMethod(
          getUpdateJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.UpdateJobRequest,
              dev.leman.v1.UpdateJobResponse>(
                service, METHODID_UPDATE_JOB)))
        .addMethod(
          getCancelJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.CancelJobRequest,
              dev.leman.v1.CancelJobResponse>(
                service, METHODID_CANCEL_JOB)))
        .addMethod(
          getPauseJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.PauseJobRequest,
              dev.leman.v1.PauseJobResponse>(
                service, METHODID_PAUSE_JOB)))
        .addMethod(
          getResumeJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ResumeJobRequest,
              dev.leman.v1.ResumeJobResponse>(
                service, METHODID_RESUME_JOB)))
        .addMethod(
          getCancelJobsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.CancelJobsRequest,
              dev.leman.v1.CancelJobsResponse>(
                service, METHODID_CANCEL_JOBS)))
        .addMethod(
          getDeleteJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.DeleteJobRequest,
              dev.leman.v1.DeleteJobResponse>(
                service, METHODID_DELETE_JOB)))
        .addMethod(
          getRetryJobMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.RetryJobRequest,
              dev.leman.v1.RetryJobResponse>(
                service, METHODID_RETRY_JOB)))
        .addMethod(
          getListJobErrorsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.ListJobErrorsRequest,
              dev.leman.v1.ListJobErrorsResponse>(
                service, METHODID_LIST_JOB_ERRORS)))
        .addMethod(
          getGroupJobErrorsMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GroupJobErrorsRequest,
              dev.leman.v1.GroupJobErrorsResponse>(
                service, METHODID_GROUP_JOB_ERRORS)))
        .addMethod(
          getPreviewFunctionMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.PreviewFunctionRequest,
              dev.leman.v1.PreviewFunctionResponse>(
                service, METHODID_PREVIEW_FUNCTION)))
        .build();
  }

  private static abstract class JobServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    JobServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.JobsProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("JobService");
    }
  }

  private static final class JobServiceFileDescriptorSupplier
      extends JobServiceBaseDescriptorSupplier {
    JobServiceFileDescriptorSupplier() {}
  }

  private static final class JobServiceMethodDescriptorSupplier
      extends JobServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    JobServiceMethodDescriptorSupplier(java.lang.String methodName) {
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
      synchronized (JobServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new JobServiceFileDescriptorSupplier())
              .addMethod(getCreateJobMethod())
              .addMethod(getGetJobMethod())
              .addMethod(getListJobsMethod())
              .addMethod(getWatchJobMethod())
              .addMethod(getWaitJobMethod())
              .addMethod(getUpdateJobMethod())
              .addMethod(getCancelJobMethod())
              .addMethod(getPauseJobMethod())
              .addMethod(getResumeJobMethod())
              .addMethod(getCancelJobsMethod())
              .addMethod(getDeleteJobMethod())
              .addMethod(getRetryJobMethod())
              .addMethod(getListJobErrorsMethod())
              .addMethod(getGroupJobErrorsMethod())
              .addMethod(getPreviewFunctionMethod())
              .build();
        }
      }
    }
    return result;
  }
}
