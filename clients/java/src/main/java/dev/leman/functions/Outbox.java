package dev.leman.functions;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;

/** The body of a message, as it is written: of a size that is known before. */
final class Outbox implements WritableByteChannel {
  private final ByteBuffer bytes;

  Outbox(int size) {
    bytes = ByteBuffer.allocate(size);
  }

  ByteString content() {
    return UnsafeByteOperations.unsafeWrap(bytes.flip());
  }

  @Override
  public int write(ByteBuffer piece) {
    int size = piece.remaining();
    bytes.put(piece);
    return size;
  }

  @Override
  public boolean isOpen() {
    return true;
  }

  @Override
  public void close() {
    // nothing is held
  }
}
