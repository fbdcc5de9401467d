"""Function processes for previews, as the executor sees them. For one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator

import msgspec
import structlog

from core.errors import FailedPrecondition
from executor.worker.messages import LENGTH_BYTES, framed
from executor.worker.preview_messages import PreviewMessage
from executor.worker.processes.messages import Answer, Request, Said

_log = structlog.get_logger(__name__)

#: After so long without a preview the processes are ended: they take memory.
_IDLE_SECONDS = 300.0
_END_SECONDS = 2.0
#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_answers: msgspec.json.Decoder[Said | Answer] = msgspec.json.Decoder(Said | Answer)
_messages: msgspec.json.Decoder[PreviewMessage] = msgspec.json.Decoder(PreviewMessage)


class ProcessEnded(Exception):
    """The function's process ended before its task did; the message says how."""


class FunctionPool:
    """The pool; it is started with the first preview, and ended when there was none for long.

    Args:
        python: the interpreter in which functions run.
    """

    def __init__(self, python: str = "") -> None:
        self._python = python or sys.executable
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._running = 0
        self._idle: asyncio.TimerHandle | None = None

    async def run(self, function: str, task: str, preview_id: str) -> AsyncGenerator[PreviewMessage]:
        """Run a task in a process of the function, and yield what it says.

        Whoever stops iterating ends the process, and all that it started.

        Args:
            function: Names one version of a function; a process that runs it runs no other.
            task: A `PreviewTask` as JSON.
            preview_id: What the log calls it.

        Raises:
            ProcessEnded: The process ended before the task did.
            FailedPrecondition: WORKER_PYTHON_UNUSABLE, where the pool does not start.
        """
        self._running += 1
        if self._idle is not None:
            self._idle.cancel()
        connection = self._connect(function)
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            self._leave()
            raise
        try:
            writer.write(framed(Request(task, b"", preview_id)))
            await writer.drain()
            while isinstance(message := await self._next(reader), Said):
                yield _messages.decode(message.content)
            if message.error:
                raise ProcessEnded(message.error)
        except ConnectionError:
            raise self._gone() from None
        finally:
            writer.close()  # which the pool takes as the end of whatever still runs
            self._leave()

    async def stop(self) -> None:
        """End all processes."""
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if process is None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, _END_SECONDS)
            return
        process.kill()
        await asyncio.to_thread(process.wait)

    def _connect(self, function: str) -> socket.socket:
        """Ask the pool for a process, and return the connection to it."""
        for _ in range(2):
            requests = self._started()
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            with theirs:
                try:
                    socket.send_fds(requests, [function.encode()], [theirs.fileno()])
                except OSError:  # it has died meanwhile
                    ours.close()
                    self._forget()
                    continue
                return ours
        raise self._unusable()

    def _started(self) -> socket.socket:
        """Return the way to a pool that runs; from the loop's thread, as the pool ends with the thread that made it."""
        if self._requests is not None and self._process is not None and self._process.poll() is None:
            return self._requests
        self._forget()
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            try:
                self._process = subprocess.Popen(
                    [self._python, "-P", "-m", "executor.previews.pool_process", str(theirs.fileno())],
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
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            return _answers.decode(await reader.readexactly(length))
        except asyncio.IncompleteReadError:
            raise self._gone() from None

    def _gone(self) -> Exception:
        """Return the error for a connection that broke: the pool is gone, or only the process."""
        process = self._process
        if process is not None and process.poll() is not None:
            self._forget()
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
        if process is not None and process.poll() is None:
            process.terminate()

    def _leave(self) -> None:
        self._running -= 1
        if not self._running:
            self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        if not self._running and self._process is not None:
            _log.info("no preview for long: its processes are ended")
            ended = self._process
            self._forget()
            asyncio.get_running_loop().run_in_executor(None, ended.wait)  # else it stays as a zombie
