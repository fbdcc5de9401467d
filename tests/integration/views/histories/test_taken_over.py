"""A refresh whose executor dies, at each of its steps, and another one goes on: what the job did is counted once over
both. Who takes it over knows what was written into history, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import lance
import pytest

from leman_core.model.job import Job, JobState
from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.model.view import AskedCommit, RefreshResult, RefreshSpec
from leman_core.storage import scratch_table as view_scratch
from leman_core.storage import stored_jobs
from leman_executor.jobs.job_status import JobStatus
from leman_executor.refresh import refresh_run, refresh_steps
from leman_executor.refresh.refresh_journal import JournalKeeper, RefreshMetrics
from tests.integration.views.histories import functions
from tests.integration.views.histories.harness import Commits, Jobs, System
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SHUFFLED = SHAPES[1]
FIRST = [("executor.scratch_written", 1), *(("executor.fill_answered", n) for n in (1, 2))]
LATER = [
    "executor.scratch_written",
    "executor.scratch_filled",
    "executor.view_files_written",
    "executor.delta_answered",
]


class Killed(BaseException):
    """The process is dead: no code of it runs after that."""


class MortalSystem:
    """Its executor dies when it comes to `point` for the `passes`th time, and another one takes the job over."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.point, self.passes = "", 0
        self.history: list[str] = []

    async def save(self, job: Job) -> Job:
        self.history.append(stored_jobs.encode_job(job))
        return job

    def lost_commit(self, _job: Job, _version: int) -> None:
        return None

    def crash_point(self, name: str) -> None:
        self.passes -= name == self.point
        if name == self.point and not self.passes:
            raise Killed(name)

    def refresh(self, database: str, view: str) -> Job:
        self.history.clear()
        if not self.point:
            return self.system.refresh(database, view)
        with pytest.raises(Killed):
            self.system.refresh(database, view)
        status = self.system.status
        known = stored_jobs.decode_job(self.history[-1]) if self.history else status.job
        return self.system.take_over(known)

    def __getattr__(self, name: str) -> object:
        return getattr(self.system, name)


@pytest.fixture
def mortal(views_system, monkeypatch):
    system = MortalSystem(views_system)
    monkeypatch.setattr(views_system, "services", replace(views_system.services, jobs=system))
    for module in (refresh_run, refresh_steps, view_scratch):
        monkeypatch.setattr(module, "crash_point", system.crash_point)
    return system


def result_of(system: MortalSystem, world: World, point: str = "", passes: int = 1) -> RefreshResult:
    functions.EVALUATED.clear()
    system.point, system.passes = point, passes
    job = system.refresh(world.database, SHUFFLED.name)
    assert (job.state, job.attempt) == (JobState.DONE, 2 if point else 1), job.error
    assert job.refresh_result is not None
    assert job.refresh_result.rows_evaluated == len(functions.EVALUATED)
    return job.refresh_result


def counts(result: RefreshResult) -> RefreshResult:
    """What does not depend on how often files were written, nor on takeovers, which are versions of the view too."""
    return replace(result, source_rows_read=0, view_version=0)


@pytest.mark.parametrize(("point", "passes"), FIRST)
def test_in_the_first_fill(mortal, quick_folder, point, passes):
    plain, killed = (World(mortal, quick_folder / name, [SHUFFLED], rows=240) for name in ("plain", "killed"))
    wanted = result_of(mortal, plain)
    assert wanted.rows_added == len(SHUFFLED.ids(killed.source.state))
    assert counts(result_of(mortal, killed, point, passes)) == counts(wanted)


@pytest.mark.parametrize("point", LATER)
def test_in_a_refresh_of_what_changed(mortal, quick_folder, point):
    worlds = [World(mortal, quick_folder / name, [SHUFFLED]) for name in ("plain", "killed")]
    for world in worlds:
        result_of(mortal, world)
        for number, operation in enumerate(("append", "delete", "update_read", "update_filtered", "compact")):
            world.change(operation, number)
    plain, killed = worlds
    wanted = result_of(mortal, plain)
    assert min(wanted.rows_added, wanted.rows_recomputed, wanted.rows_evicted, wanted.rows_reused) > 0
    assert counts(result_of(mortal, killed, point)) == counts(wanted)


def test_a_commit_that_comes_after_the_job_was_taken_over_is_refused(mortal, quick_folder, monkeypatch):
    """The executor was frozen, or the coordinator had its request in a queue."""
    world = World(mortal, quick_folder / "db", [SHUFFLED])
    result_of(mortal, world)
    world.change("append", 1)
    real, late, refusals = Commits.apply_view_delta, [], []

    async def slow(self: Commits, *args: object, **kwargs: object) -> int:
        if not late:
            late.append((args, kwargs))
            raise Killed
        version = lance.dataset(late[0][0][0].uri).version
        with pytest.raises(FailedPrecondition) as caught:
            await real(self, *late[0][0], **late[0][1])
        refusals.append(caught.value.reason)
        assert lance.dataset(late[0][0][0].uri).version == version
        return await real(self, *args, **kwargs)

    monkeypatch.setattr(Commits, "apply_view_delta", slow)
    added = len(SHUFFLED.ids(world.source.state)) - len(SHUFFLED.ids(world.source.versions[1]))
    result = result_of(mortal, world, "nowhere")
    assert (result.rows_added, refusals) == (added, ["ATTEMPT_FENCED"])


def test_a_refresh_that_cannot_be_written_down_goes_on(mortal, quick_folder, monkeypatch):
    world = World(mortal, quick_folder / "db", [SHUFFLED])
    tries = []

    class Full(Jobs):
        async def save(self, job: Job) -> Job:
            if not job.state.terminal:
                tries.append(job)
                raise Unavailable("STORE_UNAVAILABLE", "no space left")
            return job

    monkeypatch.setattr(mortal.system, "services", replace(mortal.system.services, jobs=Full()))
    assert result_of(mortal, world).rows_added == len(SHUFFLED.ids(world.source.state))
    assert tries


def test_what_is_written_down_is_not_overtaken_by_what_comes_after_a_stop():
    """The executor hands its jobs back when it is stopped: that must be the last word."""
    written: list[str] = []

    async def run() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        class Slow(Jobs):
            async def save(self, job: Job) -> Job:
                begun.set()
                await go_on.wait()
                written.append("journal")
                return job

        job = Job("job-1", "", JobState.RUNNING, RefreshSpec("/lake", "v"), 0, 0)
        journal = JournalKeeper(JobStatus(job), RefreshMetrics(), Slow())
        task = asyncio.create_task(
            journal.write_request(
                AskedCommit(uri="/lake/v.lance", request_id="r", read_version=1, gains=RefreshResult())
            )
        )
        await begun.wait()
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        written.append("handed back")

    asyncio.run(run())
    assert written == ["journal", "handed back"]
