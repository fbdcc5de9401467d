package dev.leman;

import com.google.protobuf.Struct;
import com.google.protobuf.util.JsonFormat;
import dev.leman.internal.Arguments;
import dev.leman.v1.GetInfoResponse;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;

/**
 * A database in a folder of this machine, with its running local services, which {@code leman up}
 * or a Python program started.
 *
 * <p>The client reads their addresses and token from the folder, and follows them when they
 * restart.
 */
public final class LocalDatabase implements AutoCloseable {
  private final LemanClient client;
  private final Database database;

  private LocalDatabase(LemanClient client, Database database) {
    this.client = client;
    this.database = database;
  }

  /**
   * Connect, and wait for the first response. Starts no services.
   *
   * @throws LemanException UNAVAILABLE if none run
   */
  public static LocalDatabase connect(Path folder) {
    Arguments.given("folder", folder);
    return connect(folder, Duration.ofSeconds(10));
  }

  static LocalDatabase connect(Path folder, Duration firstContact) {
    Path file = folder.toAbsolutePath().resolve("_leman").resolve("service.json");
    LemanClient client = null;
    try {
      Told first = read(file);
      Connections connections =
          LocalResolver.channels(file, () -> read(file).token(), firstContact);
      client = new LemanClient(connections);
      if (!first.isOf(connections.contact(firstContact))) {
        throw new IOException("others answer at the address of its services now");
      }
      connections.waitFor(Duration.ofMinutes(1));
      return new LocalDatabase(client, client.database(first.database()));
    } catch (IOException missing) {
      close(client);
      throw away(folder, missing);
    } catch (LemanException failed) {
      close(client);
      boolean away = failed.code() == Status.Code.UNAVAILABLE || failed.isForeign();
      throw away ? away(folder, failed) : failed;
    }
  }

  /** The database. */
  public Database database() {
    return database;
  }

  /** The client with the connections to the services. */
  public LemanClient client() {
    return client;
  }

  /** End all running calls and all threads of the client. Jobs and services continue. */
  @Override
  public void close() {
    client.close();
  }

  private static void close(LemanClient client) {
    if (client != null) {
      client.close();
    }
  }

  private static LemanException away(Path folder, Exception cause) {
    return new LemanException(
        Status.Code.UNAVAILABLE,
        "",
        "no services run for "
            + folder
            + ": start them with leman up "
            + folder
            + " ("
            + cause.getMessage()
            + ")",
        cause);
  }

  /** The content of the file that the services write. */
  record Told(String token, String database, List<String> addresses) {
    /**
     * Return whether the answer comes from the services that wrote this file. If they serve several
     * databases, the file has no identity, and their addresses are compared instead.
     */
    boolean isOf(GetInfoResponse info) {
      if (!info.getDatabase().isEmpty()) {
        return info.getDatabase().equals(database);
      }
      return addresses.equals(
          Stream.of(
                  info.getPlannerAddress(),
                  info.getExecutorAddress(),
                  info.getCommitCoordinatorAddress())
              .distinct()
              .toList());
    }
  }

  static Told read(Path file) throws IOException {
    Struct.Builder told = Struct.newBuilder();
    JsonFormat.parser().merge(Files.readString(file), told);
    List<String> addresses =
        Stream.of("planner", "executor", "commit_coordinator")
            .map(service -> text(told, service))
            .distinct()
            .toList();
    Told found = new Told(text(told, "token"), text(told, "database"), addresses);
    if (found.database().isEmpty() || addresses.contains("")) {
      throw new IOException(file + " does not say where the services are");
    }
    return found;
  }

  private static String text(Struct.Builder told, String name) {
    return told.containsFields(name) ? told.getFieldsOrThrow(name).getStringValue() : "";
  }
}
