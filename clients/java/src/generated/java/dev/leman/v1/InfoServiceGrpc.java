package dev.leman.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Served by every process, so that a caller who knows one address can find the others. Calling the right service
 * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
 * that serves it.
 * Every call of every service can also return this error:
 * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
 * A call that another service forwards can also return these errors:
 * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
 *   the call is unknown; retry the same call after RetryInfo's delay.
 * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
 * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
 *   call that one, or set its address as the message says.
 * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
 *   service; correct it as the message says.
 * </pre>
 */
@io.grpc.stub.annotations.GrpcGenerated
public final class InfoServiceGrpc {

  private InfoServiceGrpc() {}

  public static final java.lang.String SERVICE_NAME = "leman.v1.InfoService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<dev.leman.v1.GetInfoRequest,
      dev.leman.v1.GetInfoResponse> getGetInfoMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetInfo",
      requestType = dev.leman.v1.GetInfoRequest.class,
      responseType = dev.leman.v1.GetInfoResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<dev.leman.v1.GetInfoRequest,
      dev.leman.v1.GetInfoResponse> getGetInfoMethod() {
    io.grpc.MethodDescriptor<dev.leman.v1.GetInfoRequest, dev.leman.v1.GetInfoResponse> getGetInfoMethod;
    if ((getGetInfoMethod = InfoServiceGrpc.getGetInfoMethod) == null) {
      synchronized (InfoServiceGrpc.class) {
        if ((getGetInfoMethod = InfoServiceGrpc.getGetInfoMethod) == null) {
          InfoServiceGrpc.getGetInfoMethod = getGetInfoMethod =
              io.grpc.MethodDescriptor.<dev.leman.v1.GetInfoRequest, dev.leman.v1.GetInfoResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetInfo"))
              .setSafe(true)
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetInfoRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  dev.leman.v1.GetInfoResponse.getDefaultInstance()))
              .setSchemaDescriptor(new InfoServiceMethodDescriptorSupplier("GetInfo"))
              .build();
        }
      }
    }
    return getGetInfoMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static InfoServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<InfoServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<InfoServiceStub>() {
        @java.lang.Override
        public InfoServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new InfoServiceStub(channel, callOptions);
        }
      };
    return InfoServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports all types of calls on the service
   */
  public static InfoServiceBlockingV2Stub newBlockingV2Stub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<InfoServiceBlockingV2Stub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<InfoServiceBlockingV2Stub>() {
        @java.lang.Override
        public InfoServiceBlockingV2Stub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new InfoServiceBlockingV2Stub(channel, callOptions);
        }
      };
    return InfoServiceBlockingV2Stub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static InfoServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<InfoServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<InfoServiceBlockingStub>() {
        @java.lang.Override
        public InfoServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new InfoServiceBlockingStub(channel, callOptions);
        }
      };
    return InfoServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static InfoServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<InfoServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<InfoServiceFutureStub>() {
        @java.lang.Override
        public InfoServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new InfoServiceFutureStub(channel, callOptions);
        }
      };
    return InfoServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Served by every process, so that a caller who knows one address can find the others. Calling the right service
   * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
   * that serves it.
   * Every call of every service can also return this error:
   * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
   * A call that another service forwards can also return these errors:
   * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
   *   the call is unknown; retry the same call after RetryInfo's delay.
   * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
   * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
   *   call that one, or set its address as the message says.
   * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
   *   service; correct it as the message says.
   * </pre>
   */
  public interface AsyncService {

    /**
     * <pre>
     * Returns this service and the addresses of all services.
     * Errors:
     * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
     *   `authorization: Bearer &lt;token&gt;` with one.
     * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
     * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
     * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
     * </pre>
     */
    default void getInfo(dev.leman.v1.GetInfoRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetInfoResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetInfoMethod(), responseObserver);
    }
  }

  /**
   * Base class for the server implementation of the service InfoService.
   * <pre>
   * Served by every process, so that a caller who knows one address can find the others. Calling the right service
   * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
   * that serves it.
   * Every call of every service can also return this error:
   * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
   * A call that another service forwards can also return these errors:
   * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
   *   the call is unknown; retry the same call after RetryInfo's delay.
   * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
   * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
   *   call that one, or set its address as the message says.
   * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
   *   service; correct it as the message says.
   * </pre>
   */
  public static abstract class InfoServiceImplBase
      implements io.grpc.BindableService, AsyncService {

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return InfoServiceGrpc.bindService(this);
    }
  }

  /**
   * A stub to allow clients to do asynchronous rpc calls to service InfoService.
   * <pre>
   * Served by every process, so that a caller who knows one address can find the others. Calling the right service
   * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
   * that serves it.
   * Every call of every service can also return this error:
   * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
   * A call that another service forwards can also return these errors:
   * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
   *   the call is unknown; retry the same call after RetryInfo's delay.
   * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
   * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
   *   call that one, or set its address as the message says.
   * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
   *   service; correct it as the message says.
   * </pre>
   */
  public static final class InfoServiceStub
      extends io.grpc.stub.AbstractAsyncStub<InfoServiceStub> {
    private InfoServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected InfoServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new InfoServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns this service and the addresses of all services.
     * Errors:
     * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
     *   `authorization: Bearer &lt;token&gt;` with one.
     * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
     * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
     * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
     * </pre>
     */
    public void getInfo(dev.leman.v1.GetInfoRequest request,
        io.grpc.stub.StreamObserver<dev.leman.v1.GetInfoResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetInfoMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * A stub to allow clients to do synchronous rpc calls to service InfoService.
   * <pre>
   * Served by every process, so that a caller who knows one address can find the others. Calling the right service
   * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
   * that serves it.
   * Every call of every service can also return this error:
   * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
   * A call that another service forwards can also return these errors:
   * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
   *   the call is unknown; retry the same call after RetryInfo's delay.
   * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
   * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
   *   call that one, or set its address as the message says.
   * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
   *   service; correct it as the message says.
   * </pre>
   */
  public static final class InfoServiceBlockingV2Stub
      extends io.grpc.stub.AbstractBlockingStub<InfoServiceBlockingV2Stub> {
    private InfoServiceBlockingV2Stub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected InfoServiceBlockingV2Stub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new InfoServiceBlockingV2Stub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns this service and the addresses of all services.
     * Errors:
     * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
     *   `authorization: Bearer &lt;token&gt;` with one.
     * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
     * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
     * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
     * </pre>
     */
    public dev.leman.v1.GetInfoResponse getInfo(dev.leman.v1.GetInfoRequest request) throws io.grpc.StatusException {
      return io.grpc.stub.ClientCalls.blockingV2UnaryCall(
          getChannel(), getGetInfoMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do limited synchronous rpc calls to service InfoService.
   * <pre>
   * Served by every process, so that a caller who knows one address can find the others. Calling the right service
   * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
   * that serves it.
   * Every call of every service can also return this error:
   * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
   * A call that another service forwards can also return these errors:
   * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
   *   the call is unknown; retry the same call after RetryInfo's delay.
   * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
   * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
   *   call that one, or set its address as the message says.
   * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
   *   service; correct it as the message says.
   * </pre>
   */
  public static final class InfoServiceBlockingStub
      extends io.grpc.stub.AbstractBlockingStub<InfoServiceBlockingStub> {
    private InfoServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected InfoServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new InfoServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns this service and the addresses of all services.
     * Errors:
     * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
     *   `authorization: Bearer &lt;token&gt;` with one.
     * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
     * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
     * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
     * </pre>
     */
    public dev.leman.v1.GetInfoResponse getInfo(dev.leman.v1.GetInfoRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetInfoMethod(), getCallOptions(), request);
    }
  }

  /**
   * A stub to allow clients to do ListenableFuture-style rpc calls to service InfoService.
   * <pre>
   * Served by every process, so that a caller who knows one address can find the others. Calling the right service
   * directly is faster, but not necessary: every process accepts every call of `leman.v1`, and forwards it to the service
   * that serves it.
   * Every call of every service can also return this error:
   * * `INVALID_ARGUMENT` (BAD_MESSAGE): the request is not the call's message; generate the client again.
   * A call that another service forwards can also return these errors:
   * * `UNAVAILABLE` (PEER_UNAVAILABLE): the called service cannot reach the one that serves the call, or the outcome of
   *   the call is unknown; retry the same call after RetryInfo's delay.
   * * `UNAVAILABLE` (DRAINING): the called service is shutting down; open the stream again.
   * * `UNIMPLEMENTED` (NOT_SERVED_HERE): the called service does not know the address of the one that serves the call;
   *   call that one, or set its address as the message says.
   * * `FAILED_PRECONDITION` (WRONG_PEER): the address that is set for the service that serves the call is that of another
   *   service; correct it as the message says.
   * </pre>
   */
  public static final class InfoServiceFutureStub
      extends io.grpc.stub.AbstractFutureStub<InfoServiceFutureStub> {
    private InfoServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected InfoServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new InfoServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Returns this service and the addresses of all services.
     * Errors:
     * * `UNAUTHENTICATED` (TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED): the call has no valid token; send
     *   `authorization: Bearer &lt;token&gt;` with one.
     * * `PERMISSION_DENIED` (ROLE_REQUIRED): the caller lacks the role that the message names; ask for it.
     * * `UNAVAILABLE` (KEYS_UNAVAILABLE): the issuer of JWTs does not return its public keys; retry later.
     * * `RESOURCE_EXHAUSTED` (CALLER_RATE): the caller calls too often; retry the call after RetryInfo's delay.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<dev.leman.v1.GetInfoResponse> getInfo(
        dev.leman.v1.GetInfoRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetInfoMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_GET_INFO = 0;

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
        case METHODID_GET_INFO:
          serviceImpl.getInfo((dev.leman.v1.GetInfoRequest) request,
              (io.grpc.stub.StreamObserver<dev.leman.v1.GetInfoResponse>) responseObserver);
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
          getGetInfoMethod(),
          io.grpc.stub.ServerCalls.asyncUnaryCall(
            new MethodHandlers<
              dev.leman.v1.GetInfoRequest,
              dev.leman.v1.GetInfoResponse>(
                service, METHODID_GET_INFO)))
        .build();
  }

  private static abstract class InfoServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    InfoServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return dev.leman.v1.InfoProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("InfoService");
    }
  }

  private static final class InfoServiceFileDescriptorSupplier
      extends InfoServiceBaseDescriptorSupplier {
    InfoServiceFileDescriptorSupplier() {}
  }

  private static final class InfoServiceMethodDescriptorSupplier
      extends InfoServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final java.lang.String methodName;

    InfoServiceMethodDescriptorSupplier(java.lang.String methodName) {
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
      synchronized (InfoServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new InfoServiceFileDescriptorSupplier())
              .addMethod(getGetInfoMethod())
              .build();
        }
      }
    }
    return result;
  }
}
