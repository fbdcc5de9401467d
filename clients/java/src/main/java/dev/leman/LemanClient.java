package dev.leman;

import dev.leman.internal.Arguments;
import dev.leman.v1.GetInfoRequest;
import dev.leman.v1.GetInfoResponse;
import dev.leman.v1.InfoServiceGrpc;
import io.grpc.Channel;
import io.grpc.Status;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/**
 * Connections to the services of Leman. One is enough for a program: it is safe for use by several
 * threads.
 *
 * <pre>{@code
 * try (LemanClient client = LemanClient.builder("localhost:7443").connect()) {
 *   Table table = client.database("/data/lake").table("docs");
 *   table.backfill("words").await();
 * }
 * }</pre>
 *
 * Methods that make one call exist twice: {@code describe()} waits, {@code describeAsync()} gives a
 * {@link CompletableFuture}, and cancelling that ends the call. Lists come in {@link Pages}, each
 * asked for when it is needed. What fails, fails with {@link LemanException}. Calls are made again
 * while the services are away, for a minute unless the builder was told otherwise: reads, calls
 * that say the same thing twice, and mutations, which carry a request id.
 */
public final class LemanClient implements AutoCloseable {
  private final Connections connections;

  LemanClient(Connections connections) {
    this.connections = connections;
  }

  /**
   * Begin to connect to {@code host:port} of any one service, which answers for all, or to one of
   * several: "a:7443", "b:7443". One is called while it answers, then the first that does.
   */
  public static Builder builder(String... endpoints) {
    return new Builder(endpoints);
  }

  /**
   * A database, by its registered name, or its path or uri as the services reach it. Nothing is
   * called; a database is made with its first table.
   */
  public Database database(String nameOrUri) {
    Arguments.given("nameOrUri", nameOrUri);
    return new Database(connections, nameOrUri);
  }

  /** The databases that the services know by name. */
  public Databases databases() {
    return new Databases(connections);
  }

  /** Which service answers, and where the others are. */
  public GetInfoResponse info() {
    return Futures.get(infoAsync());
  }

  /** As {@link #info}. */
  public CompletableFuture<GetInfoResponse> infoAsync() {
    return connections.unary(
        InfoServiceGrpc.getGetInfoMethod(), GetInfoRequest.getDefaultInstance(), i -> i);
  }

  /**
   * What generated stubs take, such as {@code JobServiceGrpc.newBlockingStub(client.channel())}:
   * for every call of the API. Their calls carry the token, and are made again as those of this
   * client; what they throw becomes a {@link LemanException} by {@link LemanException#from}.
   */
  public Channel channel() {
    return connections;
  }

  /** End all calls that are under way, and every thread of this client. Jobs go on. */
  @Override
  public void close() {
    connections.close();
  }

  /** What a client is connected by. */
  public static final class Builder {
    private final String[] endpoints;
    private final Dialing dialing = new Dialing();
    private Supplier<Tokens> tokens = () -> Tokens.fixed("");
    private Duration patience = Duration.ofMinutes(1);
    private Duration firstContact = Duration.ofSeconds(10);

    private Builder(String... endpoints) {
      this.endpoints = endpoints;
    }

    /** Send this token. */
    public Builder token(String token) {
      Arguments.notEmpty("token", token);
      Tokens.fixed(token); // which looks at it
      tokens = () -> Tokens.fixed(token);
      return this;
    }

    /** Send the token that this source gives; it is asked again when that is refused. */
    public Builder tokens(TokenSource source) {
      Arguments.given("source", source);
      tokens = () -> Tokens.from(source);
      return this;
    }

    /** Use TLS, and check the services' certificates with those in this PEM file. */
    public Builder tls(Path certificates) {
      Arguments.given("certificates", certificates);
      dialing.authority = certificates;
      return this;
    }

    /** Show this certificate, which says who calls; both are PEM files. Goes with {@link #tls}. */
    public Builder certificate(Path chain, Path key) {
      Arguments.given("chain", chain);
      Arguments.given("key", key);
      dialing.chain = chain;
      dialing.key = key;
      return this;
    }

    /**
     * Whether a token goes to other machines than this one without TLS: for networks that are
     * protected otherwise. Such a token is refused else, before anything is sent, with the reason
     * {@link LemanException#PLAINTEXT_TOKEN}.
     */
    public Builder plaintext(boolean permitted) {
      dialing.plaintext = permitted;
      return this;
    }

    /** How long a call waits for services that are away; a minute, unless it is given. */
    public Builder patience(Duration time) {
      Arguments.notNegative("time", time);
      patience = time;
      return this;
    }

    /** How long {@link #connect} waits for the first answer; ten seconds, unless it is given. */
    public Builder firstContact(Duration time) {
      Arguments.notNegative("time", time);
      firstContact = time;
      return this;
    }

    /**
     * Connect, and wait for a first answer.
     *
     * @throws LemanException INVALID_ARGUMENT for addresses that are none and what does not go
     *     together, UNAVAILABLE where nothing answers, UNAUTHENTICATED for a token that does not
     *     hold, DEADLINE_EXCEEDED where the source of tokens gives none in this time
     */
    public LemanClient connect() {
      List<String> addresses = Addresses.checked(endpoints);
      Connections connections = dialing.open(addresses, tokens.get(), firstContact);
      LemanClient client = new LemanClient(connections);
      try {
        connections.contact(firstContact);
      } catch (LemanException failed) {
        client.close();
        throw noServices(addresses, failed);
      } catch (RuntimeException | Error failed) {
        client.close();
        throw failed;
      }
      connections.waitFor(patience);
      return client;
    }

    /** What is told where no service answers; otherwise what is given. */
    private static LemanException noServices(List<String> addresses, LemanException cause) {
      boolean silent = cause.code() == Status.Code.UNAVAILABLE && cause.reason().isEmpty();
      if (!silent && !cause.isForeign()) {
        return cause;
      }
      String what = silent ? "nothing" : "nothing of Leman";
      String told = what + " answers at %s: check the address, and TLS (%s)";
      return new LemanException(
          Status.Code.UNAVAILABLE,
          "",
          told.formatted(String.join(" or ", addresses), cause.getMessage()),
          cause);
    }
  }
}
