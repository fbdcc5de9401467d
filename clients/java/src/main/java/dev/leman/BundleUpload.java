package dev.leman;

import com.google.protobuf.UnsafeByteOperations;
import dev.leman.v1.CatalogServiceGrpc;
import dev.leman.v1.UploadBundleHeader;
import dev.leman.v1.UploadBundleRequest;
import dev.leman.v1.UploadBundleResponse;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** Uploads pickled functions in pieces. */
final class BundleUpload {
  private static final int PIECE = 512 << 10;

  private BundleUpload() {}

  /** Store a bundle and return its digest. Retries while the services are unavailable. */
  static String send(Connections connections, String database, byte[] data) {
    UploadBundleHeader header =
        UploadBundleHeader.newBuilder()
            .setDatabase(database)
            .setSha256(digest(data))
            .setSizeBytes(data.length)
            .build();
    Upload.Tokenized tokens = new Upload.Tokenized();
    Upload.repeated(
        connections,
        tokens,
        () -> attempt(connections, header, data, tokens),
        () -> Addresses.refused("data", "there is no data to send", null));
    return header.getSha256();
  }

  private static UploadBundleResponse attempt(
      Connections connections, UploadBundleHeader header, byte[] data, Upload.Tokenized tokens) {
    try (Upload<UploadBundleRequest, UploadBundleResponse> call =
        new Upload<>(connections, CatalogServiceGrpc.getUploadBundleMethod())) {
      try {
        call.send(UploadBundleRequest.newBuilder().setHeader(header).build());
        for (int at = 0; at < data.length; at += PIECE) {
          int size = Math.min(PIECE, data.length - at);
          call.send(
              UploadBundleRequest.newBuilder()
                  .setData(UnsafeByteOperations.unsafeWrap(data, at, size))
                  .build());
        }
        call.end();
      } catch (Upload.Ended early) { // already stored, or refused
        return call.finish(tokens);
      }
      return call.finish(tokens);
    }
  }

  private static String digest(byte[] data) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException("every JDK has SHA-256", impossible);
    }
  }
}
