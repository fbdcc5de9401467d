"""Take the two steps that change rows of a view. `FirstFill` fills placeholders, which are rows without values yet.
`apply_delta` makes all later changes.

Both compute values in a scratch table and write files in the view's folder; the coordinator commits these. A first fill
commits each fragment as soon as it is computed. A delta, however large, is one commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leman._format import view_definitions
from leman._format.view_definitions import FailedNote, ViewDefinition
from leman_core.model import view_metadata
from leman_core.model.plan import StagedFile
from leman_core.model.row_ids import NO_IDS, Ids, intersection
from leman_core.model.service_errors import Aborted, Internal
from leman_core.model.view import AskedCommit, RefreshMode, RefreshPlan, RefreshReason, RefreshResult
from leman_core.process.crash_points import crash_point
from leman_core.storage import view_data_files as view_files
from leman_core.storage import view_side_files
from leman_core.storage.locations import database_and_table
from leman_core.storage.scratch_table import ScratchTable
from leman_core.storage.view_side_files import NONE_FAILED
from leman_executor.jobs.async_helpers import retry_unavailable, run_storage_work, wait_all, within_call_deadline
from leman_executor.refresh.earlier_values import ValueReuse
from leman_executor.refresh.refresh_work import FileWork, RefreshWork
from leman_executor.refresh.row_diff import RowOutcome
from leman_executor.refresh.view_writer import (
    FragmentRowsToCompute,
    RowIndex,
    ScratchValues,
    group_by_fragment,
    split_new_rows,
    work_digest,
)

#: By column, the source row ids of failed rows.
_FailedRowIds = Mapping[str, Ids]
#: How often a commit is tried if another refresh of the view commits first.
_TRIES = 20
#: Number of rows in a fragment of a scratch table.
_SCRATCH_FRAGMENT_ROWS = 1 << 20
#: Before the job is in the history: the maximum number of new rows to append, and the seconds to wait for their
#: comparison.
_FEW_ROWS = 1 << 14
_SOON_SECONDS = 0.1
#: Reasons after which the view no longer lists its earlier versions, because their values are not trusted.
_FORGETTING = frozenset({RefreshReason.FORCED, RefreshReason.SOURCE_REPLACED})


@dataclass(frozen=True, slots=True)
class _Missing:
    """A fragment of the view that still has placeholders instead of values."""

    #: Number of rows without values.
    unset: int
    #: Where the scratch table has the fragment's rows.
    parts: Sequence[ScratchValues]
    #: The fragments of the scratch table that have these rows.
    needs: frozenset[int] = frozenset()


class FirstFill:
    """Fill the placeholders of a view with values, for the source version for which the placeholders were created."""

    def __init__(self, work: RefreshWork, plan: RefreshPlan) -> None:
        self._work = work
        self._plan = plan
        self._version = plan.definition.base_version
        self._names = [function.column.name for function in plan.functions]
        self._scratch: ScratchTable | None = None
        #: The fragments without values, by id.
        self._missing: dict[int, _Missing] = {}

    async def run(self) -> None:
        """Fill all placeholders.

        Raises:
            Aborted: The view changed meanwhile.
            Cancelled: The refresh was asked to stop.
            Internal: SCRATCH_TABLE_INCOMPLETE – fragments of the scratch table were not computed.
            LemanError: The error that ended a backfill of the scratch table.
        """
        work, plan = self._work, self._plan
        rows: dict[int, tuple[Ids, int]] = {}
        for fragment in plan.unset:
            rows[fragment.fragment_id] = await run_storage_work(
                view_files.source_row_ids, plan.uri, plan.version, fragment.fragment_id
            )
        work.metrics.expect(sum(unset for _, unset in rows.values()), len(plan.functions))
        digest = work_digest(plan, self._version, plan.functions, [])
        ids = [ids for ids, _ in rows.values()]
        self._scratch = await work.scratch.open(plan, plan.functions, self._version, digest, ids)
        self._missing = await run_storage_work(_missing, rows, self._scratch)
        if self._scratch is not None:
            await work.fill(self._scratch, plan.functions, self._install)
        await self._install()
        if self._missing:
            raise Internal(
                "SCRATCH_TABLE_INCOMPLETE", f"{len(self._missing)} fragments of the scratch table were not computed"
            )
        await work.scratch.drop()

    async def _install(self) -> None:
        """Write the files of computed fragments and commit them, a few at a time."""
        computed, most = await self._computed(), 4 * self._work.services.slots
        for at in range(0, len(computed), most):
            self._work.check()
            some = {fragment_id: self._missing[fragment_id] for fragment_id in computed[at : at + most]}
            works = [_filling(fragment_id, fragment.parts) for fragment_id, fragment in some.items()]
            files = await self._work.write(self._plan, self._version, self._scratch, self._names, works)
            if self._scratch is not None:
                await self._note_failures(self._scratch, some.values())
            await self._commit(some, files)
            for fragment_id in some:
                del self._missing[fragment_id]

    async def _computed(self) -> list[int]:
        """Return the fragments of the view for which the scratch table has all values."""
        if self._scratch is None:
            return list(self._missing)
        done = set(await run_storage_work(self._scratch.complete, self._names))
        return [i for i, fragment in self._missing.items() if fragment.needs <= done]

    async def _commit(self, filled: Mapping[int, _Missing], files: Sequence[StagedFile]) -> None:
        work, plan = self._work, self._plan
        asked = AskedCommit(
            uri=plan.uri,
            request_id=uuid.uuid4().hex,
            read_version=plan.version,
            gains=RefreshResult(source_version=self._version),
            filled={fragment_id: fragment.unset for fragment_id, fragment in filled.items()},
        )
        await work.journal.write_request(asked)
        begin = time.monotonic()
        made, outcomes = await retry_unavailable(
            work.services.commits.fill_placeholders,
            plan,
            list(zip(filled, files, strict=True)),
            attempt=work.status.job.this_attempt,
            request_id=asked.request_id,
        )
        crash_point("executor.fill_answered")
        work.metrics.commit_seconds += time.monotonic() - begin
        installed = [o.fragment_id for o in outcomes if o.committed]
        if installed:
            rows = sum(filled[fragment_id].unset for fragment_id in installed)
            work.journal.committed(asked, made, installed)
            work.metrics.rows_committed += rows
            work.metrics.commits += 1
            work.status.note("commit", f"{rows:,} rows are in version {made}, fragments: {len(installed):,}")
        refused = [o for o in outcomes if not o.committed]
        if refused:
            raise Aborted(refused[0].reason, refused[0].message)

    async def _note_failures(self, scratch: ScratchTable, fragments: Collection[_Missing]) -> None:
        """Commit the list of failed rows, before the fragments that contain these rows.

        Until those fragments are committed, the list also has rows that have no values yet. This is harmless.

        Raises:
            Aborted: VIEW_CHANGED – in each try, another refresh of the view committed first.
        """
        rows = np.concatenate([part.ids for fragment in fragments for part in fragment.parts])
        needs = frozenset().union(*(fragment.needs for fragment in fragments))
        found = await run_storage_work(_failed_row_ids, scratch, self._names, None, needs)
        failed = {column: intersection(ids, rows) for column, ids in found.items()}
        if not self._plan.definition.failed.file and not any(map(len, failed.values())):
            return
        for _ in range(_TRIES):
            if await self._commit_failures(rows, failed):
                return
        raise Aborted("VIEW_CHANGED", "other refreshes of the view committed first each time")

    async def _commit_failures(self, rows: Ids, failed: _FailedRowIds) -> bool:
        """Try once to commit the list. Return False if the view has changed meanwhile."""
        work, plan = self._work, self._plan
        version, definition = await run_storage_work(view_files.latest_definition, plan.uri)
        note = await _updated_note(work, plan, definition.failed, rows, NO_IDS, failed)
        if note != definition.failed:
            definition = replace(definition, failed=note)
            try:
                await retry_unavailable(
                    work.services.commits.apply_view_delta,
                    replace(plan, version=version, definition=definition),
                    appended=(),
                    swapped=(),
                    evictions=("", ""),
                    replace_all=False,
                    metadata=view_definitions.updates(definition),
                    attempt=work.status.job.this_attempt,
                    request_id=uuid.uuid4().hex,
                )
            except Aborted as error:
                if error.reason != "VIEW_CHANGED":
                    raise
                return False
            crash_point("executor.failed_noted")
        work.failed = note
        return True


async def apply_delta(work: RefreshWork, plan: RefreshPlan) -> bool:
    """Bring a view to the plan's source version and to its functions' versions, in one commit.

    If the job is not in the job history yet, this changes the view only if no function is called and few rows are
    appended. The commit then names the job.

    Returns:
        Whether the change was committed. False if the job is not in the history yet and has more to do.
    """
    recording = work.recording(plan)  # runs while rows are compared and functions called
    comparing = work.comparison(plan)
    if not work.in_history:
        await asyncio.wait({comparing}, timeout=_SOON_SECONDS)
        if not (comparing.done() and _is_little(plan, comparing.result())):
            return False
    await _Delta(work, plan, await comparing).commit(recording)
    return True


def _is_little(plan: RefreshPlan, outcome: RowOutcome) -> bool:
    new = len(outcome.append)
    if len(outcome.recompute_ids) or (new and plan.functions):
        return False
    # The rows that are still to be read may have gigabytes. A job that writes them must be in the history, so that
    # users can watch and stop it.
    return not new or (new <= _FEW_ROWS and outcome.values is not None)


class _Delta:
    """The changes of one commit to a view."""

    def __init__(self, work: RefreshWork, plan: RefreshPlan, outcome: RowOutcome) -> None:
        self._work = work
        self._plan = plan
        self._outcome = outcome
        self._functions = [f for f in plan.functions if not plan.only_columns or f.column.name in plan.stale]
        self._names = [function.column.name for function in self._functions]
        #: Source row ids of all rows to compute, in the order of the scratch table.
        self._rows = np.concatenate([outcome.append, outcome.recompute_ids])
        self._swaps = group_by_fragment(outcome.recompute_addresses)
        self._replaces_all = plan.mode is RefreshMode.FULL

    async def commit(self, recording: asyncio.Future[RefreshPlan]) -> None:
        """Compute the values, write all files of the commit, and commit them."""
        work, plan = self._work, self._plan
        scratch = await self._computed()
        work.check()
        asked = AskedCommit(uri=plan.uri, request_id=uuid.uuid4().hex, read_version=plan.version, gains=self._gains())
        asking = asyncio.ensure_future(self._note_request(asked))
        writing = asyncio.ensure_future(self._files(scratch))
        evicting = asyncio.ensure_future(self._evictions())
        noting = asyncio.ensure_future(self._failed(scratch))
        await wait_all(writing, evicting, noting, recording, asking)
        crash_point("executor.view_files_written")
        appended, swapped = writing.result()
        definition = self._definition(replace(recording.result().definition, failed=noting.result()))
        metadata = view_definitions.updates(definition)
        if not work.in_history:
            metadata = {**metadata, **view_metadata.at_once(work.status.job.job_id, asked)}
        begin = time.monotonic()
        with contextlib.nullcontext() if work.in_history else within_call_deadline():
            made, work.status.without_indexes = await retry_unavailable(
                work.services.commits.apply_view_delta,
                plan,
                appended=appended,
                swapped=swapped,
                evictions=evicting.result(),
                replace_all=self._replaces_all,
                metadata=metadata,
                attempt=work.status.job.this_attempt,
                request_id=asked.request_id,
            )
        crash_point("executor.delta_answered")
        work.metrics.commit_seconds += time.monotonic() - begin
        work.metrics.commits += 1
        self._note_commit(asked, made)
        work.failed = noting.result()

    async def _computed(self) -> ScratchTable | None:
        """Return the scratch table, computed. Return None if no function needs to be called."""
        work, plan, rows = self._work, self._plan, self._rows
        work.metrics.expect(len(rows), len(self._functions))
        lists = [self._outcome.append, self._outcome.recompute_ids]
        digest = work_digest(plan, plan.target_version, self._functions, lists)
        parts = [rows[at : at + _SCRATCH_FRAGMENT_ROWS] for at in range(0, len(rows), _SCRATCH_FRAGMENT_ROWS)]
        scratch = await work.scratch.open(plan, self._functions, plan.target_version, digest, parts)
        if scratch is not None:
            await work.fill(scratch, self._functions, reuse=ValueReuse(plan, rows))
            await run_storage_work(scratch.refresh)
            crash_point("executor.scratch_filled")
        return scratch

    async def _note_request(self, asked: AskedCommit) -> None:
        if self._work.in_history:
            await self._work.journal.write_request(asked)
        else:
            self._work.journal.note_request(asked)

    async def _files(self, scratch: ScratchTable | None) -> tuple[list[StagedFile], list[tuple[int, StagedFile]]]:
        """Return the files of new fragments, and the files that replace those of existing fragments."""
        work, plan, new = self._work, self._plan, len(self._outcome.append)
        everything = ScratchValues(self._rows, 0)
        cuts = split_new_rows(new, work.spec.max_rows_per_fragment, work.services.slots)
        works = [_appending(everything.part(a, b)) for a, b in cuts]
        columns = self._names if plan.only_columns else []
        works += [_swapping(swap, everything, new, columns) for swap in self._swaps]
        files = await work.write(plan, plan.target_version, scratch, self._names, works, self._outcome.values)
        swapped = [(swap.fragment_id, file) for swap, file in zip(self._swaps, files[len(cuts) :], strict=True)]
        return files[: len(cuts)], swapped

    async def _evictions(self) -> tuple[str, str]:
        """Write a file with the evicted rows. Return its name and its digest, or two empty texts if none is evicted."""
        addresses = self._outcome.evict_addresses
        if not len(addresses):
            return "", ""
        return await run_storage_work(view_side_files.write_evictions, self._plan.uri, addresses)

    async def _failed(self, scratch: ScratchTable | None) -> FailedNote:
        """Return the note on failed rows for the view's metadata after the commit."""
        plan, outcome, job = self._plan, self._outcome, self._work.status.job.job_id
        failed: _FailedRowIds = {}
        if scratch is not None:
            failed = await run_storage_work(_failed_row_ids, scratch, self._names, self._rows, None)
        if self._replaces_all:
            return await run_storage_work(view_side_files.write_failed_rows, plan.uri, NONE_FAILED.plus(job, failed))
        before = plan.definition.failed
        return await _updated_note(self._work, plan, before, self._rows, outcome.evict_ids, failed)

    def _gains(self) -> RefreshResult:
        plan, outcome = self._plan, self._outcome
        changed, gone = len(outcome.recompute_ids), len(outcome.evict_addresses)
        full = self._replaces_all
        return RefreshResult(
            mode=plan.mode,
            reason=plan.reason,
            rows_added=len(outcome.append),
            rows_recomputed=changed,
            rows_evicted=plan.rows if full else gone,
            rows_reused=0 if full else max(0, plan.rows - changed - gone),
            source_rows_read=outcome.source_rows_read,
            fragments_rewritten=len(self._swaps),
            source_version_before=plan.definition.base_version,
            source_version=plan.target_version,
        )

    def _definition(self, definition: ViewDefinition) -> ViewDefinition:
        """Return the view definition that the commit writes."""
        plan = self._plan
        filled = {f.column.name: f"{f.udf.name}@{f.udf.version}" for f in self._functions}
        definition = replace(
            definition,
            filled={**definition.filled, **filled},
            base_version=plan.target_version,
            base_incarnation=plan.target_incarnation,
        )
        if plan.reason in _FORGETTING:
            return replace(definition, earlier=())
        touches = len(self._rows) or len(self._outcome.evict_addresses)
        return view_definitions.remembering(definition, plan.state if touches else None)

    def _note_commit(self, asked: AskedCommit, made: int) -> None:
        work, gains = self._work, asked.gains
        work.journal.committed(asked, made)
        work.metrics.rows_committed += gains.rows_added + gains.rows_recomputed
        work.status.note(
            "commit",
            f"{gains.rows_added:,} rows added, {gains.rows_recomputed:,} updated, {gains.rows_evicted:,} evicted "
            f"in version {made} of the view",
        )


