package dev.leman.examples;

import dev.leman.ColumnFunction;
import dev.leman.Database;
import dev.leman.LemanClient;
import dev.leman.RowSource;
import dev.leman.Rows;
import dev.leman.Table;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Makes a table from Arrow, adds a computed column, computes it, and reads it. */
public final class Words {
  /** Arguments: endpoint, token, database. */
  public static void main(String[] arguments) {
    try (LemanClient client = LemanClient.builder(arguments[0]).token(arguments[1]).connect();
        BufferAllocator memory = new RootAllocator();
        VarCharVector text = new VarCharVector("text", memory)) {
      text.setSafe(0, "to be or not to be".getBytes());
      text.setSafe(1, "that is the question".getBytes());
      text.setValueCount(2);

      Database lake = client.database(arguments[2]);
      Table docs = lake.createTable("docs", RowSource.of(new VectorSchemaRoot(List.of(text))));
      docs.addColumns(Map.of("letters", ColumnFunction.sql("length(text)")));
      docs.backfill("letters").await();

      try (Rows rows = docs.read(memory)) {
        for (VectorSchemaRoot batch : rows) {
          System.out.print(batch.contentToTSVString());
        }
      }
    }
  }
}
