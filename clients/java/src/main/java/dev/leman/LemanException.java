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
 * What every call of this client fails with: the gRPC code, the services' reason for programs, a
 * message for people, and what else they said. Failures of generated stubs become one by {@link
 * #from}.
 */
public class LemanException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** Reason of calls on a client that was closed; no service says it. */
  public static final String CLOSED = "CLOSED";

  /** Reason of a token that would go to another machine without TLS; nothing was sent. */
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

  /** A field of a request, as a path, and what is wrong with it. */
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
   * The name of the {@link ErrorReason}, also of one that this release does not know; empty: none
   * was given.
   */
  public String reason() {
    return reason;
  }

  /** The facts that came with the reason. */
  public Map<String, String> metadata() {
    return metadata == null ? Map.of() : metadata;
  }

  /** What is wrong with which fields of the request. */
  public List<FieldViolation> fields() {
    return fields == null ? List.of() : fields;
  }

  /** How long to wait before the call is made again; empty: the services said nothing of it. */
  public Optional<Duration> retryDelay() {
    return Optional.ofNullable(retryDelay);
  }

  /** Shows whether it has this reason. */
  public boolean is(ErrorReason asked) {
    Arguments.given("asked", asked);
    return reason.equals(asked.name());
  }

  /**
   * Give the exception for a failure: of a generated stub, of a {@link
   * java.util.concurrent.Future}, or one of these already. What is none of a call has the code
   * UNKNOWN and the failure as its cause. A stream that a proxy reset is UNAVAILABLE, and so is a
   * call whose connection was lost before it was sent.
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
   * Whether it can only come from what is no service of Leman: those give each of these codes a
   * reason, and know the call that is made first.
   */
  boolean isForeign() {
    return reason.isEmpty()
        && (code == Status.Code.INTERNAL
            || code == Status.Code.UNKNOWN
            || code == Status.Code.UNIMPLEMENTED);
  }

  /**
   * Whether a connection was lost while a call ran on it, in the words of gRPC, of the services or
   * of a proxy. A call that found no connection was not made.
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

  /** The status of a call that this client lets end so. */
  static Status status(LemanException failure) {
    return Status.fromCode(failure.code()).withDescription(failure.getMessage()).withCause(failure);
  }

  /**
   * Whether a proxy lost the service amid an answer. As headers are out it can only reset the
   * stream, and gRPC tells that in words of its own: the services give every INTERNAL a reason.
   */
  private static boolean wasCut(Status status, Details details) {
    boolean broken =
        status.getCode() == Status.Code.INTERNAL || status.getCode() == Status.Code.UNKNOWN;
    String said = status.getDescription();
    return broken && details.reason().isEmpty() && said != null && said.contains("RST_STREAM");
  }

  /**
   * Whether the connection was lost before the call was on it: gRPC then says UNKNOWN in place of
   * UNAVAILABLE.
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

  /** Why there is no TLS with what answers at the address; otherwise what is given. */
  private static String tlsFailure(Throwable failure, String otherwise) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause.getClass().getSimpleName().equals("NotSslRecordException")) { // netty's, shaded
        return "what answers there speaks no TLS: leave tls() out, or name an address that does";
      }
      if (cause instanceof SSLException) {
        return "TLS failed: " + cause.getMessage();
      }
    }
    return otherwise;
  }

  /** What stands in a status beside its code and its message. */
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
