"""The first fill of a view: each fragment of placeholders is installed as soon as its values are computed."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from leman_core.model.plan import StagedFile
from leman_core.model.service_errors import Aborted, Internal
from leman_core.model.view import AskedCommit, RefreshPlan, RefreshResult, ResolvedFunction
from leman_core.process.crash_points import crash_point
from leman_core.storage import view_data_files as view_files
from leman_core.storage.scratch_table import ScratchTable
from leman_executor.jobs.async_helpers import retry_unavailable
from leman_executor.refresh import view_writer
from leman_executor.refresh.refresh_work import FileWork, FirstFailures, RefreshWork
from leman_executor.refresh.view_writer import Ints, RowIndex, ScratchValues, retry_in_thread


@dataclass(frozen=True, slots=True)
class _Missing:
    """A fragment to be filled."""

    #: How many of its rows have no values.
    unset: int
    #: Where the scratch table has all of its rows.
    parts: Sequence[ScratchValues]
    #: The fragments of the scratch table that have them.
    needs: frozenset[int] = frozenset()


class FirstFill:
    """Gives values to placeholders, at the source version that they were created for."""

    def __init__(self, work: RefreshWork) -> None:
        self._work = work

    async def run(self, plan: RefreshPlan) -> None:
        """Fill every placeholder.

        Raises:
            Aborted: The view changed meanwhile.
            Cancelled: The refresh was asked to stop.
            Internal: SCRATCH_TABLE_INCOMPLETE, where fragments of the scratch table were not computed.
            LemanError: What ended a backfill of the scratch table.
        """
        version = plan.definition.base_version
        of = view_writer.work_digest(plan, version, plan.functions, [])
        rows: dict[int, tuple[Ints, int]] = {}
        for fragment in plan.unset:
            rows[fragment.fragment_id] = await retry_in_thread(
                view_files.source_row_ids, plan.uri, plan.version, fragment.fragment_id
            )
        self._work.metrics.expect(sum(unset for _, unset in rows.values()), len(plan.functions))
        scratch = await self._work.scratch(plan, plan.functions, version, of, [ids for ids, _ in rows.values()])
        self._failures = FirstFailures(self._work, plan)
        missing = await retry_in_thread(_missing, rows, scratch)

        async def install() -> None:
            done = await self._complete(scratch, plan.functions, missing)
            await self._install(plan, version, scratch, [(i, missing[i]) for i in done])
            for fragment_id in done:
                del missing[fragment_id]

        if scratch is not None:
            await self._work.fill(scratch, plan.functions, install)
        await install()
        if missing:
            raise Internal(
                "SCRATCH_TABLE_INCOMPLETE", f"{len(missing)} fragments of the scratch table were not computed"
            )
        await self._work.drop_scratch()

    async def _complete(
        self, scratch: ScratchTable | None, functions: Sequence[ResolvedFunction], missing: dict[int, _Missing]
    ) -> list[int]:
        """Return the fragments of the view of which the scratch table has all values."""
        if scratch is None:
            return list(missing)
        done = set(await retry_in_thread(scratch.complete, [f.column.name for f in functions]))
        return [i for i, fragment in missing.items() if fragment.needs <= done]

    async def _install(
        self, plan: RefreshPlan, version: int, scratch: ScratchTable | None, fragments: Sequence[tuple[int, _Missing]]
    ) -> None:
        """Write the files of complete fragments and have them committed, a few at a time."""
        names = [f.column.name for f in plan.functions]
        for at in range(0, len(fragments), 4 * self._work.services.slots):
            self._work.check()
            some = fragments[at : at + 4 * self._work.services.slots]
            files = await self._work.write(
                plan, version, scratch, names, [_filling(i, fragment.parts) for i, fragment in some]
            )
            if scratch is not None:
                await self._failures.note(scratch, *_rows_of([fragment for _, fragment in some]))
            await self._commit(plan, version, some, files)

    async def _commit(
        self, plan: RefreshPlan, version: int, filled: Sequence[tuple[int, _Missing]], files: Sequence[StagedFile]
    ) -> None:
        rows = {fragment_id: fragment.unset for fragment_id, fragment in filled}
        asked = AskedCommit(
            uri=plan.uri,
            request_id=uuid.uuid4().hex,
            read_version=plan.version,
            gains=RefreshResult(source_version=version),
            filled=rows,
        )
        await self._work.journal.asking(asked)
        begin = time.monotonic()
        made, outcomes = await retry_unavailable(
            self._work.services.commits.fill_placeholders,
            plan,
            list(zip(rows, files, strict=True)),
            attempt=self._work.status.job.this_attempt,
            request_id=asked.request_id,
        )
        crash_point("executor.fill_answered")
        self._work.metrics.commit_seconds += time.monotonic() - begin
        self._note(asked, made, [o.fragment_id for o in outcomes if o.committed])
        refused = [o for o in outcomes if not o.committed]
        if refused:
            raise Aborted(refused[0].reason, refused[0].message)

    def _note(self, asked: AskedCommit, made: int, installed: Collection[int]) -> None:
        work, before = self._work, self._work.journal.result.rows_added
        if not installed:
            return
        work.journal.committed(asked, made, installed)
        rows = work.journal.result.rows_added - before
        work.metrics.rows_committed += rows
        work.metrics.commits += 1
        work.status.note("commit", f"{rows:,} rows are in version {made}, fragments: {len(installed):,}")


def _missing(rows: dict[int, tuple[Ints, int]], scratch: ScratchTable | None) -> dict[int, _Missing]:
    """Find the rows of each fragment in the scratch table.

    The view may have been compacted since the scratch table was created, so that rows with values and rows without lie
    in one fragment.
    """
    if scratch is None:
        return {i: _Missing(unset, [ScratchValues(ids, 0)]) for i, (ids, unset) in rows.items()}
    places, ends = RowIndex(scratch.row_ids()), np.cumsum(scratch.rows)
    found = {}
    for fragment_id, (ids, unset) in rows.items():
        parts = places.runs(ids)
        bounds = [np.searchsorted(ends, [p.at, p.at + len(p.ids) - 1], side="right").tolist() for p in parts]
        needs = frozenset(at for first, last in bounds for at in range(first, last + 1))
        found[fragment_id] = _Missing(unset, parts, needs)
    return found


def _rows_of(fragments: Sequence[_Missing]) -> tuple[Ints, frozenset[int]]:
    """Return the rows of the source, and the fragments of the scratch table that have them."""
    rows = [part.ids for fragment in fragments for part in fragment.parts]
    return np.concatenate(rows), frozenset().union(*(fragment.needs for fragment in fragments))


def _filling(fragment_id: int, parts: Sequence[ScratchValues]) -> FileWork:
    return lambda writer: writer.fill(fragment_id, parts)
