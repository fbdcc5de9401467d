"""The commit queues. Each commits to one table in order, with one Lance version for as many requests as possible.

Requests that arrive during a commit are combined into the next one, in one version for all columns that do not read
each other. While files of a table are removed, no commit to it runs (`Gate`). This module also records metrics and
traces of commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from leman_coordinator.commits import group_commit, preconditions
from leman_coordinator.commits import view_changes as views
from leman_coordinator.commits.commit_requests import (
    AddColumnsRequest,
    ApplyDeltaRequest,
    BeginAttemptRequest,
    BindColumnsRequest,
    ChangeColumnsRequest,
    CommitRequest,
    CommitResult,
    CreatePlaceholdersRequest,
    CreateTableRequest,
    FillPlaceholdersRequest,
    Outcome,
    ReplaceRequest,
    Status,
    TableRequest,
)
from leman_coordinator.commits.group_commit import Candidate, FileChecks
from leman_coordinator.commits.preconditions import Rejection
from leman_coordinator.commits.view_changes import Prepared, ViewChecks
from leman_coordinator.lance_io.table_handle import CommitConflict, CommitUnclear, TableHandle
from leman_coordinator.tables import table_changes
from leman_core.model.service_errors import (
    INTERNAL_BUG,
    Aborted,
    DataLoss,
    Internal,
    InvalidArgument,
    LemanError,
    Unavailable,
)
from leman_core.server.admission import Limiter
from leman_core.server.blocking import BlockingPool
from leman_core.storage.lance_tables import incarnation_at
from leman_core.telemetry import instruments, tracing


@contextlib.contextmanager
def measure_request(request: CommitRequest) -> Iterator[Callable[[CommitResult], CommitResult]]:
    """Record the duration and the outcomes of a request. Call the yielded function with the result."""
    begun, reason = time.perf_counter(), INTERNAL_BUG
    try:
        yield _fragments
        reason = ""
    except LemanError as error:
        reason = error.reason
        raise
    except asyncio.CancelledError:
        reason = "CANCELLED"
        raise
    finally:
        told = {instruments.OPERATION: type(request).__name__.removesuffix("Request")}
        told |= {instruments.ERROR_TYPE: reason} if reason else {}
        instruments.COMMIT_DURATION.record(time.perf_counter() - begun, told)


@contextlib.contextmanager
def spans_of_turn(taken_at: Callable[[], int]) -> Iterator[None]:
    """Record trace spans of the time that a request waits in the queue, and of its processing.

    Args:
        taken_at: Returns when the processing began, in nanoseconds since the epoch, or 0 if it did not begin.
    """
    begun = time.time_ns()
    try:
        yield
    finally:
        asked, now = tracing.current_span(), time.time_ns()
        taken = taken_at() or now
        tracing.record_span("queue", asked, begun, taken, {})
        tracing.record_span("install", asked, taken, now, {})


def _fragments(result: CommitResult) -> CommitResult:
    for outcome in result.outcomes:
        told = {instruments.OUTCOME: outcome.status.value}
        told |= {instruments.ERROR_TYPE: outcome.reason} if outcome.status is Status.REJECTED else {}
        instruments.COMMIT_FRAGMENTS.add(1, told)
    return result


class Gate:
    """A lock for one event loop that many shared users or one exclusive user may hold.

    While an exclusive user waits, later shared users wait too.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._turn = asyncio.Lock()
        self._empty = asyncio.Event()
        self._empty.set()

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Hold the lock as a shared user during the block; wait for exclusive users first."""
        async with self._turn:
            self._inside += 1
            self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock exclusively during the block; wait for all other users first."""
        async with self._turn:
            await self._empty.wait()
            yield


Subject = TypeVar("Subject")
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_log = structlog.get_logger(__name__)

