package dev.leman;

import dev.leman.v1.ReadRowsRequest;
import dev.leman.v1.ReadRowsResponse;
import dev.leman.v1.TableServiceGrpc;
import io.grpc.Status;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.MessageChannelReader;
import org.apache.arrow.vector.ipc.message.MessageResult;

/**
 * The messages of the Arrow IPC stream of a ReadRows call. If the call is interrupted, another one
 * reads the remaining rows of the same version, and the schema with which its stream begins is
 * skipped.
 */
final class ResumedMessages extends MessageChannelReader {
  private final Connections connections;
  private final ReadRowsRequest.Builder request;
  private final Patience waiting;
  private Incoming incoming;
  private boolean begun;

  ResumedMessages(Connections connections, ReadRowsRequest request, BufferAllocator memory) {
    super(null, memory);
    this.connections = connections;
    this.request = request.toBuilder();
    this.waiting = connections.patience();
    open();
  }

  /** The version of the table that is read; 0 before the first message. */
  long version() {
    return incoming.version == 0 ? request.getVersion() : incoming.version;
  }

  @Override
  public MessageResult readNext() throws IOException {
    while (true) {
      try {
        MessageResult message = super.readNext();
        waiting.reset();
        if (message == null || !passedOver(message)) {
          return message;
        }
      } catch (IOException broken) {
        throw new LemanException(
            Status.Code.DATA_LOSS, "", "what came are no rows: " + broken.getMessage(), broken);
      } catch (LemanException broken) {
        connections.beforeNextStream(broken, waiting, incoming.answers.token());
        goOn();
      }
    }
  }

  /** Count what was read; returns true for a repeated schema. */
  private boolean passedOver(MessageResult message) {
    if (message.getMessage().headerType() == MessageHeader.Schema) {
      boolean again = begun;
      begun = true;
      return again;
    }
    if (message.getMessage().headerType() == MessageHeader.RecordBatch) {
      long rows = ((RecordBatch) message.getMessage().header(new RecordBatch())).length();
      request.setOffset(request.getOffset() + rows);
      if (request.hasLimit()) {
        request.setLimit(request.getLimit() - rows);
      }
    }
    return false;
  }

  private void goOn() {
    if (version() != 0) {
      request.setVersion(version());
    }
    if (!incoming.incarnation.isEmpty()) {
      request.setIncarnation(incoming.incarnation);
    }
    incoming.close();
    open();
  }

  private void open() {
    incoming =
        new Incoming(
            connections.answers(TableServiceGrpc.getReadRowsMethod(), request.build(), null));
    in = new ReadChannel(incoming);
  }

  @Override
  public long bytesRead() {
    return in.bytesRead();
  }

  @Override
  public void close() {
    incoming.close();
  }

  /** A channel of the bytes of a stream's messages. */
  private static final class Incoming implements ReadableByteChannel {
    private final Answers<ReadRowsRequest, ReadRowsResponse> answers;
    private ByteBuffer left = ByteBuffer.allocate(0);
    private long version;
    private String incarnation = "";
    private boolean open = true;

    Incoming(Answers<ReadRowsRequest, ReadRowsResponse> answers) {
      this.answers = answers;
    }

    @Override
    public int read(ByteBuffer into) {
      while (!left.hasRemaining()) {
        ReadRowsResponse answer = answers.next();
        if (answer == null) {
          return -1;
        }
        if (version == 0) {
          version = answer.getVersion();
          incarnation = answer.getIncarnation();
        }
        left = answer.getArrowIpc().asReadOnlyByteBuffer();
      }
      int taken = Math.min(left.remaining(), into.remaining());
      into.put(left.slice().limit(taken));
      left.position(left.position() + taken);
      return taken;
    }

    @Override
    public boolean isOpen() {
      return open;
    }

    @Override
    public void close() {
      open = false;
      answers.close();
    }
  }
}
