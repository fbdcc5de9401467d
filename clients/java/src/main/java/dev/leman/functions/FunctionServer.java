package dev.leman.functions;

import dev.leman.internal.Arguments;
import dev.leman.internal.Threads;
import dev.leman.internal.TlsFiles;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.ServerCredentials;
import io.grpc.TlsServerCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/**
 * Serves functions that compute columns of Leman, over Arrow Flight.
 *
 * <p>Once it runs, a function is registered by its address, and its columns are those of any other
 * function: checkpoints, error policy, time limits. Several streams are computed at once, each by a
 * thread of its own.
 */
public final class FunctionServer implements AutoCloseable {
  private static final AtomicInteger SERVERS = new AtomicInteger();

  private final Server server;
  private final FlightFunctions service;
  private final Threads threads = new Threads("leman-functions-" + SERVERS.incrementAndGet());
  private final ExecutorService pool = Executors.newCachedThreadPool(threads);
  private final BufferAllocator memory;
  private final Duration grace;

  private FunctionServer(Builder built) throws IOException {
    grace = built.grace;
    memory = new RootAllocator();
    service = new FlightFunctions(built.functions, pool, memory);
    try {
      server =
          NettyServerBuilder.forAddress(
                  new InetSocketAddress(built.host, built.port), built.credentials())
              .executor(pool)
              .maxInboundMessageSize(Integer.MAX_VALUE)
              .permitKeepAliveTime(5, TimeUnit.SECONDS) // callers ask every ten
              .permitKeepAliveWithoutCalls(true)
              .intercept(new TokenCheck(built.allows))
              .addService(service)
              .build()
              .start();
    } catch (IOException | RuntimeException failed) {
      pool.shutdown();
      memory.close();
      throw failed;
    }
  }

  /** Begin a server. */
  public static Builder builder() {
    return new Builder();
  }

  /** The port that it listens at. */
  public int port() {
    return server.getPort();
  }

  /** Wait until another thread closes it. */
  public void awaitTermination() throws InterruptedException {
    server.awaitTermination();
  }

  /**
   * Stop: batches that are being computed are answered, as long as the grace lasts, and clients are
   * sent to other instances. Its threads have ended then, but those of functions that ignore an
   * interrupt.
   */
  @Override
  public void close() {
    server.shutdown();
    service.stop();
    try {
      if (!server.awaitTermination(grace.toMillis(), TimeUnit.MILLISECONDS)) {
        server.shutdownNow(); // interrupts the functions that are left
      }
      if (service.awaitEnd()) {
        memory.close();
      }
      threads.end(pool, Duration.ofSeconds(1));
    } catch (InterruptedException impatient) {
      server.shutdownNow();
      pool.shutdown();
      Thread.currentThread().interrupt();
    }
  }

  /** What a server is made by. Null is refused as INVALID_ARGUMENT, with the argument's name. */
  public static final class Builder {
    private final Map<String, ServedFunction> functions = new LinkedHashMap<>();
    private String host = "127.0.0.1";
    private int port = 7815;
    private Predicate<String> allows = shown -> true;
    private Path cert;
    private Path key;
    private Path clientAuthority;
    private Duration grace = Duration.ofSeconds(30);

    private Builder() {}

    /**
     * Serve a function, too.
     *
     * @throws IllegalArgumentException where there is one of its name
     */
    public Builder add(ServedFunction function) {
      Arguments.given("function", function);
      if (functions.putIfAbsent(function.name, function) != null) {
        throw new IllegalArgumentException("there is a function \"" + function.name + "\" already");
      }
      return this;
    }

    /** Listen at this name or address of the machine: this machine alone, unless it is given. */
    public Builder host(String host) {
      Arguments.given("host", host);
      this.host = host;
      return this;
    }

    /** Where to listen; 0: at any free port. 7815, unless it is given. */
    public Builder port(int port) {
      this.port = port;
      return this;
    }

    /** Serve callers that show this token, and refuse all others. */
    public Builder token(String token) {
      Arguments.given("token", token);
      if (token.isEmpty()) {
        throw new IllegalArgumentException(
            "the token is empty: set it, or leave it out and serve this machine alone");
      }
      byte[] known = token.getBytes(StandardCharsets.UTF_8);
      return tokenCheck(
          shown -> MessageDigest.isEqual(known, shown.getBytes(StandardCharsets.UTF_8)));
    }

    /** Serve callers whose token is allowed; it is asked about an empty one where none is shown. */
    public Builder tokenCheck(Predicate<String> allows) {
      Arguments.given("allows", allows);
      this.allows = allows;
      return this;
    }

    /**
     * Serve over TLS, with a certificate and its key (PEM). The files may be renewed in place: new
     * connections find the new ones.
     */
    public Builder tls(Path cert, Path key) {
      Arguments.given("cert", cert);
      Arguments.given("key", key);
      this.cert = cert;
      this.key = key;
      return this;
    }

    /**
     * Serve callers with a certificate only, signed by one of these (PEM), which may be renewed.
     */
    public Builder clientAuthority(Path authority) {
      Arguments.given("authority", authority);
      clientAuthority = authority;
      return this;
    }

    /** How long functions hold up {@link FunctionServer#close}: half a minute, unless given. */
    public Builder grace(Duration grace) {
      Arguments.given("grace", grace);
      this.grace = grace;
      return this;
    }

    /** Serve. */
    public FunctionServer start() throws IOException {
      return new FunctionServer(this);
    }

    private ServerCredentials credentials() throws IOException {
      if (cert == null) {
        if (clientAuthority != null) {
          throw new IllegalArgumentException("clientAuthority() goes with tls()");
        }
        return InsecureServerCredentials.create();
      }
      TlsFiles files = new TlsFiles(clientAuthority, cert, key);
      TlsServerCredentials.Builder tls = TlsServerCredentials.newBuilder().keyManager(files.keys());
      if (clientAuthority != null) {
        tls.trustManager(files.trust()).clientAuth(TlsServerCredentials.ClientAuth.REQUIRE);
      }
      return tls.build();
    }
  }
}
