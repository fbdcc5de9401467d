"""Changes a view that was filled: rows are computed in a scratch table, and one commit installs everything."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from leman._format import view_definitions
from leman_core.model import view_metadata
from leman_core.model.plan import StagedFile
from leman_core.model.view import (
    AskedCommit,
    FailedNote,
    RefreshMode,
    RefreshPlan,
    RefreshReason,
    RefreshResult,
    ResolvedFunction,
    ViewCommit,
    ViewDefinition,
)
from leman_core.process.crash_points import crash_point
from leman_core.storage import view_side_files
from leman_core.storage.scratch_table import ScratchTable
from leman_executor.jobs.async_helpers import retry_unavailable, wait_all, within_call_deadline
from leman_executor.refresh import view_writer
from leman_executor.refresh.refresh_work import (
    FileWork,
    RefreshWork,
    failed_row_ids,
    new_failed_note,
    update_failed_note,
    warn_if_lost,
)
from leman_executor.refresh.row_diff import NO_CHANGES, RowOutcome, every_row, with_all_others
from leman_executor.refresh.scratch_backfills import ValueReuse
from leman_executor.refresh.view_writer import Ints, ScratchValues, retry_in_thread

#: Rows in a fragment of a scratch table.
_SCRATCH_FRAGMENT_ROWS = 1 << 20
#: So many new rows are appended at once, before the job is written down.
_FEW_ROWS = 1 << 14
#: Reasons for which earlier values are not wanted any more.
_ANEW = frozenset({RefreshReason.FORCED, RefreshReason.SOURCE_REPLACED})


@dataclass(frozen=True, slots=True)
class _Change:
    """What is installed in the view: rows at the plan's version of the source."""

    outcome: RowOutcome
    functions: Sequence[ResolvedFunction]
    #: Only these functions' columns are installed, for rows that stay; empty: whole rows.
    columns: Sequence[str] = ()

    @property
    def lists(self) -> list[Ints]:
        return [self.outcome.append, self.outcome.recompute_ids]

    @property
    def touches(self) -> bool:
        """Return whether rows of the view come, go or change."""
        return bool(sum(map(len, self.lists)) + len(self.outcome.evict_addresses))

    @property
    def rows(self) -> Ints:
        """Return the source row ids of all rows to compute, in the scratch table's order."""
        return np.concatenate(self.lists)


