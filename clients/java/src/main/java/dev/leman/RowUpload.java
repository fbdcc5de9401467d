package dev.leman;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import dev.leman.v1.AppendRowsHeader;
import dev.leman.v1.AppendRowsRequest;
import dev.leman.v1.AppendRowsResponse;
import dev.leman.v1.MergeRowsHeader;
import dev.leman.v1.MergeRowsRequest;
import dev.leman.v1.MergeRowsResponse;
import dev.leman.v1.TableServiceGrpc;
import io.grpc.MethodDescriptor;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** Sends rows as an Arrow IPC stream, in messages of one megabyte. */
final class RowUpload {
  private static final int PIECE = 1 << 20;
  private static final long LARGEST_BATCH = 16L << 20;

  private RowUpload() {}

  /**
   * Add rows to a table, all or none. While the services are unavailable, it retries under the same
   * request id.
   */
  static AppendRowsResponse append(
      Connections connections, AppendRowsHeader header, RowSource rows) {
    return send(
        connections,
        TableServiceGrpc.getAppendRowsMethod(),
        AppendRowsRequest.newBuilder().setHeader(header).build(),
        piece -> AppendRowsRequest.newBuilder().setArrowIpc(piece).build(),
        rows);
  }

  /** Merge rows into a table; retries like {@link #append}. */
  static MergeRowsResponse merge(Connections connections, MergeRowsHeader header, RowSource rows) {
    return send(
        connections,
        TableServiceGrpc.getMergeRowsMethod(),
        MergeRowsRequest.newBuilder().setHeader(header).build(),
        piece -> MergeRowsRequest.newBuilder().setArrowIpc(piece).build(),
        rows);
  }

  private static <Q, A> A send(
      Connections connections,
      MethodDescriptor<Q, A> method,
      Q first,
      Function<ByteString, Q> message,
      RowSource rows) {
    Upload.Tokenized tokens = new Upload.Tokenized();
    return Upload.repeated(
        connections,
        tokens,
        () -> {
          try (ArrowReader reader = asked(rows::open)) {
            return reader == null
                ? null
                : attempt(new Upload<>(connections, method), first, message, reader, tokens);
          } catch (IOException unreadable) {
            throw unreadable(unreadable);
          }
        },
        RowUpload::none);
  }

  /** Code of the caller that supplies rows. */
  @FunctionalInterface
  interface Own<T> {
    T get() throws IOException;
  }

  /**
   * Run code of the caller.
   *
   * @throws LemanException INVALID_ARGUMENT if it throws; a LemanException is thrown unchanged
   */
  static <T> T asked(Own<T> own) {
    try {
      return own.get();
    } catch (LemanException | Upload.Ended ours) {
      throw ours;
    } catch (IOException | RuntimeException unreadable) {
      throw unreadable(unreadable);
    }
  }

  /** The error if the caller's own reader fails. */
  static LemanException unreadable(Exception cause) {
    String why = cause.getMessage() == null ? cause.getClass().getName() : cause.getMessage();
    return Addresses.refused("rows", "the rows cannot be read: " + why, cause);
  }

  /** The error for a source without a reader for the first attempt. */
  static LemanException none() {
    return Addresses.refused(
        "rows",
        "rows has no reader to give: a source of a reader gives it once, so make another one",
        null);
  }

  private static <Q, A> A attempt(
      Upload<Q, A> begun,
      Q first,
      Function<ByteString, Q> message,
      ArrowReader reader,
      Upload.Tokenized tokens) {
    try (Upload<Q, A> call = begun) {
      try {
        call.send(first);
        asked(() -> write(new Pieces(piece -> call.send(message.apply(piece))), reader));
        call.end();
      } catch (Upload.Ended ended) {
        return call.finish(tokens);
      }
      return call.finish(tokens);
    }
  }

  private static Void write(Pieces pieces, ArrowReader reader) throws IOException {
    VectorSchemaRoot batch = reader.getVectorSchemaRoot();
    try (PartWriter writer = new PartWriter(batch, reader, pieces)) {
      writer.start();
      while (reader.loadNextBatch()) {
        long parts = size(batch) / LARGEST_BATCH + 1;
        if (parts == 1 || batch.getRowCount() < 2 || !reader.getDictionaryIds().isEmpty()) {
          writer.writeBatch();
        } else {
          writer.writeParts(batch, (int) Math.max(1, batch.getRowCount() / parts));
        }
      }
      writer.end();
    }
    pieces.flush();
    return null;
  }

  private static long size(VectorSchemaRoot batch) {
    return batch.getFieldVectors().stream().mapToLong(FieldVector::getBufferSize).sum();
  }

  /** Can also write a batch as several smaller ones, without copying it. */
  private static final class PartWriter extends ArrowStreamWriter {
    PartWriter(VectorSchemaRoot batch, ArrowReader reader, WritableByteChannel out) {
      super(batch, reader, out);
    }

    void writeParts(VectorSchemaRoot batch, int rows) throws IOException {
      for (int at = 0; at < batch.getRowCount(); at += rows) {
        try (VectorSchemaRoot part = batch.slice(at, Math.min(rows, batch.getRowCount() - at));
            ArrowRecordBatch message = new VectorUnloader(part).getRecordBatch()) {
          writeRecordBatch(message);
        }
      }
    }
  }

  /** Collects written bytes into messages. */
  private static final class Pieces implements WritableByteChannel {
    private final Consumer<ByteString> call;
    private ByteBuffer held = ByteBuffer.allocate(PIECE);
    private boolean open = true;

    Pieces(Consumer<ByteString> call) {
      this.call = call;
    }

    @Override
    public int write(ByteBuffer data) {
      int all = data.remaining();
      while (data.hasRemaining()) {
        int taken = Math.min(data.remaining(), held.remaining());
        held.put(data.slice().limit(taken));
        data.position(data.position() + taken);
        if (!held.hasRemaining()) {
          flush();
        }
      }
      return all;
    }

    void flush() {
      if (held.position() == 0) {
        return;
      }
      ByteString piece = UnsafeByteOperations.unsafeWrap(held.flip());
      held = ByteBuffer.allocate(PIECE);
      call.accept(piece);
    }

    @Override
    public boolean isOpen() {
      return open;
    }

    @Override
    public void close() {
      open = false;
    }
  }
}
