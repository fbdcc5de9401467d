"""What the steps of a refresh share: its job's board and counts, the stage, and the writing of files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from core.domain.job import Job
from core.domain.plan import StagedFile
from core.domain.view import RefreshPlan, RefreshResult, RefreshSpec, ResolvedFunction
from core.lance_io import view_stage
from core.lance_io.view_stage import Stage
from executor.board import JobBoard
from executor.cancelled import Cancelled
from executor.refresh import layout
from executor.refresh.layout import Ints
from executor.refresh.rows import ViewWriter
from executor.refresh.stages import StageFiller, stage_columns
from executor.refresh.tally import RefreshTally
from executor.services import Services

FileWork = Callable[[ViewWriter], StagedFile]


class RefreshWork:
    """One running refresh as its steps see it. `result`: what it did so far; `cancelling`: it was asked to stop."""

    def __init__(self, job: Job, services: Services) -> None:
        self.board = JobBoard(job)
        self.tally = RefreshTally()
        self.board.tally = self.tally
        self.cancelling = False
        self.services = services
        self.filler = StageFiller(self.board, self.tally, services, _spec(job).concurrency)
        self.result = RefreshResult()
        self._slots = asyncio.Semaphore(services.lanes)

    @property
    def spec(self) -> RefreshSpec:
        """What was asked for; once planned, with the source version that "latest" meant."""
        return _spec(self.board.job)

    def say(self, **changes: Any) -> None:
        """Adds to what the refresh tells of itself."""
        self.result = replace(self.result, **changes)
        self.board.update(refresh_result=self.result)

    def check(self) -> None:
        """Raises Cancelled where the refresh was asked to stop."""
        if self.cancelling:
            raise Cancelled(self.board.job.job_id)

    async def stage(
        self,
        plan: RefreshPlan,
        functions: Sequence[ResolvedFunction],
        version: int,
        of: str,
        rows: dict[int, Ints],
    ) -> Stage | None:
        """The stage for this work: found, or laid. None where no function is to be called."""
        if not functions or not any(len(ids) for ids in rows.values()):
            return None
        spec = self.spec
        uri = f"{spec.database.rstrip('/')}/{layout.stage_table(spec.view, of)}.lance"
        columns = stage_columns(functions, plan.definition.source_uri, version, of)

        def find_or_lay() -> tuple[Stage, bool]:
            found = view_stage.find(uri, of)
            if found is not None and {i for i, ids in rows.items() if len(ids)} <= set(found.targets):
                return found, True
            return view_stage.lay(uri, of, rows, columns), False

        stage, found = await asyncio.to_thread(find_or_lay)
        if found:
            self.board.note("collected", "found the stage of a refresh that was cut short: going on with it")
        return stage

    async def fill(
        self, stage: Stage, functions: Sequence[ResolvedFunction], between: Callable[[], Awaitable[None]]
    ) -> None:
        """Computes the stage's columns. See `StageFiller.fill`."""
        table = stage.uri.rsplit("/", 1)[1].removesuffix(".lance")
        await self.filler.fill(self.spec.database, table, functions, between)

    async def write(
        self,
        plan: RefreshPlan,
        version: int,
        stage: Stage | None,
        functions: Sequence[str],
        works: Sequence[FileWork],
    ) -> list[StagedFile]:
        """Files, written by as many threads as there are lanes."""

        def write(work: FileWork) -> tuple[StagedFile, int, float]:
            begin = time.monotonic()
            writer = ViewWriter(plan, version, None if stage is None else stage.uri, functions)
            return work(writer), writer.rows_read, time.monotonic() - begin

        async def one(work: FileWork) -> StagedFile:
            async with self._slots:
                self.check()
                file, read, seconds = await asyncio.to_thread(write, work)
            self.tally.seconds_writing += seconds
            self.result = replace(self.result, source_rows_read=self.result.source_rows_read + read)
            return file

        return list(await asyncio.gather(*(one(work) for work in works)))


def _spec(job: Job) -> RefreshSpec:
    if job.refresh is None:
        raise RuntimeError(f"job {job.job_id} is no refresh")
    return job.refresh
