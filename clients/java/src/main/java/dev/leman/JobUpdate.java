package dev.leman;

import dev.leman.v1.Job;
import dev.leman.v1.JobEvent;
import java.util.List;

/**
 * The state of a job at one moment, with the events since the previous update.
 *
 * @param sequence the position of the update; a watch can start after it
 * @param job the whole job
 * @param events the new events; each event is in one update only
 * @param eventsMissing whether events before these may be missing: see {@link
 *     dev.leman.v1.WatchJobResponse}
 */
public record JobUpdate(long sequence, Job job, List<JobEvent> events, boolean eventsMissing) {}
