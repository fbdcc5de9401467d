"""What is called: RPCs of a system with a long past, each with the requests that it gets."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.leman_side import Caller
from benchmarks.load.generator import Target
from benchmarks.practical_limit import SCALAR, even, make_table
from leman.v1 import jobs_pb2, planner_pb2

_JOBS = "/leman.v1.JobService"
HEALTH = "/grpc.health.v1.Health/Check"


@dataclass(frozen=True, slots=True)
class Subject:
    """An RPC under load, and how many call it at once in a closed loop."""

    name: str
    target: Target
    callers: int
    service: str = "executor"


def new_table(caller: Caller, rows: int, fragments: int) -> str:
    """Make a table that no earlier run has made."""
    name = f"t{uuid.uuid4().hex[:8]}"
    make_table(caller.uri(name), even(rows, fragments))
    return name


class System:
    """A running system, a job of which is done, and what may be asked of it.

    Args:
        addresses: Of the services for calls, where it is not their own; health is always asked of the service itself.
    """

    def __init__(self, caller: Caller, failed_job: str, addresses: Mapping[str, str] | None = None) -> None:
        self._caller = caller
        self._addresses = addresses or caller.service
        self._failed_job = failed_job
        self._table = new_table(caller, 20_000, 16)
        caller.add_column(self._table, "y", SCALAR)
        self.ended_job = caller.run(self._table, "y").job.job_id

    def subjects(self) -> list[Subject]:
        """Return the RPCs, the cheapest first."""
        database, spec = self._caller.database, self._caller.spec(self._table, "y")
        unknown = [jobs_pb2.GetJobRequest(database=database, job_id=f"job-none-{n}") for n in range(50)]
        pages = [jobs_pb2.ListJobsRequest(database=database, page_size=size) for size in (1, 100)]
        filters = [jobs_pb2.JobFilter(tables=[f"table{n}"]) for n in range(50)]
        tables = [jobs_pb2.ListJobsRequest(database=database, filter=one, page_size=20) for one in filters]
        errors = jobs_pb2.ListJobErrorsRequest(database=database, job_id=self._failed_job, page_size=100)
        create = jobs_pb2.CreateJobRequest(backfill=spec, request_id="r")
        explain = planner_pb2.ExplainPlanRequest(spec=spec)
        return [
            Subject("GetJob", self.get_job(), 32),
            Subject("GetJob, unknown", self._jobs("GetJob", *unknown, answers=("NOT_FOUND",)), 32),
            Subject("ListJobs, page of 1", self._jobs("ListJobs", pages[0]), 32),
            Subject("ListJobs, page of 100", self._jobs("ListJobs", pages[1]), 32),
            Subject("ListJobs of a table", self._jobs("ListJobs", *tables), 32),
            Subject("ListJobErrors", self._jobs("ListJobErrors", errors), 8),
            Subject(
                "ExplainPlan", self._target("planner", "/leman.v1.PlannerService/ExplainPlan", explain), 16, "planner"
            ),
            Subject("CreateJob, nothing to do", self._jobs("CreateJob", create, makes_jobs=True), 16),
        ]

    def get_job(self) -> Target:
        """Return GetJob of the job that is done."""
        return self._jobs("GetJob", jobs_pb2.GetJobRequest(database=self._caller.database, job_id=self.ended_job))

    def processes(self) -> dict[str, int]:
        """Return the services' process ids by name."""
        return self._caller.processes()

    def probes(self, service: str) -> dict[str, Target]:
        """Return what has to be answered quickly whatever else goes on."""
        cancel = jobs_pb2.CancelJobRequest(database=self._caller.database, job_id=self.ended_job)
        return {
            "health": Target(self._caller.service[service], HEALTH, (b"",)),
            "GetJob": self.get_job(),
            "CancelJob": self._jobs("CancelJob", cancel),
        }

    def _jobs(self, method: str, *requests: object, **more: object) -> Target:
        return self._target("executor", f"{_JOBS}/{method}", *requests, **more)

    def _target(self, service: str, method: str, *requests: object, **more: object) -> Target:
        raw = tuple(request.SerializeToString() for request in requests)  # type: ignore[attr-defined]
        return Target(self._addresses[service], method, raw, self._caller.metadata, **more)  # type: ignore[arg-type]
