"""What is told of the lineage of jobs: each that begins, or goes on here, and each that ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from leman_core.model.job import Job
from leman_core.storage.locations import table_uri
from leman_executor.lineage.events import Lineage, begun, ended


class JobLineage:
    """Events of the jobs of one executor."""

    def __init__(self, send: Callable[[dict[str, Any]], None], namespace: str) -> None:
        self._send = send
        self._namespace = namespace
        self._begun: set[str] = set()

    def runs(self, job: Job, lineage: Lineage | None) -> None:
        """Tell, once, that a job has begun to run here.

        Args:
            job: The job.
            lineage: None: no plan says what it reads.
        """
        if job.job_id not in self._begun:
            self._begun.add(job.job_id)
            self._send(begun(job, lineage or _unknown(job), self._namespace, time.time()))

    def ends(self, job: Job, lineage: Lineage | None) -> None:
        """Tell that a job has ended; of one that had nothing to do also that it has begun."""
        self.runs(job, lineage)
        self._begun.discard(job.job_id)
        self._send(ended(job, lineage or _unknown(job), self._namespace))


def _unknown(job: Job) -> Lineage:
    return Lineage("", 0, table_uri(job.request.database, job.request.table), {})
