"""The objects that the parts of a job manager share."""

from __future__ import annotations

from dataclasses import dataclass, field

from leman_executor.coordination.env_values import EnvValues
from leman_executor.coordination.leases import JobLeases
from leman_executor.job_manager.job_databases import JobDatabases
from leman_executor.job_manager.job_store import HistoryJobStore
from leman_executor.job_manager.registered_limits import RegisteredLimits
from leman_executor.job_manager.running_jobs import RunningJobs
from leman_executor.jobs.job_environment import JobEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The shared objects of one executor; `store` is also the `JobStore` of its `services`."""

    services: JobEnvironment
    databases: JobDatabases
    running: RunningJobs
    store: HistoryJobStore
    leases: JobLeases
    env_values: EnvValues = field(default_factory=lambda: EnvValues(""))
    limits: RegisteredLimits = field(default_factory=RegisteredLimits)
