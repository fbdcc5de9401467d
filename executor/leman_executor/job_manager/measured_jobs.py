"""What is measured of the jobs of one executor. What it costs does not depend on how many rows a job has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.telemetry import measures
from leman_core.telemetry.instruments import Attributes
from leman_executor.jobs.job_status import JobStatus

_LOOK_SECONDS = 1.0
#: What rows are counted as → the count of the progress that says how many.
_ROWS = {
    "evaluated": "rows_evaluated",
    "computed": "rows_computed",
    "failed": "rows_failed",
    "committed": "rows_committed",
}
_PHASES = ("udf", "read", "checkpoint", "write", "load", "commit")
_KINDS = ("backfill", "refresh")


class Measured(Protocol):
    """A run of a job."""

    @property
    def status(self) -> JobStatus: ...


class MeasuredJobs:
    """The counts of jobs that were told so far: what a job has more by now is added to the measures.

    Counts of a job may fall, as when a worker dies over rows; measures do not. All of them are there from the
    beginning, at 0: whoever asks how much one has grown would not see the first event of one that begins with it.
    """

    def __init__(self) -> None:
        self._told: dict[str, dict[str, float]] = {}
        for kind in _KINDS:
            for name in _counts(Progress()):
                _add(name, 0, kind)
            for state in JobState:
                if state.terminal:
                    measures.JOB_ENDS.add(0, {measures.JOB_KIND: kind, measures.JOB_STATE: state.value})

    def begin(self, job: Job) -> None:
        """Take in a job where somebody asks for measures; what executors did for it before, they have told."""
        if measures.JOB_ROWS.is_bound:
            self._told[job.job_id] = _counts(job.progress if job.attempt > 1 else Progress())

    def look(self, job: Job, progress: Progress) -> None:
        """Tell what a job has more than at the last look."""
        told = self._told.get(job.job_id)
        if told is None:
            return
        kind = kind_of(job)
        for name, count in _counts(progress).items():
            more = count - told[name]
            if more > 0:
                told[name] = count
                _add(name, more, kind)

    def end(self, job: Job) -> None:
        """Tell of a job that has ended here, once."""
        if job.job_id not in self._told:
            return
        self.look(job, job.progress)
        self.forget(job.job_id)
        took = max(0.0, (job.ended_at or job.updated_at) - (job.started_at or job.created_at))
        measures.JOB_DURATION.record(took, _state(job))
        measures.JOB_ENDS.add(1, _state(job))

    def forget(self, job_id: str) -> None:
        """Forget a job that somebody else has."""
        self._told.pop(job_id, None)

    async def follow(self, runs: Mapping[str, Measured], at_work: Collection[str]) -> None:
        """Look at all jobs that are at work once a second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for job_id in list(at_work):
                run = runs.get(job_id)
                if run is not None and not run.status.job.state.terminal:
                    self.look(run.status.job, run.status.metrics.progress())


def show(runs: Mapping[str, Measured], lease_age: Callable[[], float], waiting: Callable[[], int]) -> None:
    """Have the gauges of jobs show these runs, from a thread of their own.

    Args:
        runs: All runs, also of jobs that have ended.
        lease_age: Returns the seconds since the lease of a job was renewed, of that for which it is longest ago.
        waiting: Returns how many jobs wait for their turn.
    """

    def running() -> list[JobStatus]:
        statuses = (run.status for run in list(runs.values()))
        return [status for status in statuses if not (status.job.state.terminal or status.lost)]

    def jobs() -> list[tuple[float, Attributes]]:
        states = [(kind_of(status.job), status.job.state) for status in running()]
        every = [(kind, state) for kind in _KINDS for state in JobState if not state.terminal]
        return [
            (float(states.count(one)), {measures.JOB_KIND: one[0], measures.JOB_STATE: one[1].value}) for one in every
        ]

    measures.JOBS.show(jobs)
    measures.JOB_QUEUE.show(lambda: [(float(waiting()), {})])
    measures.STALLS.show(lambda: [(float(sum(len(status.job.stalls) for status in running())), {})])
    measures.LEASE_AGE.show(lambda: [(lease_age(), {})])
    measures.ERROR_BUDGET.show(lambda: [(max((s.metrics.budget_used for s in running()), default=0.0), {})])


def kind_of(job: Job) -> str:
    """Return what a job does."""
    return "backfill" if isinstance(job.request, BackfillSpec) else "refresh"


def _counts(progress: Progress) -> dict[str, float]:
    """Return what is measured of a job's progress."""
    counts: dict[str, float] = {name: getattr(progress, field) for name, field in _ROWS.items()}
    counts |= {phase: getattr(progress, f"{phase}_seconds") for phase in _PHASES}
    return counts | {"fragments": progress.fragments_committed}


def _add(name: str, more: float, kind: str) -> None:
    if name in _ROWS:
        measures.JOB_ROWS.add(more, {measures.JOB_KIND: kind, measures.ROWS: name})
    elif name in _PHASES:
        measures.WORK_TIME.add(more, {measures.JOB_KIND: kind, measures.PHASE: name})
    else:
        measures.JOB_FRAGMENTS.add(more, {measures.JOB_KIND: kind})


def _state(job: Job) -> Attributes:
    return {measures.JOB_KIND: kind_of(job), measures.JOB_STATE: job.state.value}
