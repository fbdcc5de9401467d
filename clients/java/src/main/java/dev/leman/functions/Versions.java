package dev.leman.functions;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.CodeSource;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Derives versions from code. */
final class Versions {
  private static final int DIGITS = 12;

  private Versions() {}

  /** Return the first digits of the SHA-256 of the jar, or class file, with an object's code. */
  static String of(Object code) {
    Class<?> type = code.getClass();
    try (InputStream content = content(type)) {
      DigestInputStream read = new DigestInputStream(content, MessageDigest.getInstance("SHA-256"));
      read.transferTo(OutputStream.nullOutputStream());
      return HexFormat.of().formatHex(read.getMessageDigest().digest()).substring(0, DIGITS);
    } catch (IOException | URISyntaxException | NoSuchAlgorithmException unreadable) {
      throw new IllegalStateException(
          "the code of " + type.getName() + " cannot be read: give the function a version",
          unreadable);
    }
  }

  private static InputStream content(Class<?> type) throws IOException, URISyntaxException {
    CodeSource source = type.getProtectionDomain().getCodeSource();
    if (source != null && "file".equals(source.getLocation().getProtocol())) {
      Path jar = Path.of(source.getLocation().toURI());
      if (Files.isRegularFile(jar)) {
        return Files.newInputStream(jar);
      }
    }
    String named = type.getName().replaceFirst("\\$\\$Lambda.*", "").replace('.', '/') + ".class";
    ClassLoader loader = type.getClassLoader();
    InputStream found = loader == null ? null : loader.getResourceAsStream(named);
    if (found == null) {
      throw new IOException("there is no " + named);
    }
    return found;
  }
}
