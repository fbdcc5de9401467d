package dev.leman;

import dev.leman.internal.Arguments;
import java.io.IOException;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;

/** Supplies the rows of a call. */
public interface RowSource {
  /**
   * Open the rows at the first batch. It is called for each attempt to send the rows.
   *
   * @return a reader, which is closed when the attempt has ended; null if the rows cannot be sent
   *     again
   * @throws IOException if there are no rows. The call then fails as INVALID_ARGUMENT, and so for
   *     any other exception, except that a {@link LemanException} is thrown unchanged
   */
  ArrowReader open() throws IOException;

  /**
   * Rows in memory, which remain the caller's. If the services become unavailable during the call,
   * they are sent again.
   */
  static RowSource of(VectorSchemaRoot rows) {
    return of(rows, new DictionaryProvider.MapDictionaryProvider());
  }

  /** Like {@link #of(VectorSchemaRoot)}, for columns with dictionary encoding. */
  static RowSource of(VectorSchemaRoot rows, DictionaryProvider dictionaries) {
    Arguments.given("rows", rows);
    Arguments.given("dictionaries", dictionaries);
    return () -> new RootReader(rows, dictionaries);
  }

  /**
   * The rows of a reader, which is closed at the end. They can be read only once: if the services
   * become unavailable during the call, it fails.
   */
  static RowSource once(ArrowReader reader) {
    Arguments.given("reader", reader);
    ArrowReader[] left = {reader};
    return () -> {
      ArrowReader taken = left[0];
      left[0] = null;
      return taken;
    };
  }
}
