"""Manage the function processes of Spark's Python workers: warm them up, bind each to a worker, and give them tasks.

A forked process copies each memory page when it first writes to that page. Thousands of such copies make the first
fragment take twice as long as the next fragment. Therefore each process computes a small table in advance.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from decimal import Decimal

import msgspec
import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.resource import ResourceInformation

from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfKind
from leman_core.model.keys import id_in_key
from leman_core.model.plan import FragmentTask, Reason
from leman_core.model.row_positions import RowRange
from leman_core.model.work import FragmentWork, FunctionSpec, InFlightRows, ProgressReport, WorkContext, WorkUnit
from leman_core.process import environment
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.opening import small_table, start_threads
from leman_executor.coordination.reservations import GrantAll
from leman_executor.spark import idle_tasks
from leman_executor.spark.temp_folder import TempFolder
from leman_executor.worker.error_store import JobErrors
from leman_executor.worker.function_pool import (
    MOST_BYTES,
    NONSENSE,
    SENT_NONSENSE,
    Answer,
    FunctionPool,
    Prepare,
    Request,
    Warm,
    receive,
    send,
)
from leman_executor.worker.unit_runner import UnitRunner
from leman_executor.worker.worker_link import WorkerTask
from leman_executor.worker.worker_loop import run_task

#: Number of rows that are computed one at a time, and number of rows in one batch of a fragment's maximum size. The two
#: computations touch different memory.
_SCALAR_ROWS, _VECTORISED_ROWS = 1 << 16, 10 << 16


def _function(kind: UdfKind, entrypoint: str) -> FunctionSpec:
    return FunctionSpec(
        name=f"practice, {kind.name}",
        version="",
        kind=kind,
        input_columns=("x",),
        bundle_uri="",
        bundle_sha256="",
        bundle_python="",
        entrypoint=entrypoint,
        stateful=False,
        batch_size=0,
        error_policy=ErrorPolicy(),
    )


def warm_up_rows() -> None:
    """Compute a column of a temporary table, one row at a time."""
    _practise(_function(UdfKind.SCALAR, "builtins:abs"), _SCALAR_ROWS)


def warm_up_batches() -> None:
    """Compute a column of a temporary table, one batch at a time."""
    _practise(_function(UdfKind.ARRAY, "pyarrow.compute:abs"), _VECTORISED_ROWS)


def _practise(function: FunctionSpec, rows: int) -> None:
    kept = tempfile.tempdir  # a cached value would override a function's own TMPDIR
    try:
        with contextlib.suppress(Exception):  # if this fails, the first job only takes longer
            folder = TempFolder.make("", patient=False)  # do not wait: a task may be waiting
            if folder is not None:
                try:
                    compute_in(str(folder.path), function, rows)
                finally:
                    folder.remove()
    finally:
        tempfile.tempdir = kept


def compute_in(folder: str, function: FunctionSpec, rows: int) -> int:
    """Compute a column of a small table in `folder` as a worker does, and return the number of rows."""
    uri = f"{folder}/practice.lance"
    version = small_table(uri, rows)
    context = WorkContext(
        job_id="practice",
        uri=uri,
        read_version=version,
        output_schema=pa.schema([pa.field("y", pa.int64())]).serialize().to_pybytes(),
        output_field_ids=(1,),
        column_id="practice",
        input_columns=("x",),
        udf=function,
        where="",
        checkpoint=CheckpointBounds(),
        checkpoint_seconds=60.0,
        checkpoint_max_bytes=1 << 20,
    )
    task = FragmentTask(0, rows, 0, Reason.MISSING, "0" * 32, "practice", ())
    work = FragmentWork(task, (RowRange(0, rows),), finish=True)
    outcome = UnitRunner(
        context,
        WorkUnit("practice", (work,)),
        store=LanceCheckpointStore(checkpoint_root(uri)),
        reservations=GrantAll(),
        sink=_Nobody(),
        errors=JobErrors("", "practice", "y", ""),
    ).run()
    return sum(result.rows_computed for result in outcome.results)


class _Nobody:
    """A sink that ignores reports."""

    def send(self, report: ProgressReport) -> None:
        """Ignore the report."""

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Ignore the rows."""


#: Made at import, in one thread: msgspec crashes if two threads are the first to decode a type.
_worker_tasks, _answers = msgspec.json.Decoder(WorkerTask), msgspec.json.Decoder(Answer)


class FunctionProcessEnded(RuntimeError):
    """The process that ran a task has died or could not continue, so the worker must restart."""


