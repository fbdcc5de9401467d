"""Report jobs as OpenLineage runs: build the events, and send them to a file or an HTTP endpoint.

Events are sent in the background. Jobs never wait for them.
"""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import queue
import threading
import time
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.process.addresses import is_loopback
from leman_core.process.release import release_version
from leman_core.settings import Lineage

PRODUCER = f"leman-services/{release_version()}"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
#: The UUID namespace from which run ids are made. OpenLineage requires UUIDs, which job ids are not.
_RUNS = uuid.UUID("6f9c2f3e-6f0b-4d5e-9f55-3f4e0d6f7d0a")
_ENDS = {
    JobState.DONE: "COMPLETE",
    JobState.DONE_WITH_ERRORS: "COMPLETE",
    JobState.FAILED: "FAIL",
    JobState.CANCELLED: "ABORT",
}


@dataclass(frozen=True, slots=True)
class LineageFacts:
    """The tables and columns that a job reads and writes, according to its first plan."""

    #: Uri of the table that the job reads; empty if unknown.
    source: str
    #: The version that the job reads; 0 for the latest.
    version: int
    #: Uri of the table that the job writes.
    target: str
    #: Each written column → the source columns that it depends on.
    columns: dict[str, tuple[str, ...]]


def run_started_event(job: Job, lineage: LineageFacts, namespace: str, now: float) -> dict[str, Any]:
    """Return the event for a job that has begun to run, or that continues on another executor."""
    return _event("START" if job.attempt == 1 else "RUNNING", job, lineage, namespace, now)


def run_ended_event(job: Job, lineage: LineageFacts, namespace: str) -> dict[str, Any]:
    """Return the event for a job that has ended."""
    return _event(_ENDS[job.state], job, lineage, namespace, job.ended_at or job.updated_at)


def _event(kind: str, job: Job, lineage: LineageFacts, namespace: str, at: float) -> dict[str, Any]:
    of_run: dict[str, Any] = {"leman_job": _facet(None, jobId=job.job_id, attempt=job.attempt, labels=job.labels)}
    if job.error is not None:
        # Do not use the job's message, which may contain values of rows.
        message = f"{job.error.reason}: JobService.GetJob has details of {job.job_id}"
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
    """Return a table's OpenLineage name: namespace `file` and a path, or a bucket and the path in it."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return {"namespace": "file", "name": parts.path if parts.scheme else uri}
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.lstrip("/")}


def _column_lineage(lineage: LineageFacts, source: dict[str, Any]) -> dict[str, Any]:
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
    """Return a facet. If `schema` is None, only Leman defines the facet, not OpenLineage."""
    where = PRODUCER
    if schema is not None:
        version, _, name = schema.partition("/")
        where = f"{_FACETS}/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": where, **fields}


_MOST_WAITING = 1000
_TIMEOUT_SECONDS = 5.0
_TRIES = 3
_PAUSE_SECONDS = 1.0
_TOLD_SECONDS = 600.0
_FAREWELL_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class LineageSender:
    """Send events in order from a thread. An event that cannot be sent is dropped; this is logged at long intervals."""

    def __init__(self, settings: Lineage) -> None:
        self._settings = settings
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._opener = _opener(settings.url)
        self._stopping = threading.Event()
        self._dropped = 0
        self._told: float | None = None
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: dict[str, Any]) -> None:
        """Queue an event. Drop it if a thousand events are queued already."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._drop("a thousand events are queued")

    def stop(self) -> None:
        """Send the queued events, for at most a second."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._events.put_nowait(None)
        self._thread.join(_FAREWELL_SECONDS)

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            self._try(json.dumps(event).encode())

    def _try(self, event: bytes) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._write(event) if self._settings.file else self._post(event)
                return
            except (OSError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
                if not left or self._stopping.wait(_PAUSE_SECONDS):
                    self._drop(str(error))
                    return

    def _write(self, event: bytes) -> None:
        with Path(self._settings.file).open("ab") as file:
            file.write(event + b"\n")

    def _post(self, event: bytes) -> None:
        key = self._settings.api_key.get_secret_value()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self._settings.url, event, headers)
        with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            answer.read()

    def _drop(self, why: str) -> None:
        self._dropped += 1
        now = time.monotonic()
        if self._told is None or now - self._told >= _TOLD_SECONDS:
            self._told = now
            _log.warning("lineage events are dropped", dropped=self._dropped, error=why)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Do not follow redirects, because a redirect could send the API key to another host."""

    def redirect_request(self, *_args: Any) -> None:
        """Return None, so that a redirect is an error."""


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener for a URL. Requests to this machine bypass `http_proxy`."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
