"""Jobs as runs of OpenLineage: what was made of what. Pure."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.release import version

PRODUCER = f"leman-services/{version()}"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
#: Of ids of jobs, which are no UUIDs, the runs' ids are made.
_RUNS = uuid.UUID("6f9c2f3e-6f0b-4d5e-9f55-3f4e0d6f7d0a")
_ENDS = {
    JobState.DONE: "COMPLETE",
    JobState.DONE_WITH_ERRORS: "COMPLETE",
    JobState.FAILED: "FAIL",
    JobState.CANCELLED: "ABORT",
}


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a job makes of what, as its first plan says."""

    #: Uri of the table that it reads; empty: not known.
    source: str
    #: The version that it reads; 0: the latest of the moment.
    version: int
    #: Uri of the table that it writes.
    target: str
    #: Each column that it writes → the columns of the source that it is made of.
    columns: dict[str, tuple[str, ...]]


def begun(job: Job, lineage: Lineage, namespace: str, now: float) -> dict[str, Any]:
    """Return the event of a job that has begun to run, or goes on at another executor."""
    return _event("START" if job.attempt == 1 else "RUNNING", job, lineage, namespace, now)


def ended(job: Job, lineage: Lineage, namespace: str) -> dict[str, Any]:
    """Return the event of a job that has ended."""
    return _event(_ENDS[job.state], job, lineage, namespace, job.ended_at or job.updated_at)


def _event(kind: str, job: Job, lineage: Lineage, namespace: str, at: float) -> dict[str, Any]:
    of_run: dict[str, Any] = {"leman_job": _facet(None, jobId=job.job_id, attempt=job.attempt, labels=job.labels)}
    if job.error is not None:
        # its message may have values of rows in it
        message = f"{job.error.reason}: JobService.GetJob tells more of {job.job_id}"
        of_run["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", message=message, programmingLanguage="Python")
    backfill = isinstance(job.request, BackfillSpec)
    name = f"{job.request.table}.{job.column or '*'}" if backfill else job.request.table
    type_facet = _facet(
        "2-0-3/JobTypeJobFacet",
        processingType="BATCH",
        integration="LEMAN",
        jobType="BACKFILL" if backfill else "REFRESH",
    )
    source, target = dataset_of(lineage.source), dataset_of(lineage.target)
    return {
        "eventType": kind,
        "eventTime": datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": _SCHEMA,
        "run": {"runId": str(uuid.uuid5(_RUNS, job.job_id)), "facets": of_run},
        "job": {"namespace": namespace, "name": name, "facets": {"jobType": type_facet}},
        "inputs": [{**source, "facets": _version(lineage.version)}] if lineage.source else [],
        "outputs": [
            {
                **target,
                "facets": {"columnLineage": _column_lineage(lineage, source), **_version(job.table_version)},
                "outputFacets": _statistics(job),
            }
        ],
    }


def dataset_of(uri: str) -> dict[str, Any]:
    """Return a table as OpenLineage names what lies in storage: `file` and a path, or a bucket and what is in it."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return {"namespace": "file", "name": parts.path if parts.scheme else uri}
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.lstrip("/")}


def _column_lineage(lineage: Lineage, source: dict[str, Any]) -> dict[str, Any]:
    fields = {
        column: {"inputFields": [{**source, "field": name} for name in inputs]}
        for column, inputs in lineage.columns.items()
    }
    return _facet("1-2-0/ColumnLineageDatasetFacet", fields=fields)


def _version(version: int) -> dict[str, Any]:
    if not version:
        return {}
    return {"version": _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=str(version))}


def _statistics(job: Job) -> dict[str, Any]:
    if not job.state.terminal:
        return {}
    rows = job.progress.rows_committed
    return {"outputStatistics": _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=rows)}


def _facet(schema: str | None, **fields: Any) -> dict[str, Any]:
    """Return a facet; one without a schema of OpenLineage's is Leman's own."""
    where = PRODUCER
    if schema is not None:
        version, _, name = schema.partition("/")
        where = f"{_FACETS}/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": where, **fields}
