"""Preview functions: try a function on a few rows, in a separate pool of function processes, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol, TypeVar

import msgspec
import psutil
import pyarrow as pa
import structlog

from leman._format.stored_functions import ErrorAction, UdfDefinition, UdfKind
from leman_core.functions.arrow_values import concatenate
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model import service_errors as error_tree
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, PlanHeader
from leman_core.model.row_positions import RowAddress
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, LemanError, ResourceExhausted
from leman_core.model.work import RowError, WorkContext
from leman_core.process import environment
from leman_core.server.admission import Limiter
from leman_core.server.callers import check_code
from leman_core.settings import Settings
from leman_executor.jobs.job_environment import JobEnvironment, task_slots_for
from leman_executor.jobs.work_context import check_env_usable, check_may_set_env, work_context
from leman_executor.scheduling.crash_tracker import TIMEOUT_NAMES, WORKER_LOST_NAMES
from leman_executor.worker.function_pool import MOST_BYTES, NONSENSE, SENT_NONSENSE, Answer, Output, Request
from leman_executor.worker.preview_messages import (
    FAILED,
    FAILS,
    Attempted,
    Called,
    Calling,
    Overran,
    PlacedRow,
    PreviewMessage,
    PreviewTask,
    Printed,
    Refused,
    RowCost,
    Rows,
    SetUp,
    from_arrow_stream,
)
from leman_executor.worker.worker_link import LENGTH_BYTES, framed

_log = structlog.get_logger(__name__)

#: Seconds without a preview after which the processes end, to free memory.
_IDLE_SECONDS = 300.0
_END_SECONDS = 2.0
#: While a process is silent, seconds between checks for a suspended pool, which could not report that the process
#: ended.
_LOOK_SECONDS = 1.0
_PATH = "PYTHONPATH"
#: Created at import, in one thread: msgspec crashes if two threads are the first to decode a type.
_answers: msgspec.json.Decoder[Output | Answer] = msgspec.json.Decoder(Output | Answer)
_messages: msgspec.json.Decoder[PreviewMessage] = msgspec.json.Decoder(PreviewMessage)


_T = TypeVar("_T")


class ProcessEnded(Exception):
    """The function's process ended before its task did, or sent an unreadable message. The error's text says which."""


class PreviewPool:
    """The pool of preview processes. It starts with the first preview, and ends after some time without previews.

    Args:
        python: The Python interpreter for functions.
        variables: Environment variables that functions get in addition to those of this process.
        passed: Patterns of names. Functions get the variables of this process that match, in addition to those that
            function processes need.
    """

    def __init__(
        self, python: str = "", variables: Mapping[str, str] | None = None, passed: Sequence[str] = ()
    ) -> None:
        self._python = python or sys.executable
        self._variables = dict(variables or {})
        self._passed = tuple(passed)
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        #: Whether a function process of this pool has ever answered. If the pool ends after that, a function ended it.
        self._answered = False
        self._running = 0
        self._idle: asyncio.TimerHandle | None = None

    async def run(self, task: str, preview_id: str) -> AsyncGenerator[PreviewMessage]:
        """Run a task in a new process, which imports modules as they are now. Yield its messages.

        The process and all its children end with the task, or when the caller stops iterating.

        Args:
            task: A `PreviewTask` as JSON.
            preview_id: The name of the preview in the log.

        Raises:
            ProcessEnded: The process ended before its task did.
            FailedPrecondition: WORKER_PYTHON_UNUSABLE – the pool cannot start.
            ResourceExhausted: TOO_MANY_CALLS – the pool is busy.
        """
        self._running += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            reader, writer = await self._connect(preview_id)
            try:
                writer.write(framed(Request(task, b"", preview_id)))
                await writer.drain()
                while isinstance(message := await self._next(reader), Output):
                    yield _decoded(_messages, message.content)
                if message.error:
                    raise ProcessEnded(message.error)
            except ConnectionError:
                raise await self._gone() from None
            finally:
                writer.transport.abort()  # the pool then ends what the task left running
        finally:
            self._leave()

    async def stop(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if process is not None:
            await asyncio.to_thread(_end, process)

    async def _connect(self, preview_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = self._ask(preview_id)
        try:
            return await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise

    def _ask(self, preview_id: str) -> socket.socket:
        for _ in range(2):
            requests = self._started()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with theirs:
                try:
                    socket.send_fds(requests, [preview_id.encode()], [theirs.fileno()])
                except BlockingIOError:  # the pool is busy with other requests
                    ours.close()
                    raise ResourceExhausted(
                        "TOO_MANY_CALLS", "The pool of preview processes is busy: try again later"
                    ) from None
                except OSError:  # the pool has died meanwhile
                    ours.close()
                    self._forget()
                    continue
                return ours
        raise self._unusable()

    def _started(self) -> socket.socket:
        """Return the socket of a running pool. Start a pool if there is none.

        Call this in the event loop's thread, because the pool ends with the thread that started it.
        """
        if self._requests is not None and self._process is not None and self._process.poll() is None:
            if not _is_stopped(self._process):
                return self._requests
            _log.warning("the pool of preview processes was suspended by a signal: another one is started")
        self._forget()
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            try:
                self._process = subprocess.Popen(
                    [self._python, "-P", "-m", "leman_executor.jobs.preview_process", str(theirs.fileno())],
                    env=_environment(self._variables, self._passed),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            except OSError:
                ours.close()
                raise self._unusable() from None
        self._requests = ours
        return ours

    async def _next(self, reader: asyncio.StreamReader) -> Output | Answer:
        try:
            length = int.from_bytes(await self._read(reader, LENGTH_BYTES), "big")
            if length > MOST_BYTES:
                raise ProcessEnded(SENT_NONSENSE)
            message = _decoded(_answers, await self._read(reader, length))
        except asyncio.IncompleteReadError:
            raise await self._gone() from None
        self._answered = True
        return message

    async def _read(self, reader: asyncio.StreamReader, size: int) -> bytes:
        pool = self._process
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    return await reader.readexactly(size)  # partial data stays buffered for the next call
            if pool is not None and _is_stopped(pool):
                raise ProcessEnded("a signal suspended the pool of preview processes, and the function's process ended")

    async def _gone(self) -> Exception:
        """Return the error for a broken connection: the pool has ended, or only the process has."""
        process = self._process
        if process is not None and not self._answered:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _END_SECONDS)  # the connection breaks before the pool has ended
        if process is not None and process.poll() is not None:
            answered = self._answered
            self._forget()
            if not answered:
                return self._unusable()
        return ProcessEnded("the function's process ended")

    def _unusable(self) -> FailedPrecondition:
        return FailedPrecondition(
            "WORKER_PYTHON_UNUSABLE",
            f"Previews cannot run: {self._python} cannot run function processes. The executor's log says why",
        )

    def _forget(self) -> None:
        if self._requests is not None:
            self._requests.close()
        process, self._requests, self._process = self._process, None, None
        self._answered = False
        if process is not None and process.poll() is None:
            asyncio.get_running_loop().run_in_executor(None, _end, process)

    def _leave(self) -> None:
        self._running -= 1
        if not self._running:
            self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        if not self._running and self._process is not None:
            _log.info("no preview for a while: the pool is ended")
            self._forget()


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process is suspended by a signal, which a function may have sent to its parent."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children, even if the process is suspended.

    Wait for its end, so that no zombie remains.
    """
    process.terminate()
    process.send_signal(signal.SIGCONT)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    try:
        return decoder.decode(data)
    except NONSENSE:
        raise ProcessEnded(SENT_NONSENSE) from None


