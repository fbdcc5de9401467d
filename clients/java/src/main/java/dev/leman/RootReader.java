package dev.leman;

import java.util.Map;
import java.util.Set;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Schema;

/** A reader of one existing batch. Closing the reader does not close the batch. */
final class RootReader extends ArrowReader {
  private final VectorSchemaRoot rows;
  private final DictionaryProvider known;
  private boolean given;

  RootReader(VectorSchemaRoot rows, DictionaryProvider known) {
    super(null);
    this.rows = rows;
    this.known = known;
  }

  @Override
  public VectorSchemaRoot getVectorSchemaRoot() {
    return rows;
  }

  @Override
  public boolean loadNextBatch() {
    boolean first = !given;
    given = true;
    return first;
  }

  @Override
  public Map<Long, Dictionary> getDictionaryVectors() {
    return Map.of();
  }

  @Override
  public Dictionary lookup(long id) {
    Dictionary found = known.lookup(id);
    if (found == null) {
      throw Addresses.refused(
          "dictionaries",
          "a column of the rows is encoded by dictionary "
              + id
              + ", which is not among the dictionaries: give those with the rows to RowSource.of",
          null);
    }
    return found;
  }

  @Override
  public Set<Long> getDictionaryIds() {
    return known.getDictionaryIds();
  }

  @Override
  public long bytesRead() {
    return 0;
  }

  @Override
  public void close(boolean closeReadSource) {
    given = true;
  }

  @Override
  protected void closeReadSource() {
    given = true;
  }

  @Override
  protected Schema readSchema() {
    return rows.getSchema();
  }
}