#: How often to try installing several columns in one version before installing them one by one.
_TRIES_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the commit queues."""

    version_conflict_max_retries: int = 10
    #: The limit for one table.
    max_queued_requests: int = 256
    #: A queue that is idle for this long ends, and closes its table.
    idle_seconds: float = 300.0
    longest_backoff_seconds: float = 1.0


@dataclass(slots=True, eq=False)
class _Ticket:
    request: CommitRequest
    answer: asyncio.Future[CommitResult]
    candidates: Sequence[Candidate] = ()
    prepared: Prepared | None = None
    #: When its processing began, in nanoseconds since the epoch, or 0.
    taken_at: int = 0

    def settle(self, incarnation: str) -> None:
        """Answer the request if the outcome of every fragment is known."""
        decisions = [c.decision for c in self.candidates]
        if not decisions or any(v is None for v in decisions):
            return
        error = next((v for v in decisions if isinstance(v, LemanError)), None)
        if error is not None:
            self.fail(error)
        else:
            outcomes = tuple(v for v in decisions if isinstance(v, Outcome))
            version = max(o.version for o in outcomes)
            took = max(candidate.manifest_seconds for candidate in self.candidates)
            written = [c.without_indexes for c in self.candidates if c.manifest_seconds]
            self.succeed(
                CommitResult(
                    version,
                    outcomes,
                    manifest_seconds=took,
                    without_indexes=bool(written) and all(written),
                    incarnation=incarnation,
                )
            )

    def succeed(self, result: CommitResult) -> None:
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: LemanError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class CommitQueue:
    """The commits of one table, in order."""

    def __init__(
        self, uri: str, limits: Limits, commits: BlockingPool, checks: FileChecks, view_checks: ViewChecks
    ) -> None:
        self._uri = uri
        self._limits = limits
        self._commits = commits
        self._checks = checks
        self._view_checks = view_checks
        self._table: TableHandle | None = None
        #: The table's incarnation in the last step.
        self._incarnation = ""
        self._queue: list[_Ticket] = []
        self._arrived = asyncio.Event()
        self._open = Limiter(
            limits.max_queued_requests,
            "COMMIT_QUEUE_FULL",
            lambda used: f"{used} requests wait for table {uri}; try again later",
        )

    async def submit(self, request: CommitRequest) -> CommitResult:
        """Check the request's files outside the queue, wait for its turn, and return its result.

        Raises:
            ResourceExhausted: COMMIT_QUEUE_FULL – `max_queued_requests` already wait for this table.
            InvalidArgument: MISSING_FIELD – a replacement has no fragment.
            LemanError: see `CommitSubmissionService.SubmitCommit` (protos/leman/internal/v1/submission.proto).
        """
        with self._open.acquire():
            ticket = _Ticket(request, asyncio.get_running_loop().create_future())
            with tracing.span("check files"):
                await self._check(ticket)
            self._queue.append(ticket)
            self._arrived.set()
            with spans_of_turn(lambda: ticket.taken_at):
                return await ticket.answer

    async def _check(self, ticket: _Ticket) -> None:
        request = ticket.request
        if isinstance(request, ReplaceRequest):
            for column in request.columns:
                _check_fragments(column)
            found = await asyncio.gather(*(self._checks.candidates(column) for column in request.columns))
            ticket.candidates = [candidate for column in found for candidate in column]
        elif isinstance(request, CreatePlaceholdersRequest | FillPlaceholdersRequest | ApplyDeltaRequest):
            ticket.prepared = await self._view_checks.prepared(request)

    @property
    def open(self) -> int:
        """The number of unanswered requests."""
        return self._open.used

    def forget_table(self) -> None:
        """Close the table, so that the next request reopens it, because another table may have replaced it.

        No request may be running.
        """
        self._table = None

    async def serve(self) -> None:
        """Commit the requests as they arrive, and return after `idle_seconds` without requests."""
        while True:
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    await self._arrived.wait()
            except TimeoutError:
                if self._open.used:
                    continue
                return
            self._arrived.clear()
            tickets, self._queue = self._queue, []
            now = time.time_ns()
            for ticket in tickets:
                ticket.taken_at = now
            try:
                await self._commit(tickets)
            except Exception as error:  # noqa: BLE001 -- every waiting caller must get an answer
                for ticket in tickets:
                    ticket.fail(_failure(error))

    async def _commit(self, tickets: Sequence[_Ticket]) -> None:
        for ticket in tickets:
            if isinstance(ticket.request, AddColumnsRequest):
                await self._do(ticket, self._change_schema("AddColumns", group_commit.add_columns, ticket.request))
            elif isinstance(ticket.request, BeginAttemptRequest):
                await self._do(ticket, self._change_schema("BeginAttempt", group_commit.begin_attempt, ticket.request))
            elif isinstance(ticket.request, BindColumnsRequest):
                await self._do(ticket, self._change_schema("BindColumns", group_commit.bind_columns, ticket.request))
            elif isinstance(ticket.request, TableRequest):
                await self._do(ticket, self._change_table(ticket.request))
            elif ticket.prepared is not None:
                await self._do(ticket, self._change_view(ticket.prepared))
        for turn in commit_turns([candidate for ticket in tickets for candidate in ticket.candidates]):
            await self._install(turn)
            for ticket in tickets:
                ticket.settle(self._incarnation)

    async def _install(self, turn: Sequence[Candidate]) -> None:
        """Install the candidates' files, with retries, until the outcome of each is known.

        If several columns cannot be installed in one version, they are installed one by one.
        """
        columns = _by_column(turn)
        if len(columns) > 1:
            try:
                await self._retrying(group_commit.install_candidates, turn, _TRIES_TOGETHER)
            except Exception as error:  # noqa: BLE001 -- the error occurs again with its column
                _log.info("columns are committed apart", uri=self._uri, columns=len(columns), error=str(error))
            for column in columns:
                if any(candidate.decision is None for candidate in column):
                    await self._install(column)
            return
        try:
            await self._retrying(group_commit.install_candidates, turn)
        except CommitConflict as conflict:
            lost = Rejection("CONFLICT", f"Other writers changed the table at every try: {conflict}")
            for candidate in turn:
                candidate.decision = candidate.decision or preconditions.rejected_outcome(candidate, lost)
        except LemanError as error:
            await self._look_once_more(turn)
            _close_all(turn, error)
        except Exception as error:  # noqa: BLE001 -- the waiting callers get any error
            await self._look_once_more(turn)
            _close_all(turn, _failure(error))

    async def _look_once_more(self, turn: Sequence[Candidate]) -> None:
        with contextlib.suppress(Exception):  # the outcome then stays unknown
            await self._commits.run(self._step, group_commit.decide_without_commit, turn)

    async def _do(self, ticket: _Ticket, work: Awaitable[CommitResult]) -> None:
        """Answer the ticket with the result or error of the work."""
        try:
            result = await work
            ticket.succeed(replace(result, incarnation=self._incarnation))
        except CommitConflict as conflict:
            ticket.fail(Aborted("CONFLICT", f"Other writers changed the table at every try: {conflict}"))
        except LemanError as error:
            ticket.fail(error)
        except Exception as error:  # noqa: BLE001 -- the waiting caller gets any error
            ticket.fail(_failure(error))

    async def _change_schema(
        self, operation: str, step: Callable[[TableHandle, Subject], int], request: Subject
    ) -> CommitResult:
        return CommitResult(await self._retrying(step, request), operation=operation)

    async def _change_view(self, work: Prepared) -> CommitResult:
        if isinstance(work.request, CreatePlaceholdersRequest) and work.request.create:
            return await self._repeated(lambda: self._create(views.create_new_view, work))
        return await self._retrying(views.change_view, work)

    async def _change_table(self, request: TableRequest) -> CommitResult:
        if isinstance(request, CreateTableRequest):
            return await self._repeated(lambda: self._create(table_changes.create_new_table, request))
        if isinstance(request, ChangeColumnsRequest):
            return await self._retrying(table_changes.change_columns, request)
        return await self._retrying(table_changes.change_rows, request)

    async def _retrying(
        self, step: Callable[[TableHandle, Subject], Result], subject: Subject, tries: int = 0
    ) -> Result:
        return await self._repeated(lambda: self._step(step, subject), tries)

    async def _repeated(self, work: Callable[[], Result], tries: int = 0) -> Result:
        """Run the work, and retry it on conflicts with other writers, at most `tries` times (0: the default number).

        If a commit may have been made, the next try reads the table to find out. If that read fails, it is retried too.
        """
        unclear: CommitUnclear | None = None
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((CommitConflict, CommitUnclear)),
            stop=stop_after_attempt(tries or self._limits.version_conflict_max_retries + 1),
            wait=wait_random_exponential(multiplier=0.01, max=self._limits.longest_backoff_seconds),
            reraise=True,
        ):
            with attempt:
                try:
                    return await self._commits.run(work)
                except CommitUnclear as error:
                    unclear = error
                    raise
                except (Unavailable, DataLoss) as error:
                    if unclear is None:
                        raise
                    raise CommitUnclear(f"{unclear}, and then: {error}") from error
        raise AssertionError("the loop returns or raises")

    def _step(self, step: Callable[[TableHandle, Subject], Result], subject: Subject) -> Result:
        """Run one step on the open table, in a thread.

        After any error other than a conflict, the next step reopens the table.
        """
        try:
            self._table = self._table or TableHandle(self._uri)
            result = _without_panics(step, self._table, subject)
            self._incarnation = self._table.incarnation
            return result
        except CommitConflict:
            raise
        except Exception:
            self._table = None
            raise

    def _create(self, step: Callable[[Subject], Result], subject: Subject) -> Result:
        """Create a table in a thread, and keep it open in place of the earlier table at that uri."""
        self._table = None
        result = _without_panics(step, subject)
        self._table = TableHandle(self._uri)
        self._incarnation = self._table.incarnation
        return result


def commit_turns(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    """Yield groups of candidates, in order of arrival. Each group can be committed as one version.

    A fragment gets at most one file of each column in a group. No column of a group reads another column of the group:
    its file would have been computed from values that the same commit replaces.
    """
    waiting = list(candidates)
    while waiting:
        turn: dict[tuple[tuple[int, ...], int], Candidate] = {}
        columns = _Together()
        left = []
        for candidate in waiting:
            key = candidate.request.output.field.field_ids, candidate.replacement.fragment_id
            if columns.takes(candidate.request) and turn.setdefault(key, candidate) is candidate:
                continue
            left.append(candidate)
        yield list(turn.values())
        waiting = left


class _Together:
    """A group of columns that can be written in one version."""

    def __init__(self) -> None:
        self._inputs: dict[tuple[int, ...], set[int]] = {}
        self._left_out: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()

    def takes(self, request: ReplaceRequest) -> bool:
        """Return whether the request's column is in the group, or can join it."""
        output, read = request.output.field.field_ids, request.input_field_ids
        if (output, read) in self._left_out:
            return False
        known = self._inputs.get(output)
        if known is not None and known.issuperset(read):
            return True
        others = {column: inputs for column, inputs in self._inputs.items() if column != output}
        # Without input_field_ids the inputs of the column are unknown.
        fits = all(
            read and inputs and inputs.isdisjoint(output) and not set(column).intersection(read)
            for column, inputs in others.items()
        )
        if fits:
            self._inputs.setdefault(output, set()).update(read)
        else:
            self._left_out.add((output, read))
        return fits


