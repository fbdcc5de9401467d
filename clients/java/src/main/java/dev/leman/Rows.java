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
 * The rows of one version of a table or view, one batch at a time. It holds one batch in memory,
 * whatever the size of the table and however slowly you read. If the call is interrupted, it
 * continues after the last row. Used by one thread; closing it ends the call.
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

  /** The schema of all batches. */
  public Schema schema() {
    return schema;
  }

  /**
   * Return the rows as an Arrow reader, for libraries that take one. Its methods also fail with
   * {@link LemanException}. After it is closed, loading a batch throws IllegalStateException.
   */
  public ArrowReader reader() {
    return reader;
  }

  /**
   * Iterate over the batches, once. Each batch is valid until the next one is requested, and is
   * closed with these rows. Iterating fails with {@link LemanException}, or with
   * IllegalStateException after the rows were closed.
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

  /** Allocates no more memory after it was closed. */
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
