package dev.leman.conformance;

import dev.leman.BackfillOptions;
import dev.leman.Database;
import dev.leman.JobHandle;
import dev.leman.JobQuery;
import dev.leman.JobUpdate;
import dev.leman.JobWatch;
import dev.leman.LemanClient;
import dev.leman.ReadOptions;
import dev.leman.RowSource;
import dev.leman.Rows;
import dev.leman.Table;
import dev.leman.v1.Job;
import dev.leman.v1.JobEvent;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Rounds of work, each over another service. */
final class SoakRounds implements AutoCloseable {
  private final BufferAllocator memory = new RootAllocator();
  private final List<LemanClient> clients;
  private final String name;
  private final int rows;
  private int number;

  SoakRounds(List<LemanClient> clients, String name, int rows) {
    this.clients = clients;
    this.name = name;
    this.rows = rows;
  }

  /** Use each connection. */
  void call() {
    clients.forEach(LemanClient::info);
  }

  /** Fails where memory of Arrow was not given back. */
  @Override
  public void close() {
    memory.close();
  }

  /**
   * Append rows, have columns of them computed, by one job that is made in the usual way and by one
   * that is asked for twice, cancel a third job, watch all three, list them, and read all rows.
   */
  Map<String, Object> next() throws Exception {
    LemanClient client = clients.get(number % clients.size());
    Database database = client.database(name);
    Table lines = database.table("lines");
    append(lines);
    Map<String, String> labels = Map.of("round", String.valueOf(number));
    BackfillOptions options = BackfillOptions.usual().labels(labels);
    JobHandle usual = lines.backfill("a", options);
    String twice = asked(lines, options);
    String again = asked(lines, options);
    JobHandle cancelled = database.table("endless").backfill("c", options);
    List<Map<String, Object>> jobs =
        watched(
            Map.of("usual", usual, "twice", database.job(twice), "cancelled", cancelled), again);
    List<String> listed =
        database.jobs(JobQuery.all().labels(labels)).stream().map(Job::getJobId).toList();
    Map<String, Object> seen = Map.of("number", number, "jobs", jobs, "listed", listed);
    Map<String, Object> told = new LinkedHashMap<>(seen);
    told.put("sums", sums(lines));
    number++;
    return told;
  }

  private void append(Table table) {
    try (BigIntVector ids = new BigIntVector("id", memory)) {
      for (int row = 0; row < rows; row++) {
        ids.setSafe(row, (long) number * rows + row);
      }
      ids.setValueCount(rows);
      table.append(RowSource.of(new VectorSchemaRoot(List.<FieldVector>of(ids))));
    }
  }

  /** Ask for a job under a request id, which is the round's. */
  private String asked(Table table, BackfillOptions options) {
    return table.withRequestId("twice-" + number).backfill("b", options).id();
  }

  /** Watch jobs at the same time. */
  private static List<Map<String, Object>> watched(Map<String, JobHandle> jobs, String again)
      throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(jobs.size());
    try {
      List<Future<Map<String, Object>>> begun = new ArrayList<>();
      jobs.forEach((name, job) -> begun.add(threads.submit(() -> toItsEnd(name, job, again))));
      List<Map<String, Object>> ended = new ArrayList<>();
      for (Future<Map<String, Object>> one : begun) {
        ended.add(one.get());
      }
      return ended;
    } finally {
      threads.shutdown();
    }
  }

  /** Watch a job to its end, cancel it once it runs where it is to be, and watch it again. */
  private static Map<String, Object> toItsEnd(String name, JobHandle job, String again) {
    Map<String, Object> seen = new LinkedHashMap<>(Map.of("name", name, "job", job.id()));
    seen.put("first", watch(job, name.equals("cancelled") ? job::cancel : () -> {}));
    seen.put("second", watch(job, () -> {}));
    Job ended = job.get();
    seen.put("state", state(ended));
    seen.put("attempt", ended.getAttempt());
    if (name.equals("twice")) {
      seen.put("again", again);
    }
    return seen;
  }

  private static Map<String, Object> watch(JobHandle job, Runnable whenRunning) {
    List<Long> sequences = new ArrayList<>();
    List<Long> events = new ArrayList<>();
    boolean missing = false;
    boolean ran = false;
    String end = "";
    try (JobWatch watch = job.watch()) {
      while (watch.hasNext()) {
        JobUpdate update = watch.next();
        sequences.add(update.sequence());
        update.events().stream().map(JobEvent::getSequence).forEach(events::add);
        missing |= update.eventsMissing();
        end = state(update.job());
        if (!ran && end.equals("RUNNING")) {
          ran = true;
          whenRunning.run();
        }
      }
    }
    return Map.of("sequences", sequences, "events", events, "missing", missing, "end", end);
  }

  private static String state(Job job) {
    return job.getState().name().substring("STATE_".length());
  }

  /** Read all rows, and add up each column. */
  private Map<String, Long> sums(Table table) {
    Map<String, Long> found = new LinkedHashMap<>(Map.of("rows", 0L));
    try (Rows read = table.read(ReadOptions.all().columns("id", "a", "b"), memory)) {
      for (VectorSchemaRoot batch : read) {
        found.merge("rows", (long) batch.getRowCount(), Long::sum);
        for (FieldVector column : batch.getFieldVectors()) {
          BigIntVector values = (BigIntVector) column;
          for (int row = 0; row < batch.getRowCount(); row++) {
            long value = values.isNull(row) ? 0 : values.get(row);
            found.merge(column.getName(), value, Long::sum);
          }
        }
      }
    }
    return found;
  }
}
