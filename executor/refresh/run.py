"""One running refresh: plan, fill what was never filled, compare rows, compute them in a stage, splice."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from core import view_metadata
from core.crash import crash_point
from core.domain.job import Job, JobError, JobState
from core.domain.plan import StagedFile
from core.domain.view import (
    RefreshMode,
    RefreshPlan,
    RefreshResult,
    RefreshSpec,
    ResolvedFunction,
)
from core.errors import Aborted, Internal, LemanError, NotFound, Unavailable
from core.lance_io import view_files, view_stage
from core.lance_io.open_jobs import open_jobs
from core.lance_io.view_changes import RowOutcome, every_row, row_outcome
from core.lance_io.view_stage import Stage
from executor.board import JobBoard
from executor.cancelled import Cancelled
from executor.refresh import layout
from executor.refresh.layout import Ints
from executor.refresh.rows import Staged, ViewWriter
from executor.refresh.stages import StageFiller, stage_columns
from executor.refresh.tally import RefreshTally
from executor.refresh.tries import in_thread, patiently
from executor.run import job_error
from executor.services import Services, lanes_of

_ROUNDS_WITHOUT_END = 6
_STAGE_ROWS = 1 << 20


class RefreshRun:
    """A refresh while it runs; for the job manager the same as a `JobRun`."""

    def __init__(self, job: Job, services: Services) -> None:
        self.board = JobBoard(job)
        self._tally = RefreshTally()
        self.board.tally = self._tally
        self.cancelling = False
        self._services = services
        self._slots = asyncio.Semaphore(services.lanes)
        self._filler = StageFiller(self.board, self._tally, services, _spec(job).concurrency)
        self._result = RefreshResult()
        self._planned = False
        self._stage_in_use: Stage | None = None

    def know_cost(self, seconds_per_row: float | None) -> None:
        """A refresh has several functions: each backfill of its stage measures its own."""

    async def plan(self) -> RefreshPlan:
        """Asks the planner, again while it cannot be reached."""
        begin = time.monotonic()
        plan = await self._ask_planner()
        self._tally.planning_seconds += time.monotonic() - begin
        # "latest" is decided once: who takes the job over goes on with the same stage
        spec = _spec(self.board.job)
        latest = spec.latest or not spec.src_version
        self.board.update(refresh=replace(spec, src_version=plan.target_version, latest=latest))
        if not self._planned:
            self._planned = True
            self._result = self.board.job.refresh_result or RefreshResult(
                mode=plan.mode, reason=plan.reason, source_version_before=plan.definition.base_version
            )
            self._tally.rows_total = plan.rows
            self.board.update(plan_summary=plan.message, refresh_result=self._result)
            self.board.note("plan", plan.message)
        elif plan.mode is RefreshMode.FULL:
            self._say(mode=plan.mode, reason=plan.reason)
        return plan

    async def _ask_planner(self) -> RefreshPlan:
        try:
            return await patiently(self._services.planner.plan_refresh, _spec(self.board.job))
        except NotFound as error:
            if error.reason != "VERSION_NOT_FOUND" or not _spec(self.board.job).latest:
                raise
        # cleaned away since: there is a later one
        return await patiently(self._services.planner.plan_refresh, replace(_spec(self.board.job), src_version=0))

    def nothing_to_do(self, plan: RefreshPlan) -> bool:
        """Whether the plan leaves the view as it is."""
        return plan.mode is RefreshMode.NO_OP

    def check_resources(self, plan: RefreshPlan) -> None:
        """Raises FailedPrecondition (RESOURCES_NOT_AVAILABLE) where a function asks for what no worker has."""
        for function in plan.functions:
            lanes_of(function.udf, _spec(self.board.job).concurrency, self._services)

    async def finish_at_once(self, plan: RefreshPlan) -> None:
        """The plan left nothing to do."""
        self._say(rows_reused=plan.rows, source_version=plan.target_version, view_version=plan.version)
        await self._end(JobState.DONE)

    async def replan_and_run(self) -> None:
        """A job that was taken over: from the plan on."""
        try:
            plan = await self.plan()
        except LemanError as error:
            await self._end(JobState.FAILED, job_error(error))
            return
        if self.nothing_to_do(plan):  # it was done, but for saying so
            await self._drop_leftovers(plan)
            await self.finish_at_once(plan)
            return
        await self.board.move(JobState.RUNNING)
        await self.run(plan)

    async def run(self, plan: RefreshPlan) -> None:
        """Works until the view is right, and leaves the job in a terminal state. Raises only for bugs."""
        ticking = asyncio.create_task(self.board.tick())
        try:
            await self._rounds(plan)
            await self._drop_leftovers(plan)
            await self._end(JobState.DONE_WITH_ERRORS if self._tally.all_failed else JobState.DONE)
        except Cancelled:
            await self._end(JobState.CANCELLED)
        except LemanError as error:
            if self.cancelling:
                await self._end(JobState.CANCELLED)
            else:
                await self._end(JobState.FAILED, job_error(error))
        finally:
            ticking.cancel()
            self._services.spark.forget(self.board.job.job_id)
            self._services.local.forget(self.board.job.job_id)

    def cancel(self) -> None:
        """Ends what runs; `run` then ends the job as CANCELLED. Blocks for a moment."""
        self.cancelling = True
        self._filler.cancel()

    async def _drop_leftovers(self, plan: RefreshPlan) -> None:
        """Removes what refreshes left that died or were given up, unless another one is at it."""
        spec = _spec(self.board.job)
        try:
            await asyncio.to_thread(_drop_leftovers, spec.database, spec.view, plan.uri, self.board.job.job_id)
        except Unavailable as error:
            self.board.note("leftovers", f"stages of other refreshes stay for now: {error.message}")

    async def _end(self, state: JobState, error: JobError | None = None) -> None:
        self._say(rows_evaluated=self._tally.all_evaluated)
        await self.board.end(state, error, self._services.save_job)

    def _say(self, **changes: Any) -> None:
        self._result = replace(self._result, **changes)
        self.board.update(refresh_result=self._result)

    def _check(self) -> None:
        if self.cancelling:
            raise Cancelled(self.board.job.job_id)

    # rounds

    async def _rounds(self, plan: RefreshPlan) -> None:
        why = ""
        for _ in range(_ROUNDS_WITHOUT_END):
            self._check()
            try:
                if await self._round(plan):
                    return
            except (Aborted, NotFound) as error:
                # the view or the source moved on, or another refresh was faster: look again
                why = f": {error.message}"
                self.board.note("replan", f"planning again{why}")
            except Cancelled:
                raise
            except Exception as error:
                if not await self._stage_is_lost():
                    raise
                # another refresh was faster and dropped the stage that both used: whatever failed, failed by that
                why = f": the stage is gone: {error}"
                self.board.note("replan", f"planning again{why}")
            plan = await self.plan()
            if self.nothing_to_do(plan):
                self._say(source_version=plan.target_version, view_version=plan.version)
                await self._drop_stage()
                return
        raise Aborted(
            "VIEW_CHANGED",
            f"The view or its source keeps changing under the refresh{why}. What was computed is kept: run it again.",
        )

    async def _stage_is_lost(self) -> bool:
        return self._stage_in_use is not None and not await asyncio.to_thread(self._stage_in_use.is_there)

    async def _drop_stage(self) -> None:
        if self._stage_in_use is not None:
            await asyncio.to_thread(view_stage.drop, self._stage_in_use.uri)
        self._stage_in_use = None

    async def _round(self, plan: RefreshPlan) -> bool:
        """One step towards the target; True when it is reached."""
        if plan.lay_again:
            await self._lay_again(plan)
            return False
        if plan.unset:
            await self._fill(plan)
            return False
        if plan.stale and plan.mode is not RefreshMode.FULL:
            await self._recompute_columns(plan)
            return False
        outcome = await in_thread(row_outcome, plan)
        await self._splice(plan, outcome)
        return True

    async def _lay_again(self, plan: RefreshPlan) -> None:
        definition = replace(
            plan.definition, base_version=plan.target_version, base_incarnation=plan.target_incarnation
        )
        most = _spec(self.board.job).max_rows_per_fragment
        version = await patiently(
            self._services.commits.lay_placeholders,
            plan,
            view_metadata.write(plan.schema, definition),
            most,
            request_id=uuid.uuid4().hex,
        )
        crash_point("executor.placeholders_laid")
        self.board.note("commit", f"placeholders were laid for version {plan.target_version} of the source: {version}")

    # the first fill: in parts

    async def _fill(self, plan: RefreshPlan) -> None:
        version = plan.definition.base_version
        of = layout.digest(plan, version, plan.functions, [])
        rows: dict[int, Ints] = {}
        for fragment in plan.unset:
            rows[fragment.fragment_id] = await in_thread(
                view_files.source_row_ids, plan.uri, plan.version, fragment.fragment_id
            )
        self._tally.expect(sum(map(len, rows.values())), len(plan.functions))
        stage = await self._stage(plan, plan.functions, version, of, rows)
        places = _places(rows, stage)
        missing = dict.fromkeys(rows)

        async def install() -> None:
            done = await self._complete(stage, plan.functions, missing)
            await self._install(plan, version, stage, [(i, Staged(rows[i], places[i])) for i in done])
            for fragment_id in done:
                del missing[fragment_id]

        if stage is not None:
            database = _spec(self.board.job).database
            await self._filler.fill(database, _table(stage.uri), plan.functions, install)
        await install()
        if missing:
            raise Internal("STAGE_INCOMPLETE", f"{len(missing)} fragments of the stage were not computed")
        await self._drop_stage()

    async def _complete(
        self, stage: Stage | None, functions: Sequence[ResolvedFunction], missing: dict[int, None]
    ) -> list[int]:
        if stage is None:
            return list(missing)
        done = await in_thread(stage.complete, [f.column.name for f in functions])
        return [stage.targets[at] for at in done if stage.targets[at] in missing]

    async def _install(
        self, plan: RefreshPlan, version: int, stage: Stage | None, parts: Sequence[tuple[int, Staged]]
    ) -> None:
        """Writes the files of complete fragments and has them committed, a few at a time."""
        names = [f.column.name for f in plan.functions]
        for at in range(0, len(parts), 4 * self._services.lanes):
            self._check()
            some = parts[at : at + 4 * self._services.lanes]
            files = await self._write(
                plan, version, stage, names, [_filling(fragment_id, rows) for fragment_id, rows in some]
            )
            begin = time.monotonic()
            made, verdicts = await patiently(
                self._services.commits.fill_placeholders,
                plan,
                [(i, file) for (i, _), file in zip(some, files, strict=True)],
                job_id=self.board.job.job_id,
                request_id=uuid.uuid4().hex,
            )
            crash_point("executor.fill_answered")
            self._tally.commit_seconds += time.monotonic() - begin
            refused = [v for v in verdicts if not v.committed]
            if refused:
                raise Aborted(refused[0].reason, refused[0].message)
            rows = sum(len(staged.ids) for _, staged in some)
            self._tally.rows_committed += rows
            self._tally.commits += 1
            self._say(
                rows_added=self._result.rows_added + rows,
                source_version=version,
                view_version=made,
            )
            self.board.update(table_version=made)
            self.board.note("commit", f"{rows:,} rows of {len(some):,} fragments are in version {made}")

    # everything else: one commit

    async def _recompute_columns(self, plan: RefreshPlan) -> None:
        """Function columns that another version has to compute, for the rows that the view has."""
        functions = [f for f in plan.functions if f.column.name in plan.stale]
        outcome = await in_thread(every_row, plan)
        version = plan.definition.base_version
        await self._splice(plan, outcome, version=version, functions=functions, columns=plan.stale)

    async def _splice(
        self,
        plan: RefreshPlan,
        outcome: RowOutcome,
        *,
        version: int = 0,
        functions: Sequence[ResolvedFunction] | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        version = version or plan.target_version
        functions = plan.functions if functions is None else functions
        names = [f.column.name for f in functions]
        lists = [outcome.append, outcome.recompute_ids]
        rows = np.concatenate(lists)
        of = layout.digest(plan, version, functions, lists)
        self._tally.expect(len(rows), len(functions))
        parts = {at: rows[at : at + _STAGE_ROWS] for at in range(0, len(rows), _STAGE_ROWS)}
        stage = await self._stage(plan, functions, version, of, parts)
        if stage is not None:
            await self._filler.fill(_spec(self.board.job).database, _table(stage.uri), functions, _nothing)
            await in_thread(stage.refresh)
            crash_point("executor.stage_filled")
        self._check()
        cuts = layout.split(len(outcome.append), _spec(self.board.job).max_rows_per_fragment, self._services.lanes)
        everything = Staged(rows, 0)
        swaps = layout.touched(outcome.recompute_addresses)
        works = [_appending(everything.part(a, b)) for a, b in cuts]
        works += [_swapping(t, everything, len(outcome.append), columns) for t in swaps]
        files = await self._write(plan, version, stage, names, works)
        swapped = [(t.fragment_id, file) for t, file in zip(swaps, files[len(cuts) :], strict=True)]
        crash_point("executor.view_files_written")
        made = await self._commit_splice(plan, outcome, version, functions, (files[: len(cuts)], swapped))
        self._note_splice(plan, outcome, version, made, len(swaps), columns)
        await self._drop_stage()

    async def _commit_splice(
        self,
        plan: RefreshPlan,
        outcome: RowOutcome,
        version: int,
        functions: Sequence[ResolvedFunction],
        files: tuple[Sequence[StagedFile], Sequence[tuple[int, StagedFile]]],
    ) -> int:
        """`files`: those of new fragments, and those that are swapped in with their fragments."""
        evictions = ("", "")
        if len(outcome.evict_addresses):
            evictions = await in_thread(view_files.write_evictions, plan.uri, outcome.evict_addresses)
        filled = {**plan.definition.filled, **{f.column.name: f"{f.udf.name}@{f.udf.version}" for f in functions}}
        definition = replace(plan.definition, filled=filled)
        if version == plan.target_version:  # else the source's identity there is what is recorded
            definition = replace(definition, base_version=version, base_incarnation=plan.target_incarnation)
        begin = time.monotonic()
        made = await patiently(
            self._services.commits.splice_view,
            plan,
            appended=files[0],
            swapped=files[1],
            evictions=evictions,
            replace_all=plan.mode is RefreshMode.FULL and version == plan.target_version,
            metadata=view_metadata.updates(definition),
            job_id=self.board.job.job_id,
            request_id=uuid.uuid4().hex,
        )
        crash_point("executor.splice_answered")
        self._tally.commit_seconds += time.monotonic() - begin
        self._tally.commits += 1
        return made

    def _note_splice(
        self, plan: RefreshPlan, outcome: RowOutcome, version: int, made: int, swaps: int, columns: Sequence[str]
    ) -> None:
        result = self._result
        added, changed, gone = len(outcome.append), len(outcome.recompute_ids), len(outcome.evict_addresses)
        full = plan.mode is RefreshMode.FULL and not columns
        self._tally.rows_committed += added + changed
        self._say(
            rows_added=result.rows_added + added,
            rows_recomputed=result.rows_recomputed + changed,
            rows_evicted=result.rows_evicted + (plan.rows if full else gone),
            rows_reused=0 if full else max(0, plan.rows - changed - gone),
            source_rows_read=result.source_rows_read + outcome.source_rows_read,
            fragments_rewritten=result.fragments_rewritten + swaps,
            source_version=version,
            view_version=made,
        )
        self.board.update(table_version=made)
        self.board.note(
            "commit", f"{added:,} rows added, {changed:,} recomputed, {gone:,} evicted in version {made} of the view"
        )

    # shared

    async def _stage(
        self,
        plan: RefreshPlan,
        functions: Sequence[ResolvedFunction],
        version: int,
        of: str,
        rows: dict[int, Ints],
    ) -> Stage | None:
        """The stage for this work: found, or laid. None where no function is to be called."""
        self._stage_in_use = None
        if not functions or not any(len(ids) for ids in rows.values()):
            return None
        spec = _spec(self.board.job)
        uri = f"{spec.database.rstrip('/')}/{layout.stage_table(spec.view, of)}.lance"
        columns = stage_columns(functions, plan.definition.source_uri, version, of)

        def find_or_lay() -> tuple[Stage, bool]:
            found = view_stage.find(uri, of)
            if found is not None and {i for i, ids in rows.items() if len(ids)} <= set(found.targets):
                return found, True
            if view_files.latest_version(plan.uri) != plan.version:
                raise Aborted("VIEW_CHANGED", "another refresh was faster")
            return view_stage.lay(uri, of, rows, columns), False

        stage, found = await in_thread(find_or_lay)
        self._stage_in_use = stage
        if found:
            self.board.note("collected", "found the stage of a refresh that was cut short: going on with it")
        return stage

    async def _write(
        self,
        plan: RefreshPlan,
        version: int,
        stage: Stage | None,
        functions: Sequence[str],
        works: Sequence[Callable[[ViewWriter], StagedFile]],
    ) -> list[StagedFile]:
        """Files, written by as many threads as there are lanes."""

        def write(work: Callable[[ViewWriter], StagedFile]) -> tuple[StagedFile, int, float]:
            begin = time.monotonic()
            writer = ViewWriter(plan, version, stage, functions)
            return work(writer), writer.rows_read, time.monotonic() - begin

        async def one(work: Callable[[ViewWriter], StagedFile]) -> StagedFile:
            async with self._slots:
                self._check()
                file, read, seconds = await in_thread(write, work)
            self._tally.seconds_writing += seconds
            self._result = replace(self._result, source_rows_read=self._result.source_rows_read + read)
            return file

        return list(await asyncio.gather(*(one(work) for work in works)))


async def _nothing() -> None:
    """Nothing is installed before all is computed."""


def _drop_leftovers(database: str, view: str, uri: str, job_id: str) -> None:
    leftovers = view_stage.stages(database, layout.stage_pattern(view))
    if leftovers and all(job.job_id == job_id for job in open_jobs(uri)):
        for leftover in leftovers:
            view_stage.drop(leftover)


def _spec(job: Job) -> RefreshSpec:
    if job.refresh is None:
        raise RuntimeError(f"job {job.job_id} is no refresh")
    return job.refresh


def _table(uri: str) -> str:
    return uri.rsplit("/", 1)[1].removesuffix(".lance")


def _places(rows: dict[int, Ints], stage: Stage | None) -> dict[int, int]:
    """Position of each fragment's first row in the stage, which may hold fragments that are filled by now."""
    if stage is None:
        return dict.fromkeys(rows, 0)
    places, at = {}, 0
    for target, count in zip(stage.targets, stage.rows, strict=True):
        places[target] = at
        at += count
    return places


def _appending(rows: Staged) -> Callable[[ViewWriter], StagedFile]:
    return lambda writer: writer.append(rows)


def _filling(fragment_id: int, rows: Staged) -> Callable[[ViewWriter], StagedFile]:
    return lambda writer: writer.fill(fragment_id, rows)


def _swapping(
    part: layout.Touched, rows: Staged, first: int, columns: Sequence[str]
) -> Callable[[ViewWriter], StagedFile]:
    mine = rows.part(first + part.first, first + part.first + len(part.offsets))
    if columns:
        return lambda writer: writer.swap_columns(part.fragment_id, part.offsets, mine, columns)
    return lambda writer: writer.swap(part.fragment_id, part.offsets, mine)
