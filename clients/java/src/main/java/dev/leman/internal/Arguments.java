package dev.leman.internal;

import com.google.protobuf.Any;
import com.google.rpc.BadRequest;
import com.google.rpc.Code;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import dev.leman.LemanException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;

/** Checks arguments of public methods. */
public final class Arguments {
  private Arguments() {}

  /**
   * Throw for null, and for an array, a collection or a map that contains null.
   *
   * @throws LemanException INVALID_ARGUMENT, with the argument's name
   */
  public static void given(String name, Object value) {
    if (value == null) {
      throw wrong(name, name + " is null: give a value, or leave the call out that takes it");
    }
    if (hasNull(value)) {
      throw wrong(name, name + " has null in it: leave that out");
    }
  }

  /**
   * Throw for a time that is null or negative.
   *
   * @throws LemanException INVALID_ARGUMENT, with the argument's name
   */
  public static void notNegative(String name, Duration time) {
    given(name, time);
    if (time.isNegative()) {
      throw wrong(name, name + " is " + time + ", a negative time: give Duration.ZERO for none");
    }
  }

  /**
   * Throw for a negative number.
   *
   * @throws LemanException INVALID_ARGUMENT, with the argument's name
   */
  public static void notNegative(String name, long number) {
    if (number < 0) {
      throw wrong(name, name + " is " + number + ": give a number that is not negative");
    }
  }

  /**
   * Throw for a text that is null or empty.
   *
   * @throws LemanException INVALID_ARGUMENT, with the argument's name
   */
  public static void notEmpty(String name, String text) {
    given(name, text);
    if (text.isEmpty()) {
      throw wrong(name, name + " is empty: give one, or leave the call out that takes it");
    }
  }

  private static boolean hasNull(Object value) {
    if (value instanceof Object[] array) {
      return Arrays.stream(array).anyMatch(one -> one == null);
    }
    if (value instanceof Map<?, ?> map) {
      return map.entrySet().stream()
          .anyMatch(entry -> entry.getKey() == null || entry.getValue() == null);
    }
    return value instanceof Collection<?> all && all.stream().anyMatch(one -> one == null);
  }

  private static LemanException wrong(String name, String message) {
    BadRequest.FieldViolation field =
        BadRequest.FieldViolation.newBuilder().setField(name).setDescription(message).build();
    return LemanException.from(
        StatusProto.toStatusRuntimeException(
            Status.newBuilder()
                .setCode(Code.INVALID_ARGUMENT_VALUE)
                .setMessage(message)
                .addDetails(Any.pack(ErrorInfo.newBuilder().setReason("BAD_REQUEST").build()))
                .addDetails(Any.pack(BadRequest.newBuilder().addFieldViolations(field).build()))
                .build()));
  }
}
