package dev.leman.functions;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;

/** The body of a message, whose size is known before it is written. */
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
    // holds no resources
  }
}