def _by_column(turn: Iterable[Candidate]) -> list[list[Candidate]]:
    columns: dict[tuple[int, ...], list[Candidate]] = {}
    for candidate in turn:
        columns.setdefault(candidate.request.output.field.field_ids, []).append(candidate)
    return list(columns.values())


def _without_panics(step: Callable[Arguments, Result], *subject: Arguments.args, **named: Arguments.kwargs) -> Result:
    """Run a step, and raise a panic in Lance's Rust as a RuntimeError.

    A panic is not an Exception, so it would end the commit queue.
    """
    try:
        return step(*subject, **named)
    except Exception:
        raise
    except BaseException as panic:
        raise RuntimeError(f"Lance panicked: {panic}") from panic


def _check_fragments(request: ReplaceRequest) -> None:
    """Raise InvalidArgument (MISSING_FIELD) for a request without fragments.

    Such a request would wait forever, because a request is answered when its last fragment is decided.
    """
    if not request.replacements:
        raise InvalidArgument(
            "MISSING_FIELD", "The request has no fragment to commit: add at least one", field="replace_column.fragments"
        )


def _close_all(turn: Sequence[Candidate], error: LemanError) -> None:
    for candidate in turn:
        candidate.decision = candidate.decision or error


def _failure(error: Exception) -> LemanError:
    """Return the error for waiting callers after a failure that leaves the outcome of their request open.

    It is COMMIT_UNKNOWN if the commit may have been made. Any other failure is logged, and becomes INTERNAL_BUG.
    """
    if isinstance(error, CommitUnclear):
        return Unavailable(
            "COMMIT_UNKNOWN",
            f"It is not known whether the commit was made: {error}. Send the same request again.",
        )
    _log.error("commit failed", exc_info=error)
    return Internal("INTERNAL_BUG", "The commit failed because of a bug in Leman: its log has the error")


