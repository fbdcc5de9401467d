package dev.leman.functions;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ReadableByteChannel;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.IntConsumer;
import org.apache.arrow.flight.impl.Flight.FlightData;

/**
 * The messages of a client as one Arrow IPC stream. It requests a message when one is taken: so the
 * next one is read while one is computed.
 */
final class Inbox implements ReadableByteChannel {
  private static final int CONTINUATION = 0xFFFFFFFF;
  private static final Object END = new Object();

  private final IntConsumer request;
  private final BlockingQueue<Object> received = new LinkedBlockingQueue<>();
  private final Deque<ByteBuffer> pieces = new ArrayDeque<>();

  Inbox(IntConsumer request) {
    this.request = request;
  }

  void put(FlightData message) {
    received.add(message);
  }

  void end() {
    received.add(END);
  }

  /** Let reading fail, after the messages that arrived before. */
  void fail(Status status) {
    received.add(status);
  }

  /** Return the next message; null after the last one. */
  FlightData take() throws IOException {
    try {
      Object next = received.take();
      if (next instanceof FlightData message) {
        request.accept(1);
        return message;
      }
      if (next instanceof Status failed) {
        throw failed.asRuntimeException();
      }
      received.add(END);
      return null;
    } catch (InterruptedException cancelled) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("the client went away");
    }
  }

  /** Prepend a message to the stream. */
  void open(FlightData message) {
    ByteString header = message.getDataHeader();
    if (!header.isEmpty()) {
      ByteBuffer prefix = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
      pieces.add(prefix.putInt(CONTINUATION).putInt(header.size()).flip());
      pieces.addAll(header.asReadOnlyByteBufferList());
      pieces.addAll(message.getDataBody().asReadOnlyByteBufferList());
      pieces.removeIf(piece -> !piece.hasRemaining());
    }
  }

  @Override
  public int read(ByteBuffer into) throws IOException {
    while (pieces.isEmpty()) {
      FlightData next = take();
      if (next == null) {
        return -1;
      }
      open(next);
    }
    ByteBuffer piece = pieces.peek();
    int taken = Math.min(piece.remaining(), into.remaining());
    into.put(piece.slice(piece.position(), taken));
    piece.position(piece.position() + taken);
    if (!piece.hasRemaining()) {
      pieces.remove();
    }
    return taken;
  }

  @Override
  public boolean isOpen() {
    return true;
  }

  @Override
  public void close() {
    pieces.clear();
  }
}
