package dev.leman;

import com.google.common.net.InetAddresses;
import dev.leman.v1.ErrorReason;
import io.grpc.Status;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Parses and checks the addresses of services. */
final class Addresses {
  private static final Pattern ADDRESS =
      Pattern.compile("(?:\\[[\\w:.%]+\\]|[^\\s:/,@\\[\\]]+):(\\d{1,9})");
  private static final Pattern URL = Pattern.compile("([^:/]+://)(.*?)/*");
  private static final Pattern AS_GRPC_HAS_IT = Pattern.compile("^dns:///");
  private static final int LARGEST_PORT = 65535;

  private Addresses() {}

  /**
   * Return the given addresses without duplicates.
   *
   * @throws LemanException INVALID_ARGUMENT
   */
  static List<String> checked(String... given) {
    if (given == null || given.length == 0) {
      throw refused("endpoints", "there is no endpoint: name host:port of a service", null);
    }
    List<String> addresses = new ArrayList<>();
    for (String one : given) {
      if (one == null) {
        throw refused(
            "endpoints", "an endpoint is null: name host:port, such as leman.internal:7443", null);
      }
      String address = AS_GRPC_HAS_IT.matcher(one.strip()).replaceFirst("");
      check(address);
      if (!addresses.contains(address)) {
        addresses.add(address);
      }
    }
    return addresses;
  }

  /** Return whether host:port is an address of this machine only. */
  static boolean isLoopback(String address) {
    String host = address.substring(0, address.lastIndexOf(':')).replaceAll("^\\[|\\]$", "");
    return InetAddresses.isInetAddress(host)
        ? InetAddresses.forString(host).isLoopbackAddress()
        : host.equalsIgnoreCase("localhost");
  }

  /** The error for a token that would be sent to another machine unencrypted. */
  static LemanException inTheClear(String address) {
    return new LemanException(
        Status.Code.INVALID_ARGUMENT,
        LemanException.PLAINTEXT_TOKEN,
        address
            + " is another machine, and without TLS anyone on the way reads the token: connect"
            + " with tls(), or plaintext(true) where the network is protected",
        null);
  }

  private static void check(String address) {
    if (address.contains(",")) {
      String apart = "\"" + String.join("\", \"", address.split("\\s*,\\s*")) + "\"";
      throw no(address, "is several: name them one by one, as builder(" + apart + ")");
    }
    Matcher url = URL.matcher(address);
    if (url.matches()) {
      throw no(address, "is a URL: name " + url.group(2) + " (for TLS with tls())");
    }
    Matcher found = ADDRESS.matcher(address);
    if (!found.matches()) {
      throw no(address, "is not host:port, such as leman.internal:7443");
    }
    int port = Integer.parseInt(found.group(1));
    if (port < 1 || port > LARGEST_PORT) {
      throw no(address, "has no possible port: one is from 1 to " + LARGEST_PORT);
    }
  }

  private static LemanException no(String address, String what) {
    return refused("endpoints", "endpoint \"" + address + "\" " + what, null);
  }

  /** The error for an invalid argument. */
  static LemanException refused(String argument, String message, Throwable cause) {
    List<LemanException.FieldViolation> fields =
        List.of(new LemanException.FieldViolation(argument, message));
    return new LemanException(
        Status.Code.INVALID_ARGUMENT,
        message,
        new LemanException.Details(
            ErrorReason.BAD_REQUEST.name(), Map.of(), fields, /* retryDelay= */ null),
        cause);
  }
}
