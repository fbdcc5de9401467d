package dev.leman;

import dev.leman.v1.Job;
import dev.leman.v1.JobEvent;
import java.util.List;

/**
 * A job as it stands, and what happened in it since the update before.
 *
 * @param sequence that of the update: a watch can begin behind it
 * @param job the whole job
 * @param events what happened; each event comes in one update
 * @param eventsMissing whether events may be missing before these: see {@link
 *     dev.leman.v1.WatchJobResponse}
 */
public record JobUpdate(long sequence, Job job, List<JobEvent> events, boolean eventsMissing) {}
