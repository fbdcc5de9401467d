package dev.leman;

import dev.leman.internal.Arguments;
import java.io.IOException;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;

/** Where rows come from that are sent. */
public interface RowSource {
  /**
   * Begin with the first batch. It is called once for each attempt at sending the rows.
   *
   * @return a reader, which is closed when the attempt has ended; null: they cannot be sent again
   * @throws IOException where there are none; the call fails as INVALID_ARGUMENT then, and so for
   *     any other exception but {@link LemanException}, which it fails with itself
   */
  ArrowReader open() throws IOException;

  /** Rows in memory, which stay their owner's; they are sent again where the services went away. */
  static RowSource of(VectorSchemaRoot rows) {
    return of(rows, new DictionaryProvider.MapDictionaryProvider());
  }

  /** As {@link #of(VectorSchemaRoot)}, where columns are encoded by dictionaries. */
  static RowSource of(VectorSchemaRoot rows, DictionaryProvider dictionaries) {
    Arguments.given("rows", rows);
    Arguments.given("dictionaries", dictionaries);
    return () -> new RootReader(rows, dictionaries);
  }

  /**
   * The rows of a reader, which is closed in the end. What it gave is gone: where the services go
   * away meanwhile, the rows are not sent again, and the call fails.
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
