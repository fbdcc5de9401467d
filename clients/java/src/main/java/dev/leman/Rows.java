package dev.leman;

import dev.leman.v1.ReadRowsRequest;
import java.io.IOException;
import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The rows of one version of a table or view, batch by batch. It holds a batch at a time, however
 * large the table is and however slowly it is read; interrupted, it continues where it was. Used by
 * one thread; closing it ends the call.
 *
 * <pre>{@code
 * try (Rows rows = table.read(ReadOptions.all().columns("text"), allocator)) {
 *   for (VectorSchemaRoot batch : rows) {
 *     System.out.println(batch.contentToTSVString());
 *   }
 * }
 * }</pre>
 */
public final class Rows implements Iterable<VectorSchemaRoot>, AutoCloseable {
  private final ResumedMessages messages;
  private final OpenReader reader;
  private final Schema schema;
  private boolean iterated;

  Rows(Connections connections, ReadRowsRequest request, BufferAllocator allocator) {
    messages = new ResumedMessages(connections, request, allocator);
    reader = new OpenReader(messages, allocator);
    try {
      schema = reader.getVectorSchemaRoot().getSchema();
    } catch (IOException | RuntimeException failure) {
      close();
      throw LemanException.from(failure);
    }
  }

  /** The version of the table that is read. */
  public long version() {
    return messages.version();
  }

  /** That of all batches. */
  public Schema schema() {
    return schema;
  }

  /**
   * The rows as Arrow's own reader, for what takes one; its methods fail with {@link
   * LemanException}, too. Once closed, it loads no batch any more: IllegalStateException.
   */
  public ArrowReader reader() {
    return reader;
  }

  /**
   * The batches, once. Each is valid until the next one is asked for, and is closed with these
   * rows. Iterating fails with {@link LemanException}, and with IllegalStateException once they are
   * closed.
   */
  @Override
  public Iterator<VectorSchemaRoot> iterator() {
    if (iterated) {
      throw new IllegalStateException("rows are iterated over once: read them again");
    }
    iterated = true;
    return new Batches();
  }

  @Override
  public void close() {
    try {
      reader.close();
    } catch (IOException failure) {
      throw LemanException.from(failure);
    }
  }

  /** Takes no memory any more once it is closed. */
  private static final class OpenReader extends ArrowStreamReader {
    private boolean closed;

    OpenReader(ResumedMessages messages, BufferAllocator allocator) {
      super(messages, allocator);
    }

    void checkOpen() {
      if (closed) {
        throw new IllegalStateException("the rows are closed: read them again");
      }
    }

    @Override
    public boolean loadNextBatch() throws IOException {
      checkOpen();
      return super.loadNextBatch();
    }

    @Override
    public void close(boolean closeReadSource) throws IOException {
      closed = true;
      super.close(closeReadSource);
    }
  }

  private final class Batches implements Iterator<VectorSchemaRoot> {
    private boolean looked;
    private boolean found;

    @Override
    public boolean hasNext() {
      reader.checkOpen();
      if (!looked) {
        try {
          found = reader.loadNextBatch();
        } catch (IOException failure) {
          throw LemanException.from(failure);
        }
        looked = true;
      }
      return found;
    }

    @Override
    public VectorSchemaRoot next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      looked = false;
      try {
        return reader.getVectorSchemaRoot();
      } catch (IOException failure) {
        throw LemanException.from(failure);
      }
    }
  }
}
