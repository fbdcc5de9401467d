"""A process that this one is the parent of, however it was started, as far as the supervisor has to do with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Protocol


class Process(Protocol):
    """What `asyncio.subprocess.Process` has of it."""

    stdout: asyncio.StreamReader | None
    stderr: asyncio.StreamReader | None

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int:
        """Wait for its end."""
        ...

    def send_signal(self, signal: int) -> None:
        """Send it a signal; ProcessLookupError where it has ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...


class AdoptedProcess:
    """A child that was not started by asyncio. `descriptors`: of the ends of its pipes 0, 1 and 2 that are ours."""

    stdout: asyncio.StreamReader | None = None
    stderr: asyncio.StreamReader | None = None

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = asyncio.Event()
        self._returncode: int | None = None
        self._stdin = -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended, and was reaped as an orphan
            self._pidfd, self._returncode = -1, -signal.SIGKILL
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    async def talk(self, stdin: int, stdout: int, stderr: int) -> None:
        """Take over our ends of its pipes."""
        self._stdin = stdin
        self.stdout, self.stderr = await _reader(stdout), await _reader(stderr)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        return self._returncode

    async def wait(self) -> int:
        """Wait for its end."""
        await self._ended.wait()
        assert self._returncode is not None
        return self._returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal.

        Raises:
            ProcessLookupError: It has ended.
        """
        if self._returncode is not None:
            raise ProcessLookupError(self._pid)
        os.kill(self._pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._returncode = -signal.SIGKILL
        with contextlib.suppress(ChildProcessError):
            self._returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if self._stdin >= 0:
            os.close(self._stdin)
        self._ended.set()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", 0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


def reap_orphan(known: set[int]) -> bool:
    """Reap one dead child that nobody knows: an orphan that this process adopted. Tell whether there was one."""
    with contextlib.suppress(ChildProcessError):
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if dead is not None and dead.si_pid not in known:
            os.waitpid(dead.si_pid, 0)
            return True
    return False
