package dev.leman.examples;

import dev.leman.BackfillOptions;
import dev.leman.ColumnFunction;
import dev.leman.FunctionDefinition;
import dev.leman.JobException;
import dev.leman.JobHandle;
import dev.leman.JobQuery;
import dev.leman.JobWatch;
import dev.leman.LemanClient;
import dev.leman.LemanException;
import dev.leman.Table;
import dev.leman.v1.ErrorReason;
import java.time.Duration;
import java.util.Map;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;

/** Computes a column by a function that is installed on the workers, and watches the job. */
public final class Watching {
  /** Arguments: endpoint, token, database, and a table of it that has a column {@code letters}. */
  public static void main(String[] arguments) throws Exception {
    try (LemanClient client =
        LemanClient.builder(arguments[0]).tokens(() -> arguments[1]).connect()) {
      var lake = client.database(arguments[2]);
      lake.registerFunction(
          FunctionDefinition.entrypoint("math:sqrt")
              .name("root")
              .version("1")
              .inputs("x")
              .output(new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE))
              .build());

      Table docs = lake.table(arguments[3]);
      docs.addColumns(Map.of("size", ColumnFunction.sql("CAST(letters AS DOUBLE)")));
      docs.backfill("size").await(Duration.ofMinutes(1));
      docs.addColumns(Map.of("root", ColumnFunction.registered("root@1", "size")));
      JobHandle job =
          docs.backfill("root", BackfillOptions.usual().labels(Map.of("team", "search")));
      try (JobWatch watch = job.watch()) {
        watch.forEachRemaining(
            update -> {
              long rows = update.job().getProgress().getRowsCommitted();
              System.out.println(update.job().getState() + " " + rows);
            });
      }
      System.out.println(
          lake.jobs(JobQuery.all().labels(Map.of("team", "search"))).toList().size() + " job");

      try {
        docs.backfillAsync("nothing", BackfillOptions.usual())
            .thenCompose(JobHandle::awaitAsync)
            .get();
      } catch (Exception failure) {
        LemanException told = LemanException.from(failure);
        boolean jobFailed = told instanceof JobException;
        boolean noColumn = told.is(ErrorReason.COLUMN_NOT_DEFINED);
        System.out.println(told.code() + " " + told.reason() + " " + jobFailed + " " + noColumn);
      }
    }
  }
}
