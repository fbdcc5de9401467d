"""The objects that the parts of a job manager share."""

from __future__ import annotations

from dataclasses import dataclass

from executor.coordination.leases import JobLeases
from executor.job_manager.databases import JobDatabases
from executor.job_manager.job_store import HistoryJobStore
from executor.job_manager.running_jobs import RunningJobs
from executor.jobs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The shared objects of one executor; `store` is also the `JobStore` of its `services`."""

    services: Services
    databases: JobDatabases
    running: RunningJobs
    store: HistoryJobStore
    leases: JobLeases
