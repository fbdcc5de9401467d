"""Function processes for previews, as the executor sees them. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TypeVar

import msgspec
import psutil
import structlog

from leman_core.model.errors import FailedPrecondition, ResourceExhausted
from leman_core.process import environment
from leman_executor.worker.messages import LENGTH_BYTES, framed
from leman_executor.worker.preview_messages import PreviewMessage
from leman_executor.worker.processes.messages import MOST_BYTES, NONSENSE, SENT_NONSENSE, Answer, Request, Said

_log = structlog.get_logger(__name__)

#: After so long without a preview the processes are ended: they take memory.
_IDLE_SECONDS = 300.0
_END_SECONDS = 2.0
#: So often it is looked whether the pool of a process that says nothing was stopped: it would tell nobody of its end.
_LOOK_SECONDS = 1.0
_PATH = "PYTHONPATH"
#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_answers: msgspec.json.Decoder[Said | Answer] = msgspec.json.Decoder(Said | Answer)
_messages: msgspec.json.Decoder[PreviewMessage] = msgspec.json.Decoder(PreviewMessage)


_T = TypeVar("_T")


class ProcessEnded(Exception):
    """The function's process ended before its task did, or is no longer to be understood; the message says how."""


class FunctionPool:
    """The pool; it is started with the first preview, and ended when there was none for long.

    Args:
        python: the interpreter in which functions run.
        variables: of its environment, beside those of this process that functions have.
        passed: which these are beside those that their processes need, as patterns of names.
    """

    def __init__(
        self, python: str = "", variables: Mapping[str, str] | None = None, passed: Sequence[str] = ()
    ) -> None:
        self._python = python or sys.executable
        self._variables = dict(variables or {})
        self._passed = tuple(passed)
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        #: Whether a function process of this pool has ever answered: where it ends now, a function has ended it.
        self._answered = False
        self._running = 0
        self._idle: asyncio.TimerHandle | None = None

    async def run(self, task: str, preview_id: str) -> AsyncGenerator[PreviewMessage]:
        """Run a task in a process of its own, which finds modules as they are now, and yield what it says.

        The process, and all that it started, ends with the task, or when the caller stops iterating.

        Args:
            task: A `PreviewTask` as JSON.
            preview_id: What the log calls it.

        Raises:
            ProcessEnded: The process ended before the task did.
            FailedPrecondition: WORKER_PYTHON_UNUSABLE, where the pool does not start.
            ResourceExhausted: TOO_MANY_CALLS, where the pool takes no more at the moment.
        """
        self._running += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            reader, writer = await self._connect(preview_id)
            try:
                writer.write(framed(Request(task, b"", preview_id)))
                await writer.drain()
                while isinstance(message := await self._next(reader), Said):
                    yield _decoded(_messages, message.content)
                if message.error:
                    raise ProcessEnded(message.error)
            except ConnectionError:
                raise self._gone() from None
            finally:
                writer.transport.abort()  # which the pool takes as the end of whatever still runs
        finally:
            self._leave()

    async def stop(self) -> None:
        """End all processes."""
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
        """Ask the pool for a process, and return the connection to it."""
        for _ in range(2):
            requests = self._started()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with theirs:
                try:
                    socket.send_fds(requests, [preview_id.encode()], [theirs.fileno()])
                except BlockingIOError:  # it is at work, for others
                    ours.close()
                    raise ResourceExhausted(
                        "TOO_MANY_CALLS", "The pool of preview processes is busy: try again later"
                    ) from None
                except OSError:  # it has died meanwhile
                    ours.close()
                    self._forget()
                    continue
                return ours
        raise self._unusable()

    def _started(self) -> socket.socket:
        """Return the way to a pool that runs; from the loop's thread, as the pool ends with the thread that made it."""
        if self._requests is not None and self._process is not None and self._process.poll() is None:
            if not _is_stopped(self._process):
                return self._requests
            _log.warning("the pool of preview processes was stopped by a signal: another one is started")
        self._forget()
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            try:
                self._process = subprocess.Popen(
                    [self._python, "-P", "-m", "leman_executor.previews.pool_process", str(theirs.fileno())],
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

    async def _next(self, reader: asyncio.StreamReader) -> Said | Answer:
        try:
            length = int.from_bytes(await self._read(reader, LENGTH_BYTES), "big")
            if length > MOST_BYTES:
                raise ProcessEnded(SENT_NONSENSE)
            message = _decoded(_answers, await self._read(reader, length))
        except asyncio.IncompleteReadError:
            raise self._gone() from None
        self._answered = True
        return message

    async def _read(self, reader: asyncio.StreamReader, size: int) -> bytes:
        pool = self._process
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    return await reader.readexactly(size)  # what has come stays there for the next time
            if pool is not None and _is_stopped(pool):
                raise ProcessEnded("a signal stopped the pool of preview processes, and with it the function's process")

    def _gone(self) -> Exception:
        """Return the error for a connection that broke: the pool is gone, or only the process."""
        process = self._process
        if process is not None and process.poll() is not None:
            answered = self._answered
            self._forget()
            if not answered:
                return self._unusable()
        return ProcessEnded("the function's process ended")

    def _unusable(self) -> FailedPrecondition:
        return FailedPrecondition(
            "WORKER_PYTHON_UNUSABLE",
            f"Previews cannot run: {self._python} does not run the processes of functions. The executor's log says why",
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
            _log.info("no preview for long: its processes are ended")
            self._forget()


def _is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Tell whether a signal stopped it, which a function may send to its parent."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have it end all that is below it, and itself, also where it is stopped; wait for it, or it stays as a zombie."""
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
    """Return the environment of the pool, see `FunctionPool`; paths of modules are put together."""
    inherited = environment.for_functions(os.environ, passed)
    dumps = {environment.CORE_DUMPS: "1"} if environment.CORE_DUMPS in os.environ else {}
    paths = [given[_PATH] for given in (variables, inherited) if given.get(_PATH)]
    return {**inherited, **dumps, **variables, **({_PATH: os.pathsep.join(paths)} if paths else {})}
