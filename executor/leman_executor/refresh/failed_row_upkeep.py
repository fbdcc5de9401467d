"""Keeps the list of a view's failed rows right: whoever fills, changes or evicts rows says which of them failed."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from leman_core.model import view_metadata
from leman_core.model.errors import Aborted
from leman_core.model.refresh import RefreshPlan
from leman_core.model.sorted_sets import common
from leman_core.model.view import FailedNote
from leman_core.model.view_rows import NO_IDS
from leman_core.process.crash_points import crash_point
from leman_core.storage.locations import database_and_table
from leman_core.storage.views import failed_rows_file as view_failed
from leman_core.storage.views import files as view_files
from leman_core.storage.views.failed_rows_file import NONE_FAILED
from leman_core.storage.views.scratch_table import ScratchTable
from leman_executor.jobs.async_helpers import patiently
from leman_executor.refresh.file_layout import Ints
from leman_executor.refresh.refresh_work import RefreshWork
from leman_executor.refresh.storage_retries import in_thread

#: How many times another refresh that fills the view may be faster.
_TRIES = 20

Failures = Mapping[str, Ints]


def failures_in(
    scratch: ScratchTable, columns: Sequence[str], rows: Ints | None, only: Collection[int] | None
) -> Failures:
    """Return the source row ids of failed rows, by column. Blocking.

    Args:
        scratch: The scratch table.
        columns: The columns to look at.
        rows: Source row ids of the whole scratch table, where they are known.
        only: Positions of the fragments to look at; None: all.
    """
    places = {column: scratch.failed(column, only) for column in columns}
    if rows is None:
        rows = scratch.row_ids() if any(map(len, places.values())) else NO_IDS
    return {column: rows[at] for column, at in places.items()}


class Noted(NamedTuple):
    """What a view is to say of failed rows."""

    note: FailedNote
    #: Whether the list so far is damaged or gone.
    lost: bool = False


def noted(uri: str, before: FailedNote, rows: Ints, evicted: Ints, failed: Failures, job_id: str) -> Noted:
    """Return what a view says of failed rows once `rows` were computed and others were evicted. Blocking.

    If the list so far is damaged, the new one begins with these failures.

    Args:
        uri: The view.
        before: What it says now.
        rows: Source row ids of the rows that were computed, in the columns of `failed`.
        evicted: Source row ids of the rows that were evicted.
        failed: Source row ids of the rows that failed, by column.
        job_id: The job that computed them.

    Raises:
        OSError: The list cannot be read or written.
    """
    if not before.file and not any(map(len, failed.values())):
        return Noted(before)
    known = view_failed.read(uri, before)
    listed = NONE_FAILED if known is None else known
    left = listed.without(evicted, before.rows.keys()).without(rows, failed.keys()).plus(job_id, failed)
    return Noted(before if left == listed else view_failed.write(uri, left), known is None)


def tell_if_lost(work: RefreshWork, plan: RefreshPlan, before: FailedNote, noted: Noted) -> FailedNote:
    """Return what a view is to say of failed rows; have the refresh say once where the list so far is lost."""
    if noted.lost:
        message = view_failed.lost(database_and_table(plan.uri)[1], before)
        if message not in work.journal.result.warnings:
            work.journal.say(warnings=(*work.journal.result.warnings, message))
            work.status.note("error", message)
    return noted.note


def noted_anew(uri: str, failed: Failures, job_id: str) -> FailedNote:
    """Return what a view says of failed rows once none of its earlier rows is left; see `noted`."""
    return view_failed.write(uri, NONE_FAILED.plus(job_id, failed))


class FirstFailures:
    """The failed rows of a first fill.

    Their list is committed before the fragments that they are in. Until then it names rows that have no values yet,
    which does no harm; once they have values, the list is right.
    """

    def __init__(self, work: RefreshWork, plan: RefreshPlan) -> None:
        self._work = work
        self._plan = plan

    async def note(self, scratch: ScratchTable, rows: Ints, fragments: Collection[int]) -> None:
        """Commit the list of failed rows, before rows of the source are installed.

        Args:
            scratch: The scratch table.
            rows: Source row ids of the rows that are going to be installed.
            fragments: Positions of the fragments of the scratch table that have them.

        Raises:
            Aborted: VIEW_CHANGED, where other refreshes of the view were faster again and again.
        """
        columns = [f.column.name for f in self._plan.functions]
        found = await in_thread(failures_in, scratch, columns, None, fragments)
        failed = {column: common(ids, rows) for column, ids in found.items()}
        if not self._plan.definition.failed.file and not any(map(len, failed.values())):
            return
        for _ in range(_TRIES):
            if await self._commit(rows, failed):
                return
        raise Aborted("VIEW_CHANGED", "other refreshes of the view were faster again and again")

    async def _commit(self, rows: Ints, failed: Failures) -> bool:
        """Commit the list once; False where the view changed meanwhile."""
        version, definition = await in_thread(view_files.latest_definition, self._plan.uri)
        job = self._work.status.job
        found = await in_thread(noted, self._plan.uri, definition.failed, rows, NO_IDS, failed, job.job_id)
        note = tell_if_lost(self._work, self._plan, definition.failed, found)
        if note == definition.failed:
            return True
        definition = replace(definition, failed=note)
        try:
            await patiently(
                self._work.services.commits.apply_view_delta,
                replace(self._plan, version=version, definition=definition),
                appended=(),
                swapped=(),
                evictions=("", ""),
                replace_all=False,
                metadata=view_metadata.updates(definition),
                attempt=job.this_attempt,
                request_id=uuid.uuid4().hex,
            )
        except Aborted as error:
            if error.reason != "VIEW_CHANGED":
                raise
            return False
        crash_point("executor.failed_noted")
        return True
