"""Share scans and commits among the SQL columns of one job.

A fragment is read once for all columns. Only whole fragments without stored rows are shared. Each column has its own
pass over the rows (`worker/sql_source.py`), with its own reservations, checkpoints and error policy. All other
fragments are computed by the columns' own runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from leman_core.model.job import Attempt, ColumnCommit
from leman_core.model.plan import FragmentReplacement, FragmentTask, OutputField, Plan, PlanHeader, StagedFile
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import ATTEMPT_FENCED, LemanError, Unavailable
from leman_core.model.work import FragmentWork, UnitOutcome, WorkContext, WorkUnit
from leman_core.server.blocking import run_in_job_thread
from leman_core.storage.scan import FragmentReader
from leman_executor.jobs.job_environment import Commits
from leman_executor.jobs.job_metrics import JobMetrics
from leman_executor.scheduling.local_runner import LoopSink
from leman_executor.worker.sql_source import SharedScan
from leman_executor.worker.worker_loop import WorkerState

#: Plans with more fragments are not shared.
_MOST_FRAGMENTS = 10_000
#: Maximum number of concurrent passes. Each takes a thread and a writer with buffers of some MB.
_MOST_PASSES = 128
#: The units are numbered from here, so that their ids differ from those of the columns' own runs.
_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class SharedColumn:
    """A column that shares scans with other columns."""

    plan: Plan
    context: WorkContext
    metrics: JobMetrics
    #: Finished files by fragment that `take_staged` has not returned yet.
    staged: dict[int, StagedFile] = field(default_factory=dict)
    #: The column's fragments, by id.
    tasks: dict[int, FragmentTask] = field(default_factory=dict)

    @property
    def is_simple(self) -> bool:
        """Return whether the column can be shared: it computes all rows of its version, however many fail."""
        header, plan = self.plan.header, self.plan
        others = header.where or header.failed_only or header.inputs_version or header.input_source
        bounded = header.udf.error_policy.errors_allowed(header.rows_total) is not None
        return not (others or bounded or plan.migrated or plan.compared or len(plan.tasks) > _MOST_FRAGMENTS)

    def take_staged(self) -> Plan | None:
        """Return a plan of the fragments with finished files, and forget these files. Return None if there are none."""
        if not self.staged:
            return None
        done = [self.tasks[i]._replace(staged=file, missing=()) for i, file in sorted(self.staged.items())]
        self.staged.clear()
        return _with_tasks(self.plan, done)


def _with_tasks(plan: Plan, tasks: Sequence[FragmentTask]) -> Plan:
    return replace(plan, tasks=planned_tasks(tasks))


class SharedReads:
    """The fragments that several columns share.

    Args:
        columns: Columns of one job and table.
        workers: Number of fragments that are read concurrently.
    """

    def __init__(self, columns: Sequence[SharedColumn], workers: int) -> None:
        self._stop = threading.Event()
        self._work: list[tuple[FragmentTask, list[SharedColumn]]] = []
        by_fragment: dict[tuple[int, int], list[SharedColumn]] = {}
        for column in columns:
            if not column.is_simple:
                continue
            for task in planned_tasks(column.plan.tasks):
                if _is_whole(task):
                    column.tasks[task.fragment_id] = task
                    by_fragment.setdefault((column.plan.header.read_version, task.fragment_id), []).append(column)
        for (_, fragment_id), members in by_fragment.items():
            if len(members) > 1:
                self._work.append((members[0].tasks[fragment_id], members))
        self._work.sort(key=lambda item: item[0].physical_rows)
        self._most = max((len(members) for _, members in self._work), default=1)
        self._workers = min(workers, max(1, _MOST_PASSES // self._most), max(1, len(self._work)))
        self._states: dict[tuple[int, int], WorkerState] = {}
        self._readers: dict[int, FragmentReader] = {}

    @property
    def left(self) -> bool:
        """Return whether any fragments are left to read."""
        return bool(self._work) and not self._stop.is_set()

    def stop(self) -> None:
        """Ask the passes to store their rows and end. Callable from any thread."""
        self._stop.set()

    async def run(self, seconds: float) -> None:
        """Read fragments. After `seconds`, do not start to read any more."""
        until = time.monotonic() + seconds
        threads = self._workers * (self._most + 1)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="shared")
        workers = [asyncio.ensure_future(self._worker(n, pool, until)) for n in range(self._workers)]
        try:
            await asyncio.gather(*workers)
        except BaseException:
            self.stop()
            raise
        finally:
            await asyncio.gather(*workers, return_exceptions=True)
            await run_in_job_thread(pool.shutdown)

    async def _worker(self, number: int, pool: ThreadPoolExecutor, until: float) -> None:
        begun = False
        while self.left and not (begun and time.monotonic() > until):
            begun = True
            task, members = self._work.pop()
            await self._fragment(number, pool, task, members)

    async def _fragment(
        self, number: int, pool: ThreadPoolExecutor, task: FragmentTask, members: Sequence[SharedColumn]
    ) -> None:
        loop = asyncio.get_running_loop()
        context = members[0].context
        try:
            reader = await loop.run_in_executor(pool, self._reader, context)
        except LemanError:
            return  # each column's own run reports the error
        scan = SharedScan(reader, task.fragment_id, RowRange(0, task.physical_rows), len(members))
        unit_id = f"s{next(_numbers)}"
        try:
            reading = loop.run_in_executor(pool, lambda: scan.run(deletions=task.deleted_rows > 0))
            passes = [
                loop.run_in_executor(pool, self._pass, unit_id, number, column, task.fragment_id, scan, at, loop)
                for at, column in enumerate(members)
            ]
            outcomes = await asyncio.gather(*passes, return_exceptions=True)
            await reading
        except BaseException:  # otherwise other passes would wait for one that never begins
            scan.abandon()
            raise
        for column, outcome in zip(members, outcomes, strict=True):
            if isinstance(outcome, LemanError):
                column.metrics.lost(unit_id)  # the column's own run raises and reports the same error
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                _take_in(column, outcome)

    def _reader(self, context: WorkContext) -> FragmentReader:
        if context.read_version not in self._readers:
            opened = FragmentReader(context.uri, context.read_version, context.manifest)
            self._readers.setdefault(context.read_version, opened)
        return self._readers[context.read_version]

    def _pass(  # noqa: PLR0917 - what a thread is given
        self,
        unit_id: str,
        number: int,
        column: SharedColumn,
        fragment_id: int,
        scan: SharedScan,
        member: int,
        loop: asyncio.AbstractEventLoop,
    ) -> UnitOutcome:
        task = column.tasks[fragment_id]
        unit = WorkUnit(unit_id, (FragmentWork.of(task, task.missing, finish=True),))
        try:
            key = number, id(column)
            if key not in self._states:
                self._states[key] = WorkerState(column.context)
            sink = LoopSink(column.metrics.report, loop)
            return self._states[key].run(unit, sink, stopped=self._stop.is_set, reader=scan.reader_for(member))
        finally:
            scan.leave(member)


def _is_whole(task: FragmentTask) -> bool:
    """Return whether the fragment needs all its rows computed, and none of them is stored."""
    stored = task.staged is not None or task.checkpoints or task.extend_current or task.rows_failed_before
    return not stored and task.missing == (RowRange(0, task.physical_rows),)


def _take_in(column: SharedColumn, outcome: UnitOutcome) -> None:
    if outcome.failure is not None:
        column.metrics.lost(outcome.unit_id)  # the column's own run computes it, and reports the failure
        return
    column.metrics.outcome(outcome)
    for result in outcome.results:
        if result.staged is not None:
            column.staged[result.fragment_id] = result.staged


#: How long a commit waits for the commits of other columns.
_LONGEST_WAIT_SECONDS = 1.0
#: Maximum number of files in one request, which may have 4 MiB.
_MOST_FILES = 6_000


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    header: PlanHeader
    output: OutputField
    replacements: Sequence[FragmentReplacement]
    attempt: Attempt
    request_id: str
    answer: asyncio.Future[ColumnCommit]


class CommitsTogether:
    """Combine the commits of several columns: send one request once each column has asked for a commit or left.

    Args:
        commits: Sends the requests.
        told: Called with each new version and the names of the columns that it changes.
    """

    def __init__(self, commits: Commits, told: Callable[[int, Sequence[str]], object]) -> None:
        self._commits = commits
        self._told = told
        self._members = 0
        self._asked: list[_Asked] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def expect(self, members: int) -> None:
        """Set the number of columns that a commit waits for. Each of them must call `leave` later."""
        self._members = members

    def leave(self) -> None:
        """Stop waiting for one of the columns."""
        self._members -= 1
        self._send_if_all()

    async def replace_column(
        self,
        header: PlanHeader,
        output: OutputField,
        replacements: Sequence[FragmentReplacement],
        *,
        attempt: Attempt,
        request_id: str,
    ) -> ColumnCommit:
        answer: asyncio.Future[ColumnCommit] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(header, output, replacements, attempt, request_id, answer))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LONGEST_WAIT_SECONDS, self._send)
        self._send_if_all()
        return await answer

    def __getattr__(self, name: str) -> Any:
        """Forward all other calls unchanged."""
        return getattr(self._commits, name)

    def _send_if_all(self) -> None:
        if self._asked and len(self._asked) >= self._members:
            self._send()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        asked, self._asked = self._asked, []
        for part in _parts([one for one in asked if not one.answer.done()]):
            task = asyncio.create_task(self._answer(part))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        """Send a request, and pass its result or error to each column."""
        try:
            await self._submit(asked)
        except BaseException as error:
            for one in asked:
                _refuse(one, error)
            if not isinstance(error, Exception):
                raise

    async def _submit(self, asked: Sequence[_Asked]) -> None:
        if len(asked) > 1:
            columns = [(one.header, one.output, one.replacements) for one in asked]
            ids = "\n".join(one.request_id for one in asked)
            request_id = hashlib.blake2b(ids.encode(), digest_size=16).hexdigest()
            try:
                answers = await self._commits.replace_columns(columns, attempt=asked[0].attempt, request_id=request_id)
            except LemanError as error:
                if isinstance(error, Unavailable) or error.reason == ATTEMPT_FENCED:
                    raise
                # Only one of the columns may have caused the error, so submit each column by itself. A submission finds
                # in the table what was committed anyway.
            else:
                for one, answer in zip(asked, answers, strict=True):
                    _settle(one, answer)
                self._tell(asked, answers)
                return
        for one in asked:
            try:
                answer = await self._commits.replace_column(
                    one.header, one.output, one.replacements, attempt=one.attempt, request_id=one.request_id
                )
            except LemanError as error:
                _refuse(one, error)
            else:
                _settle(one, answer)
                self._tell([one], [answer])

    def _tell(self, asked: Sequence[_Asked], answers: Sequence[ColumnCommit]) -> None:
        names = [
            one.output.name
            for one, answer in zip(asked, answers, strict=True)
            if any(outcome.committed for outcome in answer.outcomes)
        ]
        version = max(answer.version for answer in answers)
        if version and names:
            self._told(version, names)


def _settle(one: _Asked, answer: ColumnCommit) -> None:
    if not one.answer.done():
        one.answer.set_result(answer)


def _refuse(one: _Asked, error: BaseException) -> None:
    if not one.answer.done():
        one.answer.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())


def _parts(asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """Divide columns among requests of the allowed size."""
    part: list[_Asked] = []
    files = 0
    for one in asked:
        if part and files + len(one.replacements) > _MOST_FILES:
            yield part
            part, files = [], 0
        part.append(one)
        files += len(one.replacements)
    if part:
        yield part