def _environment(variables: Mapping[str, str], passed: Sequence[str]) -> dict[str, str]:
    """Return the environment of the pool; see `FunctionPool`. Import paths are joined."""
    inherited = environment.for_functions(os.environ, passed)
    dumps = {environment.CORE_DUMPS: "1"} if environment.CORE_DUMPS in os.environ else {}
    paths = [given[_PATH] for given in (variables, inherited) if given.get(_PATH)]
    return {**inherited, **dumps, **variables, **({_PATH: os.pathsep.join(paths)} if paths else {})}


#: An attempt number after which a row is not retried, so that its error is final.
_LAST_ATTEMPT = 1 << 30


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A row and its result. `attempted` is None if the function has not returned for the row."""

    place: PlacedRow
    attempted: Attempted | None = None
    #: The cost of the row in seconds; None if the function was not called with it.
    seconds: float | None = None


@dataclass(slots=True)
class PreviewRecord:
    """The state of a running preview. Pure."""

    udf: UdfDefinition
    clock: Callable[[], float] = monotonic
    found: Rows | None = None
    set_up_seconds: float | None = None
    printed: str = ""
    printed_bytes: int = 0
    timed_out: bool = False
    #: The next row for which the function is called. Rows before `alone_before` are computed one at a time.
    next_row: int = 0
    alone_before: int = 0
    _tried: dict[int, tuple[Attempted, float]] = field(default_factory=dict)
    _values: dict[int, pa.Array] = field(default_factory=dict)
    _calls: list[tuple[int, float]] = field(default_factory=list)
    _calling: tuple[int, int, float] | None = None
    _overran: float = 0.0
    _row_cost: float | None = None
    _printed_before: int = 0

    def take(self, message: PreviewMessage) -> None:
        """Record a message from a process.

        Raises:
            LemanError: The preview cannot continue.
        """
        match message:
            case Rows():
                self.found = message
            case SetUp():
                self.set_up_seconds = message.seconds if self.set_up_seconds is None else self.set_up_seconds
            case Calling():
                self._calling = (message.first, message.count, self.clock())
            case Called():
                self._called(message)
            case Overran():
                self._overran = message.seconds
            case RowCost():
                self._row_cost = message.seconds
            case Printed():
                self.printed += message.text
                self.printed_bytes = self._printed_before + message.total
            case Refused():
                kind: type[LemanError] = getattr(error_tree, message.kind, error_tree.Internal)
                error = kind(message.reason, message.message)
                error.facts = dict(message.facts)
                raise error

    def process_ended(self, how: str) -> None:
        """Record that a process ended while it computed rows.

        If the process was computing a single row, that row fails, and the next process continues after it. If it was
        computing several rows, the next process computes them one by one.

        Raises:
            FailedPrecondition: UDF_NOT_LOADABLE – the process ended while it set up the function; WORKER_LOST – it
                ended while it computed no row.
        """
        calling, self._calling = self._calling, None
        self._printed_before = self.printed_bytes
        if calling is None:
            raise self._ended_without_row(how)
        first, count, since = calling
        if count > 1:  # it is unknown which of the rows caused the end
            self.next_row, self.alone_before = first, first + count
            return
        self._tried[first] = (Attempted(*self._lost(first, how)), self.clock() - since)
        self._overran = 0.0
        self.next_row = first + 1

    def time_is_over(self, seconds: float) -> None:
        """Record that the time limit of the preview has passed.

        Raises:
            FailedPrecondition: UDF_NOT_LOADABLE – the function is still being set up.
        """
        self.timed_out = True
        if self.found is not None and self.found.rows and self.set_up_seconds is None:
            raise FailedPrecondition(
                "UDF_NOT_LOADABLE",
                f"UDF '{self.udf.name}' was not set up within the {seconds:g} s of the preview. Allow more time, or "
                "let it load less",
            )

    def rows(self) -> list[TriedRow]:
        tried = []
        for at, place in enumerate(self.found.rows if self.found is not None else ()):
            attempted, seconds = self._tried.get(at, (None, None))
            if attempted is None and self._calling is not None:
                first, count, since = self._calling
                seconds = (self.clock() - since) / count if first <= at < first + count else None
            tried.append(TriedRow(place, attempted, seconds))
        return tried

    def outputs(self, output: pa.DataType) -> pa.Array:
        """Return the outputs of all rows. A row without an output, or with one too large to send, gets NULL."""
        rows = len(self.found.rows) if self.found is not None else 0
        storage = output.storage_type if isinstance(output, pa.BaseExtensionType) else output
        return concatenate([self._values.get(at, pa.nulls(1, storage)) for at in range(rows)] or [pa.nulls(0, storage)])

    @property
    def fails(self) -> bool:
        """Return whether the errors found so far would have ended a backfill."""
        return any(attempted.state == FAILS for attempted, _ in self._tried.values())

    def too_large(self) -> bool:
        """Return whether some outputs were too large to send."""
        return any(attempted.output and at not in self._values for at, (attempted, _) in self._tried.items())

    def seconds_per_row(self) -> float | None:
        """Return the cost of a row. If there were several calls, the first does not count, as it includes setup."""
        if self._row_cost is not None:
            return self._row_cost
        if self.udf.kind is UdfKind.SQL or not self._calls:
            return None
        calls = self._calls[1:] or self._calls
        return sum(seconds for _, seconds in calls) / sum(rows for rows, _ in calls)

    def _called(self, message: Called) -> None:
        rows = len(message.rows)
        self._calling = None
        self._calls.append((rows, message.seconds))
        values = from_arrow_stream(message.values).column(0)
        for at, attempted in enumerate(message.rows):
            self._tried[message.first + at] = (attempted, message.seconds / rows)
            if len(values):
                self._values[message.first + at] = values.slice(at, 1)
        self.next_row = message.first + rows

    def _lost(self, row: int, how: str) -> tuple[str, str, RowError]:
        """Return the failure of a row that ended its process, according to the function's error policy."""
        if self._overran:
            kind, names = "UdfTimeout", TIMEOUT_NAMES
            message = f"a call took longer than the timeout of {self._overran:g} s"
        else:
            kind, names = "WorkerLost", WORKER_LOST_NAMES
            message = f"{how}: the function may use too much memory, end its process, or crash in native code"
        place = self.found.rows[row] if self.found is not None else PlacedRow(-1, -1, -1, ())
        failure = RowError(
            row_address=RowAddress(place.fragment_id, place.offset).to_int(),
            error_type=kind,
            error_message=message,
            traceback="",
            attempt=1,
        )
        rule = self.udf.error_policy.rule_for(names, message, _LAST_ATTEMPT)
        skips = rule is not None and rule.action is ErrorAction.SKIP
        return FAILED if skips else FAILS, "", failure

    def _ended_without_row(self, how: str) -> FailedPrecondition:
        if self.found is not None and self.set_up_seconds is None:
            return FailedPrecondition(
                "UDF_NOT_LOADABLE",
                f"UDF '{self.udf.name}' could not be set up: {how} meanwhile. Correct its setup",
            )
        return FailedPrecondition("WORKER_LOST", f"The preview cannot continue: {how} while it computed no row")


