package dev.leman;

import java.util.Iterator;
import java.util.List;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.util.TransferPair;

/** The batches of rows, each with memory of its own. */
final class OwnedBatches implements IteratorPublisher.Source<VectorSchemaRoot> {
  private final Rows rows;
  private final Iterator<VectorSchemaRoot> batches;

  OwnedBatches(Rows rows) {
    this.rows = rows;
    this.batches = rows.iterator();
  }

  @Override
  public boolean hasNext() {
    return batches.hasNext();
  }

  @Override
  public VectorSchemaRoot next() {
    VectorSchemaRoot batch = batches.next();
    List<FieldVector> moved = batch.getFieldVectors().stream().map(OwnedBatches::moved).toList();
    return new VectorSchemaRoot(batch.getSchema().getFields(), moved, batch.getRowCount());
  }

  private static FieldVector moved(FieldVector vector) {
    TransferPair pair = vector.getTransferPair(vector.getAllocator());
    pair.transfer();
    return (FieldVector) pair.getTo();
  }

  @Override
  public void close() {
    rows.close();
  }
}