COMMIT_THREADS = 8
CHECK_THREADS = 8
#: The commit queues limit the waiting requests. A pool that refused one would lose the outcome of a commit.
UNBOUNDED = 1 << 40


class CommitQueues:
    """All commit queues of a process. A queue is created on the first write to its table, and ends when idle."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._commits = BlockingPool(COMMIT_THREADS, max_queued=UNBOUNDED, name="commit")
        self._checks = BlockingPool(CHECK_THREADS, max_queued=UNBOUNDED, name="check")
        self._queues: dict[str, CommitQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates: WeakValueDictionary[str, Gate] = WeakValueDictionary()
        instruments.COMMIT_QUEUE.show(lambda: [(float(sum(queue.open for queue in list(self._queues.values()))), {})])

    async def submit(self, request: CommitRequest) -> CommitResult:
        with measure_request(request) as take:
            async with self._gate(request.uri).together():
                return take(await self._queue(request).submit(request))

    async def holds(self, uri: str, result: CommitResult) -> bool:
        """Return whether the table at `uri` is still the one that a result is about.

        Raises:
            LemanError: `incarnation_at` failed, so the answer is unknown.
        """
        place = result.place or uri
        if not result.is_about(place, uri):
            return True
        now = await self._checks.run(incarnation_at, place)
        return now is not None and (not result.incarnation or now == result.incarnation)

    def forget(self, uri: str) -> None:
        """Close a table that was dropped or replaced, so that its next request reopens it. Call it inside `alone`."""
        if uri in self._queues:
            self._queues[uri].forget_table()

    @contextlib.asynccontextmanager
    async def alone(self, uri: str) -> AsyncIterator[None]:
        """Exclude checks and commits of a table during the block: a checked file must not vanish before its commit."""
        async with self._gate(uri).alone():
            yield

    def _gate(self, uri: str) -> Gate:
        return self._gates.setdefault(uri, Gate())

    def _queue(self, request: CommitRequest) -> CommitQueue:
        queue = self._queues.get(request.uri)
        if queue is None:
            uri = request.uri
            files, view_files = (
                FileChecks(uri, self._checks, CHECK_THREADS),
                ViewChecks(uri, self._checks, CHECK_THREADS),
            )
            queue = self._queues[uri] = CommitQueue(uri, self._limits, self._commits, files, view_files)
            task = asyncio.create_task(self._serve(uri, queue))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return queue

    @property
    def tables(self) -> frozenset[str]:
        """The uris of the tables that have a commit queue now."""
        return frozenset(self._queues)

    async def close(self) -> None:
        """End the commit queues at once. First wait for running commits with `RequestMemory.settled`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._commits.close()
        self._checks.close()

    async def _serve(self, uri: str, queue: CommitQueue) -> None:
        try:
            await queue.serve()
        finally:  # no await since the queue was found idle, so no request can have arrived
            del self._queues[uri]


def check_draining(draining: asyncio.Event) -> None:
    """Refuse a call once the process has been asked to stop.

    Raises:
        Unavailable: DRAINING.
    """
    if draining.is_set():
        raise Unavailable("DRAINING", "The commit coordinator is stopping: send the same call again")
