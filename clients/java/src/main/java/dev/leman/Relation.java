package dev.leman;

import com.google.protobuf.util.Durations;
import dev.leman.internal.Arguments;
import dev.leman.v1.CollectGarbageRequest;
import dev.leman.v1.CollectGarbageResponse;
import dev.leman.v1.Commit;
import dev.leman.v1.CommitServiceGrpc;
import dev.leman.v1.CreateJobRequest;
import dev.leman.v1.GetCommitRequest;
import dev.leman.v1.GetCommitResponse;
import dev.leman.v1.IndexCoverage;
import dev.leman.v1.JobServiceGrpc;
import dev.leman.v1.OptimizeIndicesRequest;
import dev.leman.v1.OptimizeIndicesResponse;
import dev.leman.v1.TableRef;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * What tables and views have in common: rows that can be read, and jobs. It holds no state: each
 * call returns the current state.
 */
public abstract sealed class Relation permits Table, View {
  final Connections connections;
  final String database;
  final String name;
  private final RequestId requestId;

  Relation(Connections connections, String database, String name, RequestId requestId) {
    this.connections = connections;
    this.database = database;
    this.name = name;
    this.requestId = requestId;
  }

  /** The name. */
  public String name() {
    return name;
  }

  /** Read all rows, see {@link #read(ReadOptions, BufferAllocator)}. */
  public Rows read(BufferAllocator allocator) {
    Arguments.given("allocator", allocator);
    return read(ReadOptions.all(), allocator);
  }

  /**
   * Start to read rows, and wait for their schema. Close the rows at the end; {@code allocator}
   * holds one batch of them.
   */
  public Rows read(ReadOptions options, BufferAllocator allocator) {
    Arguments.given("options", options);
    Arguments.given("allocator", allocator);
    return new Rows(connections, options.told().toBuilder().setTable(ref()).build(), allocator);
  }

  /**
   * Publish the rows to each subscriber, one batch for each requested item. The subscriber owns the
   * batch and closes it. For columns with dictionary encoding use {@link #read}.
   */
  public Flow.Publisher<VectorSchemaRoot> publish(ReadOptions options, BufferAllocator allocator) {
    Arguments.given("options", options);
    Arguments.given("allocator", allocator);
    return new IteratorPublisher<>(connections, () -> new OwnedBatches(read(options, allocator)));
  }

  /** Return the outcome of a commit by its request id; waits if the commit is in progress. */
  public Commit commit(String requestId) {
    return Futures.get(commitAsync(requestId));
  }

  /** Like {@link #commit}. */
  public CompletableFuture<Commit> commitAsync(String requestId) {
    Arguments.given("requestId", requestId);
    GetCommitRequest request =
        GetCommitRequest.newBuilder().setTable(ref()).setRequestId(requestId).build();
    return connections.unary(
        CommitServiceGrpc.getGetCommitMethod(), request, GetCommitResponse::getCommit);
  }

  /**
   * Update the indexes on any of these columns, or all indexes if none are given. It takes as long
   * as Lance needs to index the missing rows.
   *
   * @return which rows the indexes then cover
   */
  public List<IndexCoverage> optimizeIndices(String... columns) {
    return Futures.get(optimizeIndicesAsync(columns));
  }

  /** Like {@link #optimizeIndices}. */
  public CompletableFuture<List<IndexCoverage>> optimizeIndicesAsync(String... columns) {
    Arguments.given("columns", columns);
    OptimizeIndicesRequest request =
        OptimizeIndicesRequest.newBuilder().setTable(ref()).addAllColumns(List.of(columns)).build();
    return connections.unary(
        CommitServiceGrpc.getOptimizeIndicesMethod(),
        request,
        OptimizeIndicesResponse::getIndicesList);
  }

  /**
   * Delete Leman's files next to the data that are no longer needed.
   *
   * @param olderThan the age up to which files are kept, usually a week
   * @param dryRun only report what would be deleted
   */
  public CollectGarbageResponse collectGarbage(Duration olderThan, boolean dryRun) {
    return Futures.get(collectGarbageAsync(olderThan, dryRun));
  }

  /** Like {@link #collectGarbage}. */
  public CompletableFuture<CollectGarbageResponse> collectGarbageAsync(
      Duration olderThan, boolean dryRun) {
    Arguments.given("olderThan", olderThan);
    CollectGarbageRequest request =
        CollectGarbageRequest.newBuilder()
            .setTable(ref())
            .setOlderThan(Durations.fromNanos(olderThan.toNanos()))
            .setDryRun(dryRun)
            .build();
    return connections.unary(
        CommitServiceGrpc.getCollectGarbageMethod(), request, answer -> answer);
  }

  TableRef ref() {
    return TableRef.newBuilder().setDatabase(database).setTable(name).build();
  }

  CompletableFuture<JobHandle> begin(CreateJobRequest.Builder request) {
    return connections.unary(
        JobServiceGrpc.getCreateJobMethod(),
        request.setRequestId(newId()).build(),
        answer -> new JobHandle(connections, database, answer.getJob().getJobId()));
  }

  /** The request id of a change, by which the services recognize its retries. */
  String newId() {
    return requestId.next();
  }

  @Override
  public String toString() {
    return name + " of " + database;
  }
}
