package dev.leman.internal;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.Signature;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.UUID;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Certificates from PEM files that may change; for clients and servers of this library, not part of
 * its public API.
 *
 * <p>You can replace the files at any time: they are reread when a connection is made, at most once
 * a second. While they are invalid or do not match each other, because only some of them have been
 * replaced, the previous contents stay in use.
 */
public final class TlsFiles {
  private static final long LOOK_AGAIN_AFTER = Duration.ofSeconds(1).toNanos();

  private final Path authority;
  private final Path chain;
  private final Path key;
  private Content content;
  private Content before;
  private long looked = System.nanoTime();

  /** The paths of the files; null if there is no such file. The chain needs its key. */
  public TlsFiles(Path authority, Path chain, Path key) throws IOException {
    this.authority = authority;
    this.chain = chain;
    this.key = key;
    content = read();
    before = content;
  }

  /** Supplies the certificate. */
  public X509ExtendedKeyManager keys() {
    return new Keys();
  }

  /** Trusts certificates that the authority signed. */
  public X509ExtendedTrustManager trust() {
    return new Trust();
  }

  private synchronized Content now() {
    if (System.nanoTime() - looked >= LOOK_AGAIN_AFTER) {
      looked = System.nanoTime();
      try {
        if (!content.isOf(bytes())) {
          Content found = read();
          before = content;
          content = found;
        }
      } catch (IOException notYet) {
        // keep the previous contents
      }
    }
    return content;
  }

  /**
   * Return the contents with which a handshake started: it requests the chain and the key one after
   * the other.
   */
  private synchronized Content of(String alias) {
    return before.alias().equals(alias) ? before : content;
  }

  private byte[][] bytes() throws IOException {
    return new byte[][] {bytes(authority), bytes(chain), bytes(key)};
  }

  private static byte[] bytes(Path file) throws IOException {
    return file == null ? new byte[0] : Files.readAllBytes(file);
  }

  private Content read() throws IOException {
    byte[][] found = bytes();
    try {
      return new Content(
          UUID.randomUUID().toString(),
          found,
          authority == null ? null : trusting(found[0]),
          chain == null ? null : certificates(found[1]),
          key == null ? null : privateKey(found[1], found[2]));
    } catch (GeneralSecurityException | IllegalArgumentException unusable) {
      throw new IOException("a PEM file cannot be used: " + unusable.getMessage(), unusable);
    }
  }

  private static X509Certificate[] certificates(byte[] pem) throws CertificateException {
    Collection<? extends Certificate> found =
        CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
    if (found.isEmpty()) {
      throw new CertificateException("it has no certificate");
    }
    return found.toArray(X509Certificate[]::new);
  }

  private static X509ExtendedTrustManager trusting(byte[] pem)
      throws GeneralSecurityException, IOException {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    int number = 0;
    for (X509Certificate trusted : certificates(pem)) {
      store.setCertificateEntry("authority-" + number++, trusted);
    }
    TrustManagerFactory factory =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    factory.init(store);
    for (TrustManager made : factory.getTrustManagers()) {
      if (made instanceof X509ExtendedTrustManager trust) {
        return trust;
      }
    }
    throw new CertificateException("this Java checks no certificates of X.509");
  }

  private static PrivateKey privateKey(byte[] chain, byte[] pem) throws GeneralSecurityException {
    String text = new String(pem, StandardCharsets.US_ASCII);
    String begin = "-----BEGIN PRIVATE KEY-----";
    int from = text.indexOf(begin);
    int to = text.indexOf("-----END PRIVATE KEY-----");
    if (from < 0 || to < from) {
      throw new GeneralSecurityException("the key is none of PKCS #8 (" + begin + ")");
    }
    String encoded = text.substring(from + begin.length(), to);
    PublicKey shown = certificates(chain)[0].getPublicKey();
    PrivateKey made =
        KeyFactory.getInstance(shown.getAlgorithm())
            .generatePrivate(new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(encoded)));
    if (!fit(shown, made)) {
      throw new GeneralSecurityException("the key is not the certificate's");
    }
    return made;
  }

  private static boolean fit(PublicKey shown, PrivateKey made) throws GeneralSecurityException {
    String algorithm =
        switch (shown.getAlgorithm()) {
          case "RSA" -> "SHA256withRSA";
          case "EC" -> "SHA256withECDSA";
          case "DSA" -> "SHA256withDSA";
          default -> shown.getAlgorithm(); // EdDSA is its own
        };
    Signature signing = Signature.getInstance(algorithm);
    signing.initSign(made);
    signing.update(new byte[32]);
    byte[] signature = signing.sign();
    signing.initVerify(shown);
    signing.update(new byte[32]);
    return signing.verify(signature);
  }

  private record Content(
      String alias,
      byte[][] files,
      X509ExtendedTrustManager trust,
      X509Certificate[] chain,
      PrivateKey key) {
    boolean isOf(byte[][] found) {
      return Arrays.deepEquals(files, found);
    }
  }

  private final class Keys extends X509ExtendedKeyManager {
    @Override
    public String chooseEngineServerAlias(String type, Principal[] issuers, SSLEngine engine) {
      return now().alias();
    }

    @Override
    public String chooseEngineClientAlias(String[] types, Principal[] issuers, SSLEngine engine) {
      return now().alias();
    }

    @Override
    public String chooseServerAlias(String type, Principal[] issuers, Socket socket) {
      return now().alias();
    }

    @Override
    public String chooseClientAlias(String[] types, Principal[] issuers, Socket socket) {
      return now().alias();
    }

    @Override
    public String[] getServerAliases(String type, Principal[] issuers) {
      return new String[] {now().alias()};
    }

    @Override
    public String[] getClientAliases(String type, Principal[] issuers) {
      return new String[] {now().alias()};
    }

    @Override
    public X509Certificate[] getCertificateChain(String alias) {
      return of(alias).chain().clone();
    }

    @Override
    public PrivateKey getPrivateKey(String alias) {
      return of(alias).key();
    }
  }

  private final class Trust extends X509ExtendedTrustManager {
    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type)
        throws CertificateException {
      now().trust().checkClientTrusted(chain, type);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type)
        throws CertificateException {
      now().trust().checkServerTrusted(chain, type);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
        throws CertificateException {
      now().trust().checkClientTrusted(chain, type, socket);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
        throws CertificateException {
      now().trust().checkServerTrusted(chain, type, socket);
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
        throws CertificateException {
      now().trust().checkClientTrusted(chain, type, engine);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
        throws CertificateException {
      now().trust().checkServerTrusted(chain, type, engine);
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return now().trust().getAcceptedIssuers();
    }
  }
}
