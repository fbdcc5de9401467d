package dev.leman;

import io.grpc.EquivalentAddressGroup;
import io.grpc.InsecureChannelCredentials;
import io.grpc.NameResolver;
import io.grpc.NameResolverProvider;
import io.grpc.NameResolverRegistry;
import io.grpc.Status;
import io.grpc.StatusOr;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Set;

/** Gives gRPC the current addresses of the services of a local database. */
final class LocalResolver extends NameResolver {
  private static final String SCHEME = "leman-local";

  static {
    NameResolverRegistry.getDefaultRegistry().register(new Provider());
  }

  private final Path file;
  private Listener2 listener;
  private List<String> known = List.of();

  private LocalResolver(Path file) {
    this.file = file;
  }

  /** Return a connection to the services in a file, each of which accepts all calls. */
  static Connections channels(Path file, TokenSource token, Duration patience) {
    String target = SCHEME + "://" + file.toUri().getRawPath();
    return Dialing.open(
        List.of(target),
        Tokens.from(token),
        patience,
        pool -> at -> Dialing.channel(at, InsecureChannelCredentials.create(), pool));
  }

  @Override
  public String getServiceAuthority() {
    return "localhost";
  }

  @Override
  public void start(Listener2 told) {
    listener = told;
    refresh();
  }

  /** Read the file again; gRPC calls this when a connection fails. */
  @Override
  public void refresh() {
    List<String> found;
    try {
      found = LocalDatabase.read(file).addresses();
    } catch (IOException away) {
      if (known.isEmpty()) {
        listener.onError(Status.UNAVAILABLE.withDescription(away.getMessage()));
      }
      return; // gRPC keeps trying the previous addresses
    }
    if (!found.equals(known)) {
      known = found;
      List<EquivalentAddressGroup> groups = found.stream().map(LocalResolver::group).toList();
      listener.onResult(
          ResolutionResult.newBuilder().setAddressesOrError(StatusOr.fromValue(groups)).build());
    }
  }

  @Override
  public void shutdown() {
    // holds no resources
  }

  private static EquivalentAddressGroup group(String address) {
    int colon = address.lastIndexOf(':');
    String host = address.substring(0, colon).replaceAll("^\\[|\\]$", "");
    return new EquivalentAddressGroup(
        new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1))));
  }

  private static final class Provider extends NameResolverProvider {
    @Override
    public NameResolver newNameResolver(URI target, Args args) {
      return SCHEME.equals(target.getScheme())
          ? new LocalResolver(Path.of(URI.create("file://" + target.getRawPath())))
          : null;
    }

    @Override
    public String getDefaultScheme() {
      return SCHEME;
    }

    @Override
    public Collection<Class<? extends SocketAddress>> getProducedSocketAddressTypes() {
      return Set.of(InetSocketAddress.class);
    }

    @Override
    protected boolean isAvailable() {
      return true;
    }

    @Override
    protected int priority() {
      return 0; // lower than any other: it is never the default scheme
    }
  }
}
