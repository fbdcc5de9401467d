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
 * Connections to the services of Leman. A program needs only one client: it is safe for use by
 * several threads.
 *
 * <pre>{@code
 * try (LemanClient client = LemanClient.builder("localhost:7443").connect()) {
 *   Table table = client.database("/data/lake").table("docs");
 *   table.backfill("words").await();
 * }
 * }</pre>
 *
 * <p>Each method that makes one call exists twice: {@code describe()} waits, and {@code
 * describeAsync()} returns a {@link CompletableFuture}, which ends the call if you cancel it. Lists
 * are {@link Pages}, fetched when they are needed. Errors are {@link LemanException}s. While the
 * services are unavailable, the client retries calls, for a minute by default ({@link
 * Builder#patience}). It can also retry changes, because each carries a request id.
 */
public final class LemanClient implements AutoCloseable {
  private final Connections connections;

  LemanClient(Connections connections) {
    this.connections = connections;
  }

  /**
   * Build a client for the {@code host:port} of any one service, which accepts the calls of all of
   * them, or for several such addresses: "a:7443", "b:7443". The client uses one as long as it
   * answers, and then the first other one that does.
   */
  public static Builder builder(String... endpoints) {
    return new Builder(endpoints);
  }

  /**
   * Return a handle for a database, by its registered name, or by its path or URI as the services
   * see it. Makes no call. A database is created with its first table.
   */
  public Database database(String nameOrUri) {
    Arguments.given("nameOrUri", nameOrUri);
    return new Database(connections, nameOrUri);
  }

  /** The registered databases. */
  public Databases databases() {
    return new Databases(connections);
  }

  /** Return which service answers, and the addresses of the others. */
  public GetInfoResponse info() {
    return Futures.get(infoAsync());
  }

  /** Like {@link #info}. */
  public CompletableFuture<GetInfoResponse> infoAsync() {
    return connections.unary(
        InfoServiceGrpc.getGetInfoMethod(), GetInfoRequest.getDefaultInstance(), i -> i);
  }

  /**
   * Return the channel for generated stubs, such as {@code
   * JobServiceGrpc.newBlockingStub(client.channel())}, which can make every call of the API. Their
   * calls carry the token and are retried like those of this client; {@link LemanException#from}
   * converts their exceptions.
   */
  public Channel channel() {
    return connections;
  }

  /** End all running calls and all threads of this client. Jobs continue. */
  @Override
  public void close() {
    connections.close();
  }

  /** Builds a client. */
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
      Tokens.fixed(token); // validates the token
      tokens = () -> Tokens.fixed(token);
      return this;
    }

    /**
     * Send the token that this source supplies. If the services refuse it, the client gets another
     * one from the source and retries the call.
     */
    public Builder tokens(TokenSource source) {
      Arguments.given("source", source);
      tokens = () -> Tokens.from(source);
      return this;
    }

    /** Use TLS, and verify the services' certificates with those in this PEM file. */
    public Builder tls(Path certificates) {
      Arguments.given("certificates", certificates);
      dialing.authority = certificates;
      return this;
    }

    /**
     * Send this client certificate, which identifies the caller; both are PEM files. Requires
     * {@link #tls}.
     */
    public Builder certificate(Path chain, Path key) {
      Arguments.given("chain", chain);
      Arguments.given("key", key);
      dialing.chain = chain;
      dialing.key = key;
      return this;
    }

    /**
     * Whether a token may be sent to other machines without TLS, for networks that are protected
     * otherwise. By default {@link #connect} throws before such a token is sent, with the reason
     * {@link LemanException#PLAINTEXT_TOKEN}.
     */
    public Builder plaintext(boolean permitted) {
      dialing.plaintext = permitted;
      return this;
    }

    /** How long a call waits for unavailable services; the default is a minute. */
    public Builder patience(Duration time) {
      Arguments.notNegative("time", time);
      patience = time;
      return this;
    }

    /** How long {@link #connect} waits for the first response; the default is ten seconds. */
    public Builder firstContact(Duration time) {
      Arguments.notNegative("time", time);
      firstContact = time;
      return this;
    }

    /**
     * Connect, and wait for the first response.
     *
     * @throws LemanException INVALID_ARGUMENT for invalid addresses and options that contradict
     *     each other, UNAVAILABLE if no address answers, UNAUTHENTICATED for an invalid token,
     *     DEADLINE_EXCEEDED if the token source supplies no token in time
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

    /**
     * Return the exception for services that do not answer, or the given one if the cause is
     * another.
     */
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
