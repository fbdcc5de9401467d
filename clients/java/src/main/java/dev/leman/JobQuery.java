package dev.leman;

import com.google.protobuf.util.Timestamps;
import dev.leman.internal.Arguments;
import dev.leman.v1.Job;
import dev.leman.v1.JobFilter;
import dev.leman.v1.JobOrder;
import java.time.Instant;
import java.util.List;
import java.util.Map;

/** Selects the jobs that match all given criteria. The newest come first by default. */
public final class JobQuery {
  private static final JobQuery ALL =
      new JobQuery(JobFilter.getDefaultInstance(), JobOrder.JOB_ORDER_NEWEST_FIRST);

  private final JobFilter filter;
  private final JobOrder order;

  private JobQuery(JobFilter filter, JobOrder order) {
    this.filter = filter;
    this.order = order;
  }

  /** All jobs of the database. */
  public static JobQuery all() {
    return ALL;
  }

  /** Jobs in one of these states. */
  public JobQuery states(Job.State... states) {
    Arguments.given("states", states);
    return with(filter.toBuilder().clearStates().addAllStates(List.of(states)));
  }

  /** Jobs of one of these tables or views. */
  public JobQuery tables(String... names) {
    Arguments.given("names", names);
    return with(filter.toBuilder().clearTables().addAllTables(List.of(names)));
  }

  /** Backfills of this column. */
  public JobQuery column(String name) {
    Arguments.given("name", name);
    return with(filter.toBuilder().setColumn(name));
  }

  /** Jobs with all of these labels. */
  public JobQuery labels(Map<String, String> labels) {
    Arguments.given("labels", labels);
    return with(filter.toBuilder().clearLabels().putAllLabels(labels));
  }

  /** Jobs accepted at this time or later. */
  public JobQuery createdFrom(Instant time) {
    Arguments.given("time", time);
    return with(filter.toBuilder().setCreateTimeFrom(Timestamps.fromMillis(time.toEpochMilli())));
  }

  /** Jobs accepted before this time. */
  public JobQuery createdBefore(Instant time) {
    Arguments.given("time", time);
    return with(filter.toBuilder().setCreateTimeBefore(Timestamps.fromMillis(time.toEpochMilli())));
  }

  /** Jobs that this caller created. */
  public JobQuery initiator(String name) {
    Arguments.given("name", name);
    return with(filter.toBuilder().setInitiator(name));
  }

  /** List the oldest jobs first. */
  public JobQuery oldestFirst() {
    return new JobQuery(filter, JobOrder.JOB_ORDER_OLDEST_FIRST);
  }

  JobFilter filter() {
    return filter;
  }

  JobOrder order() {
    return order;
  }

  private JobQuery with(JobFilter.Builder changed) {
    return new JobQuery(changed.build(), order);
  }
}
