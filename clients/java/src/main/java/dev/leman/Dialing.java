package dev.leman;

import dev.leman.internal.Threads;
import dev.leman.internal.TlsFiles;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;

/** Opens channels. */
final class Dialing {
  private static final int MAX_MESSAGE = 64 << 20;
  private static final AtomicInteger CLIENTS = new AtomicInteger();

  Path authority;
  Path chain;
  Path key;
  boolean plaintext;

  /** Open the channels of one client. Makes no call. */
  Connections open(List<String> endpoints, Tokens tokens, Duration patience) {
    ChannelCredentials credentials = credentials();
    String exposed = exposed(endpoints);
    if (exposed != null && tokens.given()) {
      throw Addresses.inTheClear(exposed);
    }
    Connections opened =
        open(endpoints, tokens, patience, pool -> endpoint -> channel(endpoint, credentials, pool));
    opened.showNoTokenTo(exposed);
    return opened;
  }

  /**
   * Return another machine to which a token would be sent unencrypted without permission, or null.
   */
  private String exposed(List<String> endpoints) {
    return authority != null || plaintext
        ? null
        : endpoints.stream().filter(at -> !Addresses.isLoopback(at)).findFirst().orElse(null);
  }

  /** Open channels with {@code opened}. */
  static Connections open(
      List<String> endpoints,
      Tokens tokens,
      Duration patience,
      Function<Executor, Function<String, ManagedChannel>> opened) {
    Threads threads = new Threads("leman-client-" + CLIENTS.incrementAndGet());
    ExecutorService pool = Executors.newCachedThreadPool(threads);
    ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, threads);
    timer.setRemoveOnCancelPolicy(true);
    List<ManagedChannel> channels = new ArrayList<>();
    for (String endpoint : endpoints) {
      try {
        channels.add(opened.apply(Threads.lasting(pool)).apply(endpoint));
      } catch (IllegalArgumentException unusable) { // gRPC validates names more strictly
        channels.forEach(ManagedChannel::shutdownNow);
        String told = "endpoint \"" + endpoint + "\" cannot be called: " + unusable.getMessage();
        throw Addresses.refused("endpoints", told, unusable);
      }
    }
    return new Connections(new Endpoints(channels), tokens, patience, threads, pool, timer);
  }

  static ManagedChannel channel(String endpoint, ChannelCredentials credentials, Executor pool) {
    return Grpc.newChannelBuilder(endpoint, credentials)
        .executor(pool)
        .maxInboundMessageSize(MAX_MESSAGE)
        .keepAliveTime(20, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS)
        .disableRetry() // only this client retries
        .build();
  }

  private ChannelCredentials credentials() {
    if ((chain == null) != (key == null) || (chain != null && authority == null)) {
      throw Addresses.refused(
          "certificate", "a certificate goes with its key, and with tls()", null);
    }
    if (authority != null && plaintext) {
      throw Addresses.refused("plaintext", "tls() and plaintext(true) contradict each other", null);
    }
    if (authority == null) {
      return InsecureChannelCredentials.create();
    }
    try {
      TlsFiles files = new TlsFiles(authority, chain, key);
      TlsChannelCredentials.Builder tls =
          TlsChannelCredentials.newBuilder().trustManager(files.trust());
      return chain == null ? tls.build() : tls.keyManager(files.keys()).build();
    } catch (IOException unreadable) {
      throw Addresses.refused(
          "tls", "a PEM file cannot be read, or used: " + unreadable.getMessage(), unreadable);
    }
  }
}