class IncrementalRefresh:
    """Brings a view to the plan's source version and to its functions' versions."""

    def __init__(self, work: RefreshWork) -> None:
        self._work = work

    async def rows(self, plan: RefreshPlan) -> None:
        """Append, recompute and evict what the source's change asks for.

        Where another function version has to compute a column too, that function reads the source at the new version
        only. So the rows that stay as they are are recomputed with the rest, and the values that the other functions
        gave for them are taken from the view.
        """
        outcome = await self._work.outcome(plan)
        if plan.stale:
            outcome = await retry_in_thread(with_all_others, plan, outcome)
        await self._delta(plan, _Change(outcome, plan.functions))

    async def version(self, plan: RefreshPlan) -> None:
        """Record that the view is right for the plan's source version too.

        Does not wait for a coordinator that cannot be reached.
        """
        change = _Change(NO_CHANGES, ())
        asked = _asked(plan, change, 0)
        plan = await self._work.recording(plan)
        self._work.journal.expect(asked)
        self._note(asked, await self._timed(self._commit_of(plan, change, asked)()))

    async def few_rows(self, plan: RefreshPlan) -> bool:
        """Append and evict what the source's change asks for, where that is little and calls no function.

        The job is not in the job history yet: the commit says that it asked for it. Waits for a coordinator that cannot
        be reached as long as a caller does.

        Returns:
            False, and nothing is written, where there is more to do.
        """
        recording = self._work.recording(plan)
        outcome = await self._work.outcome_soon(plan)
        if outcome is None or len(outcome.recompute_ids) or len(outcome.append) > (0 if plan.functions else _FEW_ROWS):
            return False
        if len(outcome.append) and outcome.values is None:
            return False  # they may be gigabytes: a job can be watched and stopped
        change = _Change(outcome, plan.functions)
        asked = _asked(plan, change, 0)
        self._work.metrics.expect(len(change.rows), 0)
        commit, failed = await self._prepared(plan, change, asked, None, recording)
        said = view_metadata.at_once(self._work.status.job.job_id, _told(asked, plan))
        self._work.journal.expect(asked)
        commit = partial(commit, metadata={**commit.keywords["metadata"], **said})
        with within_call_deadline():
            self._note(asked, await self._timed(retry_unavailable(commit)))
        self._work.failed = failed
        return True

    async def columns(self, plan: RefreshPlan) -> None:
        """Compute the function columns that another version has to compute, for the rows that the view has.

        None of these rows changed in the source.
        """
        functions = tuple(f for f in plan.functions if f.column.name in plan.stale)
        outcome = await retry_in_thread(every_row, plan)
        await self._delta(plan, _Change(outcome, functions, tuple(plan.stale)))

    async def _delta(self, plan: RefreshPlan, change: _Change) -> None:
        recording = self._work.recording(plan)  # while the function is called
        scratch = await self._computed(plan, change)
        self._work.check()
        asked = _asked(plan, change, len(view_writer.group_by_fragment(change.outcome.recompute_addresses)))
        asking = asyncio.ensure_future(self._work.journal.asking(asked))  # the view says what became of it
        commit, failed = await self._prepared(plan, change, asked, scratch, recording, asking)
        self._note(asked, await self._timed(retry_unavailable(commit)))
        self._work.failed = failed

    async def _prepared(
        self,
        plan: RefreshPlan,
        change: _Change,
        asked: AskedCommit,
        scratch: ScratchTable | None,
        recording: asyncio.Future[RefreshPlan],
        *others: asyncio.Future[None],
    ) -> tuple[partial[Coroutine[Any, Any, ViewCommit]], FailedNote]:
        """Write everything that a commit names, beside the `others`.

        Returns:
            The commit, see `_commit_of`, and what the view is then going to say of failed rows.
        """
        writing = asyncio.ensure_future(self._files(plan, change, scratch))
        evicting = asyncio.ensure_future(self._evictions(plan, change))
        noting = asyncio.ensure_future(self._failed(plan, change, scratch))
        await wait_all(writing, evicting, noting, recording, *others)
        recorded, failed = recording.result(), noting.result()
        plan = replace(recorded, definition=replace(recorded.definition, failed=failed))
        crash_point("executor.view_files_written")
        return self._commit_of(plan, change, asked, *writing.result(), evicting.result()), failed

    async def _failed(self, plan: RefreshPlan, change: _Change, scratch: ScratchTable | None) -> FailedNote:
        """Return what the view is going to say of failed rows."""
        names, job = [f.column.name for f in change.functions], self._work.status.job.job_id
        failed = {} if scratch is None else await retry_in_thread(failed_row_ids, scratch, names, change.rows, None)
        if _replaces_all(plan):
            return await retry_in_thread(new_failed_note, plan.uri, failed, job)
        before, outcome = plan.definition.failed, change.outcome
        found = await retry_in_thread(update_failed_note, plan.uri, before, change.rows, outcome.evict_ids, failed, job)
        return warn_if_lost(self._work, plan, before, found)

    async def _evictions(self, plan: RefreshPlan, change: _Change) -> tuple[str, str]:
        """Write down which rows are evicted, and return the name and the digest of that; empty where none are."""
        addresses = change.outcome.evict_addresses
        return (
            await retry_in_thread(view_side_files.write_evictions, plan.uri, addresses) if len(addresses) else ("", "")
        )

    async def _computed(self, plan: RefreshPlan, change: _Change) -> ScratchTable | None:
        """Return the full scratch table, or None where no function is to be called."""
        rows = change.rows
        of = view_writer.work_digest(plan, plan.target_version, change.functions, change.lists)
        self._work.metrics.expect(len(rows), len(change.functions))
        parts = [rows[at : at + _SCRATCH_FRAGMENT_ROWS] for at in range(0, len(rows), _SCRATCH_FRAGMENT_ROWS)]
        scratch = await self._work.scratch(plan, change.functions, plan.target_version, of, parts)
        if scratch is not None:
            await self._work.fill(scratch, change.functions, reuse=ValueReuse(plan, rows))
            await retry_in_thread(scratch.refresh)
            crash_point("executor.scratch_filled")
        return scratch

    async def _files(
        self, plan: RefreshPlan, change: _Change, scratch: ScratchTable | None
    ) -> tuple[list[StagedFile], list[tuple[int, StagedFile]]]:
        """Return the files of new fragments, and the files that replace those of fragments of the view."""
        names = [f.column.name for f in change.functions]
        new = len(change.outcome.append)
        cuts = view_writer.split_new_rows(new, self._work.spec.max_rows_per_fragment, self._work.services.slots)
        everything = ScratchValues(change.rows, 0)
        swaps = view_writer.group_by_fragment(change.outcome.recompute_addresses)
        works = [_appending(everything.part(a, b)) for a, b in cuts]
        works += [_swapping(t, everything, new, change.columns) for t in swaps]
        files = await self._work.write(plan, plan.target_version, scratch, names, works, change.outcome.values)
        swapped = [(t.fragment_id, file) for t, file in zip(swaps, files[len(cuts) :], strict=True)]
        return files[: len(cuts)], swapped

    def _commit_of(
        self,
        plan: RefreshPlan,
        change: _Change,
        asked: AskedCommit,
        appended: Sequence[StagedFile] = (),
        swapped: Sequence[tuple[int, StagedFile]] = (),
        evictions: tuple[str, str] = ("", ""),
    ) -> partial[Coroutine[Any, Any, ViewCommit]]:
        """Return a call that makes one and the same request, however often it is made."""
        return partial(
            self._work.services.commits.apply_view_delta,
            plan,
            appended=appended,
            swapped=swapped,
            evictions=evictions,
            replace_all=_replaces_all(plan),
            metadata=view_definitions.updates(_definition(plan, change)),
            attempt=self._work.status.job.this_attempt,
            request_id=asked.request_id,
        )

    async def _timed(self, commit: Awaitable[ViewCommit]) -> int:
        begin = time.monotonic()
        made, self._work.status.without_indexes = await commit
        crash_point("executor.delta_answered")
        self._work.metrics.commit_seconds += time.monotonic() - begin
        self._work.metrics.commits += 1
        return made

    def _note(self, asked: AskedCommit, made: int) -> None:
        work, gains = self._work, asked.gains
        work.journal.committed(asked, made)
        work.metrics.rows_committed += gains.rows_added + gains.rows_recomputed
        work.status.note(
            "commit",
            f"{gains.rows_added:,} rows added, {gains.rows_recomputed:,} recomputed, {gains.rows_evicted:,} evicted "
            f"in version {made} of the view",
        )


