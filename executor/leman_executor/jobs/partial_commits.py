"""Commits of rows inside fragments that are still being computed, so that a long job shows what it has.

A fragment is committed when all of its rows are done, which may take hours where a function is slow. In between, its
stored rows are committed as a partial file: after the first seconds, and then at intervals that double, so that a job
of a day makes a dozen such commits, and a short one none. A job whose fragments are finished as fast needs none either.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from leman_core.model.errors import LemanError
from leman_core.model.plan import CheckpointRef, FragmentTask, PlanHeader, StagedFile
from leman_core.model.ranges import merge, total
from leman_core.model.work import WorkContext
from leman_executor.jobs.committer import Committer, PartialFile
from leman_executor.jobs.ports import CheckpointMaintenance
from leman_executor.jobs.unit_source import PlanUnits

_log = structlog.get_logger(__name__)

#: The largest share of a job's time that may go into writing partial files, and the assumed speed of writing.
_SHARE, _BYTES_A_SECOND = 0.05, 200 << 20
#: With `commit_rows`: the shortest time between two commits, and between two looks.
_LEAST_PAUSE_SECONDS, _LOOK_SECONDS = 1.0, 0.5
#: Fragments in one commit.
_MOST_FRAGMENTS = 256


class PartialCadence:
    """When stored rows of unfinished fragments are committed. Pure: no I/O, no clock.

    Args:
        first_seconds: How long the table has got nothing from the plan when the first ones are; 0: none are committed.
        rows: Rows of each commit, where the request says that; 0: chosen.
    """

    def __init__(self, first_seconds: float, rows: int = 0) -> None:
        self._interval = _LEAST_PAUSE_SECONDS if rows and first_seconds else first_seconds
        self._rows = rows
        self._last_cost = 0.0

    @property
    def never(self) -> bool:
        """Tell whether there is no such commit at all."""
        return not self._interval

    def left(self, since_last: float, stored_bytes: int, new_rows: int) -> float:
        """Return how long to wait for the next commit, or before asking again.

        Args:
            since_last: How long ago the plan committed something, or began.
            stored_bytes: What the plan has stored so far.
            new_rows: Rows that a commit would show and the last one did not.
        """
        if new_rows < self._rows:
            return _LOOK_SECONDS
        cost = max(self._last_cost, stored_bytes / _BYTES_A_SECOND)
        return max(self._interval, cost / _SHARE) - since_last

    def committed(self, seconds: float) -> None:
        """Learn how long the files of a commit took to write."""
        self._last_cost = seconds
        if not self._rows:
            self._interval *= 2


class PartialCommits:
    """The partial commits of one plan."""

    def __init__(
        self,
        context: WorkContext,
        maintenance: CheckpointMaintenance,
        committer: Committer,
        cadence: PartialCadence,
        units: PlanUnits,
    ) -> None:
        self._context = context
        self._maintenance = maintenance
        self._committer = committer
        self._cadence = cadence
        self._units = units
        #: By fragment, what its last partial file was made of.
        self._shown: dict[int, _Part] = {}

    @staticmethod
    def are_for(header: PlanHeader) -> bool:
        """Tell whether a plan's unfinished fragments can be committed: whatever is stored says of each row what it is.

        With a filter, or in a retry, rows are left out for other reasons.
        """
        return not (header.where or header.failed_only or header.inputs_version or header.input_source is not None)

    @property
    def never(self) -> bool:
        """Tell whether there is no such commit at all."""
        return self._cadence.never

    async def run(self, until: asyncio.Future[None]) -> None:
        """Commit now and then, until the plan's own commits are done. A failure ends only this."""
        while not (self._cadence.never or until.done()):
            new_rows = sum(part.new_rows for part in self._parts())
            since_last = self._committer.seconds_since_last
            left = self._cadence.left(since_last, self._units.stored_bytes, new_rows)
            left = max(left, self._committer.pause_seconds - since_last)
            if left > 0:
                await asyncio.wait((until,), timeout=left)
                continue
            try:
                await self._commit(until)
            except LemanError as error:
                _log.warning("stored rows are not committed before their fragments", error=error.message)
                return

    async def _commit(self, until: asyncio.Future[None]) -> None:
        """Write the files of the fragments with most new rows, and commit them."""
        begin = time.monotonic()
        made: list[PartialFile] = []
        for part in self._parts()[:_MOST_FRAGMENTS]:
            staged = await self._written(part, until)
            if until.done():
                return
            if staged is not None:
                made.append(PartialFile(part.task, staged))
                self._shown[part.task.fragment_id] = part
        self._cadence.committed(time.monotonic() - begin)
        if made:
            await self._committer.commit_partial(made)

    async def _written(self, part: _Part, until: asyncio.Future[None]) -> StagedFile | None:
        """Write a file in a thread, which ends soon where the plan does."""
        stop = threading.Event()
        refs = list(part.checkpoints.values())
        writing = asyncio.ensure_future(self._maintenance.write_partial(self._context, part.task, refs, stop))
        try:
            await asyncio.wait((writing, until), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not writing.done():
                stop.set()
        return await writing

    def _parts(self) -> list[_Part]:
        """Return the fragments that have got rows since their last partial file, those with most of them first."""
        found = []
        for fragment_id, (task, refs) in self._units.stored().items():
            if not self._committer.takes_partial(fragment_id) or (task.current_file and not task.extend_current):
                continue  # the last: its rows have values of another version, which stay until all have new ones
            before = self._shown.get(fragment_id)
            every = dict(before.checkpoints) if before is not None else {}
            every |= {ref.key: ref for ref in refs if ref.settles}
            rows = total(merge(ref.range for ref in every.values()))
            new = rows - (before.rows if before is not None else 0)
            if new > 0 and rows < task.physical_rows:
                found.append(_Part(task, every, rows, new))
        return sorted(found, key=lambda part: (-part.new_rows, part.task.fragment_id))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is stored of a fragment, by key, and how many of these rows no partial file has."""

    task: FragmentTask
    checkpoints: Mapping[str, CheckpointRef]
    rows: int
    new_rows: int
