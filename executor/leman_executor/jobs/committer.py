"""Commit the finished column files of a plan in groups, and release the reservations of their fragments afterwards.

Other jobs must wait for a fragment until its file is committed. The executor therefore keeps reservations after the
workers that made them have ended.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from leman_core.model.job import FragmentOutcome
from leman_core.model.plan import FragmentReplacement, FragmentTask, Plan, StagedFile
from leman_core.model.work import WorkContext, scope_of
from leman_core.process.crash_points import crash_point
from leman_executor.jobs.async_helpers import retry_unavailable
from leman_executor.jobs.commit_cadence import CommitCadence
from leman_executor.jobs.job_environment import Commits, ReservationKeeping
from leman_executor.jobs.job_status import JobStatus


class RetainedReservations:
    """The reservations that remain after the workers of one plan have finished their units.

    Only a job with a filter keeps reservations, because jobs with other filters cannot use its files before they are
    committed.
    """

    def __init__(self, keeping: ReservationKeeping, context: WorkContext) -> None:
        self._keeping = keeping
        self._context = context
        self._scopes: dict[int, str] = {}

    def note_staged(self, task: FragmentTask) -> None:
        """Keep the reservation of a fragment whose complete file is not committed yet."""
        if self._context.where:
            self._scopes[task.fragment_id] = self._context.scope(scope_of(task))

    async def keep_until(self, done: asyncio.Future[None]) -> None:
        """Renew the reservations, three times per lifetime, until `done` ends."""
        while not (await asyncio.wait((done,), timeout=self._context.reservation_ttl / 3))[0]:
            if self._scopes:
                await self._keeping.keep(self._context.holder, list(self._scopes.values()))

    async def give_back(self, fragment_ids: Collection[int]) -> None:
        """Release the reservations of fragments after the response to their commit, so that waiting jobs plan again."""
        await self.give_back_scopes([self._scopes.pop(i) for i in fragment_ids if i in self._scopes])

    async def give_back_scopes(self, scopes: Sequence[str]) -> None:
        """Release the reservations in `scopes` whose workers no longer exist, for example because they died."""
        if scopes:
            await self._keeping.release(self._context.holder, scopes)

    async def give_all_back(self, others: Sequence[str]) -> None:
        """Release all reservations when a job ends early, and those that workers may have in the scopes `others`."""
        await self._keeping.release(self._context.holder, [*others, *self._scopes.values()])


#: Reasons for which the coordinator refuses a file that was changed or removed after it was written.
_DAMAGE = frozenset({"FILE_DAMAGED", "FILE_MISSING"})
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PartialFile:
    """A file with those rows of a fragment that are stored while the fragment is still being computed."""

    task: FragmentTask
    staged: StagedFile


class Committer:
    """Commit the files of one plan, one commit at a time, at the times that `CommitCadence` sets."""

    def __init__(
        self,
        commits: Commits,
        plan: Plan,
        status: JobStatus,
        left: RetainedReservations,
        cadence: CommitCadence,
    ) -> None:
        self._commits = commits
        self._header = plan.header
        self._status = status
        self._left = left
        self._cadence = cadence
        self._ready: deque[FragmentReplacement] = deque()
        self.files: dict[int, str] = {}
        #: For each fragment, the partial file that this plan committed most recently.
        self._partial: dict[int, str] = {}
        self._refused_partial: set[int] = set()
        self._turn = asyncio.Lock()
        self._since = 0.0
        self._last = time.monotonic()
        self._wake = asyncio.Event()
        self._closing = False
        self.rejected: list[FragmentOutcome] = []
        self.version = 0
        self._under_way = 0
        self._submitted = 0

    def add(self, task: FragmentTask, staged: StagedFile, failed_before: int | None = None) -> None:
        """Add a fragment's complete file. If it is reported repeatedly, the fragment counts once.

        Args:
            failed_before: See `leman_core.model.work.FragmentResult`. If None, the number in the plan applies.
        """
        if task.fragment_id in self.files:
            return
        self.files[task.fragment_id] = staged.file
        before = task.rows_failed_before if failed_before is None else failed_before
        before = max(0, before - self._status.metrics.failed_in_partial(task.current_file))
        rows = task.physical_rows - task.deleted_rows - staged.rows_skipped
        self._status.metrics.staged(task.fragment_id, rows, staged.rows_failed, before, staged.rows_skipped)
        if not self._ready:
            self._since = time.monotonic()
        self._ready.append(
            FragmentReplacement(
                fragment_id=task.fragment_id, staged=staged, input_files=task.input_files, replaces=task.current_file
            )
        )
        self._wake.set()

    def takes_partial(self, fragment_id: int) -> bool:
        """Return whether a partial file of a fragment may be committed: the fragment has no complete file, and none of
        its partial files was refused.
        """
        return fragment_id not in self.files and fragment_id not in self._refused_partial

    @property
    def pause_seconds(self) -> float:
        """Return the minimum number of seconds between two commits, which limits the cost of manifests."""
        return self._cadence.pause_seconds

    @property
    def seconds_since_last(self) -> float:
        """Return the seconds since the last commit ended or, before the first commit, since the plan began."""
        return time.monotonic() - self._last

    @property
    def waits_for(self) -> dict[str, object]:
        """Return a description of the running commit, with a value that changes for each commit."""
        what = f"the commit of {self._under_way} fragments has no response yet"
        return {what: self._submitted} if self._under_way else {}

    def close(self) -> None:
        """Tell `run` to commit the remaining files and end. Do not call `add` afterwards."""
        self._closing = True
        self._wake.set()

    async def run(self) -> None:
        """Commit files as they are added, until `close` was called and none are left.

        Raises:
            LemanError: The coordinator refuses a request as a whole.
        """
        while True:
            count = self._due()
            if count:
                batch = [self._ready.popleft() for _ in range(count)]
                self._since = time.monotonic()
                async with self._turn:
                    await self._commit(batch)
            elif self._closing:
                return
            else:
                await self._pause()

    def _due(self) -> int:
        ready = len(self._ready)
        if self._closing:
            return min(ready, self._cadence.most_fragments)
        now = time.monotonic()
        return self._cadence.due(ready, waited=now - self._since, since_last=now - self._last)

    async def _pause(self) -> None:
        """Wait until a file is added, or until a waiting file is due."""
        self._wake.clear()
        timeout = _LOOK_SECONDS if self._ready else None
        try:
            await asyncio.wait_for(self._wake.wait(), timeout)
        except TimeoutError:
            return

    async def commit_partial(self, made: Sequence[PartialFile]) -> None:
        """Commit stored rows of fragments that are still being computed.

        If a fragment's complete file was added meanwhile, the complete file is committed instead. A refused partial
        file is not an error: the complete file is committed later, or refused for the same reason.

        Raises:
            LemanError: The coordinator refuses the request as a whole.
        """
        async with self._turn:
            files = {part.task.fragment_id: part for part in made if self.takes_partial(part.task.fragment_id)}
            if not files:
                return
            version, outcomes = await self._replace(
                [
                    FragmentReplacement(
                        fragment_id=fragment_id,
                        staged=part.staged,
                        input_files=part.task.input_files,
                        replaces=part.task.current_file,
                    )
                    for fragment_id, part in files.items()
                ]
            )
            rows = 0
            for outcome in outcomes:
                if outcome.committed:
                    part = files[outcome.fragment_id]
                    self._partial[outcome.fragment_id] = part.staged.file
                    rows += self._status.metrics.partly_committed(part.task, part.staged)
                else:
                    self._refused_partial.add(outcome.fragment_id)
        if rows:
            fragments = "a fragment that is" if len(files) == 1 else f"{len(files):,} fragments that are"
            self._status.note(
                "commit", f"rows committed of {fragments} still being computed: {rows:,}, version {version}"
            )

    async def _replace(self, batch: Sequence[FragmentReplacement]) -> tuple[int, Sequence[FragmentOutcome]]:
        """Submit files that replace the current files of their fragments. Return the version and the outcomes."""
        begin = time.monotonic()
        self._under_way = len(batch)
        self._submitted += 1
        answer = await retry_unavailable(
            self._commits.replace_column,
            self._header,
            self._header.output,
            [replace(r, replaces=self._partial.get(r.fragment_id, r.replaces)) for r in batch],
            attempt=self._status.job.this_attempt,
            request_id=uuid.uuid4().hex,
        )
        self._under_way = 0
        crash_point("executor.commit_answered")
        self._last = time.monotonic()
        self._status.metrics.commit_seconds += self._last - begin
        self._cadence.answered(len(batch), self._last - begin, answer.manifest_seconds)
        if answer.version:
            self._status.metrics.commits += 1
            self.version = max(self.version, answer.version)
            self._status.without_indexes = answer.without_indexes
        return answer.version, answer.outcomes

    async def _commit(self, batch: list[FragmentReplacement]) -> None:
        version, outcomes = await self._replace(batch)
        for outcome in outcomes:
            if outcome.committed:
                self._status.metrics.committed(outcome.fragment_id)
            else:
                self._status.metrics.rejected(outcome.fragment_id)
                self.rejected.append(outcome)
                if outcome.reason in _DAMAGE:
                    message = f"a file of fragment {outcome.fragment_id} is not installed: {outcome.message}"
                    self._status.note("error", message)
        await self._left.give_back([outcome.fragment_id for outcome in outcomes])
        committed = sum(o.committed for o in outcomes)
        if committed:
            metrics = self._status.metrics
            so_far = f"{metrics.fragments_committed:,} so far"
            self._status.note("commit", f"fragments committed: {committed:,} in version {version}, {so_far}")
