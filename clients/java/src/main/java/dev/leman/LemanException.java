package dev.leman;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.util.Durations;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import dev.leman.internal.Arguments;
import dev.leman.v1.ErrorReason;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import javax.net.ssl.SSLException;

/**
 * The exception of every failed call: the gRPC code, the services' reason for programs, a message
 * for people, and further details. {@link #from} converts exceptions of generated stubs.
 */
public class LemanException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The reason of calls on a closed client. Services never return it. */
  public static final String CLOSED = "CLOSED";

  /**
   * The reason if a token would have been sent to another machine without TLS; nothing was sent.
   */
  public static final String PLAINTEXT_TOKEN = "PLAINTEXT_TOKEN";

  private static final Pattern LOST =
      Pattern.compile(
          "network closed|socket closed|connection reset|broken pipe|recvmsg|rst_stream"
              + "|connection termination",
          Pattern.CASE_INSENSITIVE);
  private static final Pattern NOT_CONNECTED =
      Pattern.compile(
          "failed to connect|channel pipeline|protocol negotiation", Pattern.CASE_INSENSITIVE);

  private final Status.Code code;
  private final String reason;
  private final transient Map<String, String> metadata;
  private final transient List<FieldViolation> fields;
  private final transient Duration retryDelay;

  /** An invalid field of a request, as a path, and what is wrong with it. */
  public record FieldViolation(String field, String description) {}

  LemanException(Status.Code code, String reason, String message, Throwable cause) {
    this(code, message, new Details(reason, Map.of(), List.of(), null), cause);
  }

  LemanException(Status.Code code, String message, Details details, Throwable cause) {
    super(message, cause);
    this.code = code;
    this.reason = details.reason();
    this.metadata = details.metadata();
    this.fields = details.fields();
    this.retryDelay = details.retryDelay();
  }

  /** The gRPC code. */
  public Status.Code code() {
    return code;
  }

  /**
   * The name of the {@link ErrorReason}, which may be one that this release does not know; empty if
   * there is none.
   */
  public String reason() {
    return reason;
  }

  /** The facts that came with the reason. */
  public Map<String, String> metadata() {
    return metadata == null ? Map.of() : metadata;
  }

  /** The invalid fields of the request. */
  public List<FieldViolation> fields() {
    return fields == null ? List.of() : fields;
  }

  /** How long to wait before a retry; empty if the services do not say. */
  public Optional<Duration> retryDelay() {
    return Optional.ofNullable(retryDelay);
  }

  /** Return whether it has this reason. */
  public boolean is(ErrorReason asked) {
    Arguments.given("asked", asked);
    return reason.equals(asked.name());
  }

  /**
   * Return the exception for a failure: that of a generated stub or of a {@link
   * java.util.concurrent.Future}, or a LemanException. If the failure does not come from a call,
   * the code is UNKNOWN, and the failure is the cause. A stream that a proxy reset becomes
   * UNAVAILABLE, and so does a call whose connection was lost before it was sent.
   */
  public static LemanException from(Throwable failure) {
    Arguments.given("failure", failure);
    Throwable found = failure;
    while ((found instanceof CompletionException || found instanceof ExecutionException)
        && found.getCause() != null) {
      found = found.getCause();
    }
    if (found instanceof LemanException known) {
      return known;
    }
    Status status = Status.fromThrowable(found);
    if (status.getCause() instanceof LemanException known) {
      return known;
    }
    com.google.rpc.Status told = StatusProto.fromThrowable(found);
    Details details = told == null ? Details.NONE : Details.of(told);
    if (wasCut(status, details) || wasClosed(found)) {
      status = Status.UNAVAILABLE.withDescription(status.getDescription()).withCause(found);
    }
    if (told != null) {
      return new LemanException(status.getCode(), text(status, told, details), details, found);
    }
    return new LemanException(status.getCode(), "", describe(status), found);
  }

  /**
   * Return whether the server cannot be a service of Leman. Leman's services give a reason with
   * each of these codes, and know the method of the first call.
   */
  boolean isForeign() {
    return reason.isEmpty()
        && (code == Status.Code.INTERNAL
            || code == Status.Code.UNKNOWN
            || code == Status.Code.UNIMPLEMENTED);
  }

  /**
   * Return whether a connection was lost while a call ran on it, judged by the texts of gRPC, the
   * services and proxies. A call that never had a connection does not count.
   */
  boolean lostConnection() {
    if (code != Status.Code.UNAVAILABLE) {
      return false;
    }
    StringBuilder said = new StringBuilder();
    for (Throwable at = this; at != null; at = at.getCause()) {
      said.append(at.getMessage()).append('\n');
    }
    return LOST.matcher(said).find() && !NOT_CONNECTED.matcher(said).find();
  }

  /** Return the status for a call that this client ends. */
  static Status status(LemanException failure) {
    return Status.fromCode(failure.code()).withDescription(failure.getMessage()).withCause(failure);
  }

  /**
   * Return whether a proxy lost the service while it sent a response. The headers are sent by then,
   * so the proxy can only reset the stream, and gRPC reports INTERNAL with a text of its own. The
   * services give every INTERNAL a reason.
   */
  private static boolean wasCut(Status status, Details details) {
    boolean broken =
        status.getCode() == Status.Code.INTERNAL || status.getCode() == Status.Code.UNKNOWN;
    String said = status.getDescription();
    return broken && details.reason().isEmpty() && said != null && said.contains("RST_STREAM");
  }

  /**
   * Return whether the connection was lost before the call used it. gRPC then reports UNKNOWN
   * instead of UNAVAILABLE.
   */
  private static boolean wasClosed(Throwable found) {
    Status status = found instanceof StatusRuntimeException failed ? failed.getStatus() : Status.OK;
    return status.getCode() == Status.Code.UNKNOWN
        && status.getCause() instanceof ClosedChannelException;
  }

  private static String text(Status status, com.google.rpc.Status told, Details details) {
    return details.reason().isEmpty() ? describe(status) : told.getMessage();
  }

  private static String describe(Status status) {
    String told = tlsFailure(status.getCause(), status.getDescription());
    String said = told == null ? "" : ": " + told;
    return switch (status.getCode()) {
      case UNAVAILABLE -> "the services cannot be reached" + said;
      case DEADLINE_EXCEEDED -> "the services did not answer in time" + said;
      case UNIMPLEMENTED ->
          "the services do not know this call; they and the client are of different releases"
              + said;
      case UNAUTHENTICATED -> "the services refused the token" + said;
      case CANCELLED -> "the call was cancelled" + said;
      default -> "the services answered " + status.getCode() + said;
    };
  }

  /** Return why TLS with the address fails, or the given text if TLS is not the cause. */
  private static String tlsFailure(Throwable failure, String otherwise) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause.getClass().getSimpleName().equals("NotSslRecordException")) { // in shaded netty
        return "what answers there speaks no TLS: leave tls() out, or name an address that does";
      }
      if (cause instanceof SSLException) {
        return "TLS failed: " + cause.getMessage();
      }
    }
    return otherwise;
  }

  /** The details of a status, in addition to its code and message. */
  record Details(
      String reason,
      Map<String, String> metadata,
      List<FieldViolation> fields,
      Duration retryDelay) {
    static final Details NONE = new Details("", Map.of(), List.of(), null);

    static Details of(com.google.rpc.Status status) {
      ErrorInfo info = find(status, ErrorInfo.class, ErrorInfo.getDefaultInstance());
      BadRequest request = find(status, BadRequest.class, BadRequest.getDefaultInstance());
      RetryInfo retry = find(status, RetryInfo.class, RetryInfo.getDefaultInstance());
      List<FieldViolation> fields =
          request.getFieldViolationsList().stream()
              .map(field -> new FieldViolation(field.getField(), field.getDescription()))
              .toList();
      Duration delay =
          retry.hasRetryDelay() ? Duration.ofNanos(Durations.toNanos(retry.getRetryDelay())) : null;
      return new Details(info.getReason(), Map.copyOf(info.getMetadataMap()), fields, delay);
    }

    private static <T extends com.google.protobuf.Message> T find(
        com.google.rpc.Status status, Class<T> type, T absent) {
      for (Any detail : status.getDetailsList()) {
        if (detail.is(type)) {
          try {
            return detail.unpack(type);
          } catch (InvalidProtocolBufferException damaged) {
            return absent;
          }
        }
      }
      return absent;
    }
  }
}