class Caller:
    """A connection to the pool. The process that started the pool passes it on to every process that it forks."""

    def __init__(self, requests: socket.socket, pool_parent: int) -> None:
        self._requests = requests
        self._pool_parent = pool_parent

    def run(self, worker_task: str, state: bytes = b"") -> int:
        """Run a task in a process that runs only this version of the function.

        Returns:
            The number of units run.

        Raises:
            FunctionProcessEnded: The pool or the process has died, or the task ended with an error.
        """
        task = _worker_tasks.decode(worker_task)
        data = self._asked(task.function, Request(worker_task, state, id_in_key(task.hello.job_key)))
        if data is None:
            if self._pool_is_gone():
                self._end_parent()
                raise FunctionProcessEnded("the pool of function processes has ended")
            raise FunctionProcessEnded("the function's process ended without an answer")
        try:
            answer = _answers.decode(data)
        except NONSENSE:
            raise FunctionProcessEnded(SENT_NONSENSE) from None
        if answer.error:
            raise FunctionProcessEnded(answer.error)
        return answer.units

    def _asked(self, function: str, request: Request) -> bytes | None:
        """Send a request and return the answer. Return None if no answer comes."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, contextlib.suppress(OSError):
                socket.send_fds(self._requests, [function.encode()], [theirs.fileno()])
            with contextlib.suppress(OSError):  # the process has ended, which the pool has reported
                send(ours, request)
            with contextlib.suppress(OSError):
                return receive(ours, MOST_BYTES)
        return None

    def _pool_is_gone(self) -> bool:
        """Return whether the pool no longer responds to an empty request."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            try:
                socket.send_fds(self._requests, [b""], [theirs.fileno()])
            except OSError:
                return True
        return False

    def _end_parent(self) -> None:
        """End Spark's daemon, which cannot work without a pool. Spark then starts another one.

        This ends all workers of the daemon, so it is never done because of a single function process.
        """
        if os.getppid() == self._pool_parent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pool_parent, signal.SIGTERM)


def start_pool(prepare: Prepare, warm: Warm) -> Caller:
    """Fork the pool from this process, whose state function processes inherit: no threads, no user code."""
    here = os.getpid()
    requests, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    if os.fork() == 0:
        asking.close()
        os.dup2(2, 1)  # Spark reads the daemon's standard output
        environment.confine()
        FunctionPool(requests, lambda task, _say: run_task(task), prepare, warm).serve(here)
    requests.close()
    return Caller(asking, here)


_WARM_UP = "null"
#: Seconds after its worker's end until a waiting task ends. The end of a task costs Spark as much as a commit, and must
#: not delay a running commit.
_QUIET_SECONDS = 0.1
_callers: list[Caller] = []


class _Given(msgspec.Struct, frozen=True):
    """The state that Spark sets up in a worker before a task. `resources` has addresses by name."""

    path: list[str]
    memory: tuple[int, int]
    files: str = ""
    scratch: int = 0
    partition: int = 0
    attempt: int = 0
    task: int = 0
    cpus: int = 0
    resources: dict[str, list[str]] = {}


_decoder = msgspec.json.Decoder(_Given)


def start() -> None:
    """Start the pool for all workers forked from this process."""
    _callers.append(start_pool(_take_over, (start_threads, warm_up_rows, warm_up_batches)))


def run(worker_task: str) -> int:
    """Run a worker's task and return the number of its units. The executor's warm-up task has no units."""
    task = TaskContext.get()
    told = idle_tasks.receive_task(worker_task, task.partitionId() if task is not None else 0)
    if told in (_WARM_UP, ""):
        return 0
    if not _callers:
        start()  # if Spark is configured not to use its daemon
    units = _callers[0].run(told, msgspec.json.encode(_given()))
    if idle_tasks.is_idle_task(worker_task):
        time.sleep(_QUIET_SECONDS)
    return units


def _given() -> _Given:
    files = getattr(SparkFiles, "_root_directory", None) or ""
    memory = resource.getrlimit(resource.RLIMIT_AS)
    task = TaskContext.get()
    if task is None:
        return _Given(sys.path, memory, files)
    return _Given(
        sys.path,
        memory,
        files,
        task.stageId(),
        task.partitionId(),
        task.attemptNumber(),
        task.taskAttemptId(),
        task.cpus(),
        {name: list(found.addresses) for name, found in (task.resources() or {}).items()},
    )


def _take_over(state: bytes) -> None:
    given = _decoder.decode(state)
    sys.path[:0] = [entry for entry in given.path if entry not in sys.path]
    if resource.getrlimit(resource.RLIMIT_AS) != given.memory:
        resource.setrlimit(resource.RLIMIT_AS, given.memory)
    SparkFiles._root_directory = given.files
    SparkFiles._is_running_on_worker = True
    TaskContext._setTaskContext(
        TaskContext(
            stageId=given.scratch,
            partitionId=given.partition,
            attemptNumber=given.attempt,
            taskAttemptId=given.task,
            cpus=given.cpus,
            cpuAmount=Decimal(given.cpus),
            resources={name: ResourceInformation(name, found) for name, found in given.resources.items()},
            localProperties={},
        )
    )