def _missing(rows: dict[int, tuple[Ids, int]], scratch: ScratchTable | None) -> dict[int, _Missing]:
    """Find where the scratch table has the rows of each fragment.

    If the view was compacted after the scratch table was created, one fragment may have both rows with values and rows
    without.
    """
    if scratch is None:
        return {i: _Missing(unset, [ScratchValues(ids, 0)]) for i, (ids, unset) in rows.items()}
    index, ends = RowIndex(scratch.row_ids()), np.cumsum(scratch.rows)
    found = {}
    for fragment_id, (ids, unset) in rows.items():
        parts = index.runs(ids)
        bounds = [np.searchsorted(ends, [p.at, p.at + len(p.ids) - 1], side="right").tolist() for p in parts]
        needs = frozenset(at for first, last in bounds for at in range(first, last + 1))
        found[fragment_id] = _Missing(unset, parts, needs)
    return found


def _filling(fragment_id: int, parts: Sequence[ScratchValues]) -> FileWork:
    return lambda writer: writer.fill(fragment_id, parts)


def _appending(rows: ScratchValues) -> FileWork:
    return lambda writer: writer.append(rows)


def _swapping(part: FragmentRowsToCompute, rows: ScratchValues, first: int, columns: Sequence[str]) -> FileWork:
    mine = rows.part(first + part.first, first + part.first + len(part.offsets))
    if columns:
        return lambda writer: writer.swap_columns(part.fragment_id, part.offsets, mine, columns)
    return lambda writer: writer.swap(part.fragment_id, part.offsets, mine)


