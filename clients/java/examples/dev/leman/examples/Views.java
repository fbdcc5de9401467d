package dev.leman.examples;

import dev.leman.LemanClient;
import dev.leman.ReadOptions;
import dev.leman.Rows;
import dev.leman.View;
import dev.leman.ViewDefinition;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.ListJobsRequest;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Makes a view of a table and fills it; then makes a call by its generated stub. */
public final class Views {
  /**
   * Arguments: endpoint, token, database, and a table of it that has columns {@code text} and
   * {@code letters}.
   */
  public static void main(String[] arguments) {
    try (LemanClient client = LemanClient.builder(arguments[0]).token(arguments[1]).connect();
        BufferAllocator memory = new RootAllocator()) {
      ViewDefinition long18 =
          ViewDefinition.of(arguments[3]).sql("shout", "upper(text)").where("letters >= 18");
      View view = client.database(arguments[2]).createView("long", long18);
      view.refresh().await(null, now -> System.out.println(now.getRowsCommitted() + " rows"));
      try (Rows rows = view.read(ReadOptions.all().limit(1), memory)) {
        for (VectorSchemaRoot batch : rows) {
          System.out.print(batch.contentToTSVString());
        }
      }

      var jobs = JobServiceGrpc.newBlockingStub(client.channel());
      var request =
          ListJobsRequest.newBuilder().setDatabase(arguments[2]).setIncludeTotalSize(true).build();
      System.out.println(jobs.listJobs(request).getTotalSize() > 0);
    }
  }
}
