package dev.leman.conformance;

import dev.leman.RowSource;
import dev.leman.Rows;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Base64;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/** Rows as an Arrow IPC stream in base64. */
final class ArrowText {
  static final BufferAllocator MEMORY = new RootAllocator();

  private ArrowText() {}

  /** Rows that can be sent again and again. */
  static RowSource rows(String text) {
    byte[] bytes = Base64.getDecoder().decode(text);
    return () -> {
      ArrowReader reader = new ArrowStreamReader(new ByteArrayInputStream(bytes), MEMORY);
      try {
        reader.getVectorSchemaRoot();
        return reader;
      } catch (UnsupportedOperationException | IllegalArgumentException unknown) {
        reader.close();
        throw new UnsupportedTypeException(unknown);
      }
    };
  }

  /** The batches as they came, so many at the most. */
  static String written(Rows rows, int most) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    int left = most;
    try (ArrowStreamWriter writer =
        new ArrowStreamWriter(rows.reader().getVectorSchemaRoot(), rows.reader(), bytes)) {
      writer.start();
      for (VectorSchemaRoot batch : rows) {
        assert batch == rows.reader().getVectorSchemaRoot();
        writer.writeBatch();
        left--;
        if (left == 0) {
          break;
        }
      }
      writer.end();
    }
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }
}