def _failed_row_ids(
    scratch: ScratchTable, columns: Sequence[str], rows: Ids | None, only: Collection[int] | None
) -> _FailedRowIds:
    """Return the failed rows of a scratch table. Blocks.

    Args:
        scratch: The scratch table.
        columns: The columns to check.
        rows: The source row ids of the whole scratch table, if known.
        only: The positions of the fragments to check; None for all.
    """
    failed = {column: scratch.failed(column, only) for column in columns}
    if rows is None:
        rows = scratch.row_ids() if any(map(len, failed.values())) else NO_IDS
    return {column: rows[at] for column, at in failed.items()}


async def _updated_note(
    work: RefreshWork, plan: RefreshPlan, before: FailedNote, rows: Ids, evicted: Ids, failed: _FailedRowIds
) -> FailedNote:
    """Return a view's note on failed rows, updated after rows were computed or evicted.

    If the current list of failed rows is damaged, the new list has only the rows in `failed`, and the job gets an
    event.

    Args:
        before: The current note.
        rows: Source row ids of the rows that were computed, in the columns of `failed`.
        evicted: Source row ids of the rows that were evicted.
        failed: The rows that failed.
    """
    if not any(map(len, (rows, evicted) if before.file else failed.values())):
        return before

    def update() -> tuple[FailedNote, bool]:
        known = view_side_files.read_failed_rows(plan.uri, before)
        listed = NONE_FAILED if known is None else known
        left = listed.without(evicted, before.rows.keys()).without(rows, failed.keys())
        left = left.plus(work.status.job.job_id, failed)
        note = before if left == listed else view_side_files.write_failed_rows(plan.uri, left)
        return note, known is None

    note, lost = await run_storage_work(update)
    if lost:
        message = view_side_files.lost_failed_rows(database_and_table(plan.uri)[1], before)
        if message not in work.journal.result.warnings:
            work.journal.update(warnings=(*work.journal.result.warnings, message))
            work.status.note("error", message)
    return note