def _asked(plan: RefreshPlan, change: _Change, swaps: int) -> AskedCommit:
    return AskedCommit(
        uri=plan.uri, request_id=uuid.uuid4().hex, read_version=plan.version, gains=_gains(plan, change, swaps)
    )


def _told(asked: AskedCommit, plan: RefreshPlan) -> AskedCommit:
    """Return what was asked for with all that a refresh says of itself."""
    before = plan.definition.base_version
    return replace(asked, gains=replace(asked.gains, mode=plan.mode, reason=plan.reason, source_version_before=before))


def _gains(plan: RefreshPlan, change: _Change, swaps: int) -> RefreshResult:
    outcome = change.outcome
    changed, gone = len(outcome.recompute_ids), len(outcome.evict_addresses)
    full = _replaces_all(plan)
    return RefreshResult(
        rows_added=len(outcome.append),
        rows_recomputed=changed,
        rows_evicted=plan.rows if full else gone,
        rows_reused=0 if full else max(0, plan.rows - changed - gone),
        source_rows_read=outcome.source_rows_read,
        fragments_rewritten=swaps,
        source_version=plan.target_version,
    )


def _replaces_all(plan: RefreshPlan) -> bool:
    """Return whether the view is rebuilt beside the old one."""
    return plan.mode is RefreshMode.FULL


def _definition(plan: RefreshPlan, change: _Change) -> ViewDefinition:
    """Return the definition that the commit writes into the view."""
    filled = {**plan.definition.filled, **{f.column.name: f"{f.udf.name}@{f.udf.version}" for f in change.functions}}
    definition = replace(
        plan.definition, filled=filled, base_version=plan.target_version, base_incarnation=plan.target_incarnation
    )
    if plan.reason in _ANEW:
        return replace(definition, earlier=())
    return view_definitions.remembering(definition, plan.state if change.touches else None)


def _appending(rows: ScratchValues) -> FileWork:
    return lambda writer: writer.append(rows)


def _swapping(
    part: view_writer.FragmentRowsToCompute, rows: ScratchValues, first: int, columns: Sequence[str]
) -> FileWork:
    mine = rows.part(first + part.first, first + part.first + len(part.offsets))
    if columns:
        return lambda writer: writer.swap_columns(part.fragment_id, part.offsets, mine, columns)
    return lambda writer: writer.swap(part.fragment_id, part.offsets, mine)