#: Maximum number of concurrent previews in one executor. Each has its own process.
_MOST_AT_ONCE = 8


class PreviewPlanner(Protocol):
    """The part of the planner that previews need."""

    async def plan_preview(self, message: Any) -> PlanHeader:
        """Return what a preview reads and which function it runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """A request for a preview; see `protos/leman/v1/jobs.proto`."""

    #: The request message for the planner, without `env`.
    message: Any
    database: str
    table: str
    column: str
    rows: int
    seconds: float
    #: The number of concurrent calls; 0 for as many as possible.
    concurrency: int
    bundle: bytes = b""
    #: The entrypoint of a function whose code comes with the request, to be checked against a policy.
    entrypoint: str = ""
    addresses: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewResult:
    """The result of a preview."""

    header: PlanHeader
    record: PreviewRecord
    #: The type of the column to which workers convert values.
    output: pa.Schema
    workers: int


class Previews:
    """The previews of one executor."""

    def __init__(self, planner: PreviewPlanner, services: JobEnvironment, pool: PreviewPool) -> None:
        self._planner = planner
        self._services = services
        self._pool = pool
        self._policy = FunctionPolicy.of(services.settings.udf)
        self._running = Limiter(
            _MOST_AT_ONCE,
            "TOO_MANY_CALLS",
            lambda used: f"{used} previews are running, as many as are allowed: try again later",
        )

    async def run(self, request: PreviewRequest) -> PreviewResult:
        """Try a function on rows. If this is cancelled, the process ends.

        Raises:
            LemanError: See `JobService.PreviewFunction` (protos/leman/v1/jobs.proto).
        """
        check_sent_code(request, self._policy)
        check_may_set_env(request.env, self._policy)
        with self._running.acquire():
            header = await self._planner.plan_preview(request.message)
            check_env_usable(request.env, [header.udf])
            workers = task_slots_for(header.udf, request.concurrency, self._services).count
            context = _context(header, request, self._services.settings)
            task = PreviewTask(context=msgspec.json.encode(context), rows=request.rows, bundle=request.bundle)
            record = await self._try(header.udf, task, request.seconds)
        output = pa.ipc.read_schema(pa.py_buffer(context.output_schema))
        return PreviewResult(header=header, record=record, output=output, workers=workers)

    async def _try(self, udf: UdfDefinition, task: PreviewTask, seconds: float) -> PreviewRecord:
        """Compute the rows. If a process ends before that, a new one continues with the next row."""
        record, preview_id = PreviewRecord(udf), f"preview-{uuid.uuid4().hex[:12]}"
        deadline = time.monotonic() + seconds
        while True:
            left = msgspec.structs.replace(task, skip=record.next_row, alone_before=record.alone_before)
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._one_process(left, preview_id, record)
                return record
            except TimeoutError:
                record.time_is_over(seconds)
                return record
            except ProcessEnded as ended:
                record.process_ended(str(ended))
                if record.found is not None and record.next_row >= len(record.found.rows):
                    return record

    async def _one_process(self, task: PreviewTask, preview_id: str, record: PreviewRecord) -> None:
        said = self._pool.run(msgspec.json.encode(task).decode(), preview_id)
        async with contextlib.aclosing(said) as messages:
            async for message in messages:
                record.take(message)


def check_sent_code(request: PreviewRequest, policy: FunctionPolicy) -> None:
    """Reject an entrypoint, a server or a bundle that the policy would not allow as a registered function.

    Raises:
        PermissionDenied: ROLE_REQUIRED.
        InvalidArgument: BUNDLE_TOO_LARGE.
    """
    if request.entrypoint and not policy.lists(request.entrypoint):
        check_code(f"Previewing the entrypoint {request.entrypoint}")
    for address in request.addresses:
        if not policy.lists_address(address):
            check_code(f"Previewing a function served at {address}")
    if 0 < policy.max_bundle_bytes < len(request.bundle):
        raise InvalidArgument(
            "BUNDLE_TOO_LARGE",
            f"The bundle has {len(request.bundle)} bytes, {policy.max_bundle_bytes} are allowed: leave files out",
            field="bundle",
        )


def _context(header: PlanHeader, request: PreviewRequest, settings: Settings) -> WorkContext:
    """Return the work context that a backfill would have. Nothing is stored and no job is created."""
    spec = BackfillSpec(request.database, request.table, request.column or header.output.name)
    job = Job("preview", "", JobState.RUNNING, spec, created_at=0.0, updated_at=0.0)
    return work_context(job, header, settings, env=request.env)
