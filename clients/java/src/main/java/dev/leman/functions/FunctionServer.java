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
 * <p>Start it, then register a function with the server's address. Its columns have checkpoints, an
 * error policy and time limits like those of any other function. The server computes several
 * streams concurrently, each in a thread of its own.
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
              .permitKeepAliveTime(5, TimeUnit.SECONDS) // callers send pings every ten seconds
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

  /** Build a server. */
  public static Builder builder() {
    return new Builder();
  }

  /** The port that it listens on. */
  public int port() {
    return server.getPort();
  }

  /** Wait until another thread closes it. */
  public void awaitTermination() throws InterruptedException {
    server.awaitTermination();
  }

  /**
   * Stop: finish the batches that are being computed, up to the grace period, and tell clients to
   * use other instances. Then all threads have ended, except those of functions that ignore an
   * interrupt.
   */
  @Override
  public void close() {
    server.shutdown();
    service.stop();
    try {
      if (!server.awaitTermination(grace.toMillis(), TimeUnit.MILLISECONDS)) {
        server.shutdownNow(); // interrupts the remaining functions
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

  /** Builds a server. Null arguments are refused as INVALID_ARGUMENT, with the argument's name. */
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
     * Serve a function.
     *
     * @throws IllegalArgumentException if there is already one with its name
     */
    public Builder add(ServedFunction function) {
      Arguments.given("function", function);
      if (functions.putIfAbsent(function.name, function) != null) {
        throw new IllegalArgumentException("there is a function \"" + function.name + "\" already");
      }
      return this;
    }

    /** The name or address to listen on; by default only this machine can reach the server. */
    public Builder host(String host) {
      Arguments.given("host", host);
      this.host = host;
      return this;
    }

    /** The port; 0: any free port. The default is 7815. */
    public Builder port(int port) {
      this.port = port;
      return this;
    }

    /** Accept only callers that send this token. */
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

    /** Accept callers whose token is allowed; the token is empty if a caller sends none. */
    public Builder tokenCheck(Predicate<String> allows) {
      Arguments.given("allows", allows);
      this.allows = allows;
      return this;
    }

    /**
     * Serve with TLS, with a certificate and its key (PEM). You can renew the files in place: new
     * connections use the new files.
     */
    public Builder tls(Path cert, Path key) {
      Arguments.given("cert", cert);
      Arguments.given("key", key);
      this.cert = cert;
      this.key = key;
      return this;
    }

    /**
     * Accept only callers with a certificate that was signed by one of these (PEM), which you can
     * renew.
     */
    public Builder clientAuthority(Path authority) {
      Arguments.given("authority", authority);
      clientAuthority = authority;
      return this;
    }

    /** How long {@link FunctionServer#close} waits for functions; the default is half a minute. */
    public Builder grace(Duration grace) {
      Arguments.given("grace", grace);
      this.grace = grace;
      return this;
    }

    /** Start the server. */
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
