"""Start and use the warm process from which services are forked (`warm_process`). Standard library only.

`begin_early` starts the warm process before anything else is imported. Spark requests its daemon through a socket file.
Each supervisor has its own socket file, because two supervisors may start in one folder before one of them has the
lock. Forked services become children of the supervisor's process, although asyncio has not started them
(`AdoptedProcess`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from leman_core.process import environment
from leman_local import child, fd_messages
from leman_local.service_file import Home

if TYPE_CHECKING:
    from leman_local.service_process import Spec


class Process(Protocol):
    """The part of `asyncio.subprocess.Process` that is used."""

    stdout: asyncio.StreamReader | None
    stderr: asyncio.StreamReader | None

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int:
        """Wait until the process ends."""
        ...

    def send_signal(self, signal: int) -> None:
        """Send a signal. Raises ProcessLookupError if the process has ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...


class AdoptedProcess:
    """A child process that asyncio has not started. `descriptors` are our ends of its pipes 0, 1 and 2."""

    stdout: asyncio.StreamReader | None = None
    stderr: asyncio.StreamReader | None = None

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = asyncio.Event()
        self._returncode: int | None = None
        self._stdin = -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:  # the process has ended and was reaped as an orphan
            self._pidfd, self._returncode = -1, -signal.SIGKILL
            self._ended.set()
        else:
            asyncio.get_running_loop().add_reader(self._pidfd, self._reap)

    async def talk(self, stdin: int, stdout: int, stderr: int) -> None:
        """Take over our ends of the process's pipes."""
        self._stdin = stdin
        self.stdout, self.stderr = await _reader(stdout), await _reader(stderr)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        return self._returncode

    async def wait(self) -> int:
        await self._ended.wait()
        assert self._returncode is not None
        return self._returncode

    def send_signal(self, number: int) -> None:
        """Send a signal.

        Raises:
            ProcessLookupError: The process has ended.
        """
        if self._returncode is not None:
            raise ProcessLookupError(self._pid)
        os.kill(self._pid, number)

    def kill(self) -> None:
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
    """Reap one dead child that is not in `known`, such as an adopted orphan. Return whether there was one."""
    with contextlib.suppress(ChildProcessError):
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if dead is not None and dead.si_pid not in known:
            os.waitpid(dead.si_pid, 0)
            return True
    return False


_NAME = re.compile(r"warm-(\d+)(-\d+)?\.sock")


def warm_socket_name(supervisor: int, place: int = 0) -> str:
    """Return the name of a supervisor's socket, by its process id. `place` is the number of its warm process."""
    return f"warm-{supervisor}-{place}.sock" if place else f"warm-{supervisor}.sock"


def sweep_warm_sockets(folder: Path) -> None:
    """Delete the sockets of supervisors that have ended."""
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            found = _NAME.fullmatch(file.name)
            if found is not None and not _lives(int(found[1])):
                file.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_CHILD = str(Path(child.__file__).resolve())
#: A module that starts Spark's JVM while everything else is imported.
_EARLY_JVM = "leman_executor.spark.early_jvm"
#: The environment in which Spark's forked workers must start, because Python and numpy read these variables at their
#: start. The hash seed is that of a worker that is not forked.
_ENVIRONMENT = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), "OMP_NUM_THREADS": "1"}
_END_SECONDS = 3.0
#: Seconds to wait for an answer: to the first request for a service, which also imports the service, and to later
#: requests, which only fork.
_ANSWER_SECONDS, _LATER_SECONDS = 60.0, 5.0


class WarmParent:
    """One warm process. If there is none, for example after a kill, services are started as new processes."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, file: Path) -> None:
        self._first: subprocess.Popen[bytes] | None = process
        self._control = control
        self._control.setblocking(False)
        self._file = file
        self._asking = asyncio.Lock()
        self._stays: AdoptedProcess | None = None
        #: Services that the warm process has started, and so has imported.
        self._imported: set[str] = set()
        self.is_gone = False
        #: The last output of the warm process, if it ended early.
        self.last_words = ""

    @classmethod
    def begin(cls, folder: Path, *, with_jvm: bool, place: int = 0) -> WarmParent | None:
        """Start a warm process for a system whose files are in `folder`. Return None if that is impossible, as on
        macOS.

        Args:
            with_jvm: Whether to start Spark's JVM before anything else.
            place: The number of this warm process among those of the supervisor. Forks of earlier warm processes do not
                look for it.
        """
        if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
            return None
        environment.adopt_orphans()
        ours, theirs = socket.socketpair()
        shown, rest = environment.split({**os.environ, **_ENVIRONMENT})
        reading, writing = os.pipe()
        # The name has our process id, because another supervisor may be about to get the folder's lock.
        file = folder / warm_socket_name(os.getpid(), place)
        with theirs:
            arguments = [str(theirs.fileno()), str(file), *([_EARLY_JVM] if with_jvm else [])]
            process = subprocess.Popen(
                [sys.executable, "-P", _CHILD, str(os.getpid()), "warm", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**shown, environment.REST: str(reading)},
                pass_fds=[theirs.fileno(), reading],
                start_new_session=True,
            )
            os.close(reading)
            environment.give_rest(writing, rest)
        return cls(process, ours, file)

    @property
    def pids(self) -> set[int]:
        """The ids of the warm process and of its own children."""
        first = {self._first.pid} if self._first is not None else set()
        return first | ({self._stays.pid} if self._stays is not None else set())

    def look(self) -> None:
        """Notice whether the warm process has ended."""
        ended = self._first.poll() is not None if self._first is not None else False
        if ended or (self._stays is not None and self._stays.returncode is not None):
            self._lose()

    async def start(self, spec: Spec) -> AdoptedProcess | None:
        """Start a service. Return None if it must be started as a new process instead."""
        async with self._asking:
            if self.is_gone:
                return None
            seconds = _LATER_SECONDS if spec.name in self._imported else _ANSWER_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    becomes = spec.name == "executor" and self._first
                    started = await (self._become(spec) if becomes else self._fork(spec))
            except TimeoutError:  # the warm process hangs, and would not end by itself
                self._kill(seconds)
                return None
            except (OSError, ValueError, asyncio.IncompleteReadError):
                self._lose()
                return None
            except asyncio.CancelledError:  # the pending answer would be taken for that of the next request
                self._lose()
                raise
            self._imported.add(spec.name)
            return started

    async def _become(self, spec: Spec) -> AdoptedProcess:
        """Turn the first warm process into the executor, because Spark's JVM may already be its child."""
        process, self._first = self._first, None
        assert process is not None
        try:
            pid = await self._ask(spec, [], become=True)
        except BaseException:
            self._first = process
            raise
        self._stays = AdoptedProcess(pid)
        found = AdoptedProcess(process.pid)
        pipes = [os.dup(pipe.fileno()) for pipe in (process.stdin, process.stdout, process.stderr) if pipe is not None]
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.returncode = 0  # from now on, `found` waits for the process
        await found.talk(*pipes)
        return found

    async def _fork(self, spec: Spec) -> AdoptedProcess:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_error, theirs_error = os.pipe()
        ours = [ours_in, ours_out, ours_error]
        try:
            pid = await self._ask(spec, [theirs_in, theirs_out, theirs_error])
        except BaseException:
            fd_messages.close(ours)
            raise
        finally:
            fd_messages.close([theirs_in, theirs_out, theirs_error])
        found = AdoptedProcess(pid)
        await found.talk(*ours)
        return found

    async def _ask(self, spec: Spec, descriptors: Sequence[int], *, become: bool = False) -> int:
        """Send a request. Return the process id in the answer.

        Raises:
            OSError, ValueError, IncompleteReadError: The warm process has ended.
        """
        environment: Mapping[str, str] = spec.environment
        request = {"command": spec.command[1:], "name": spec.name, "environment": dict(environment), "become": become}
        data = fd_messages.encoded(request)
        sent = socket.send_fds(self._control, [data], descriptors) if descriptors else 0
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._control, data[sent:])
        length = int.from_bytes(await self._read(loop, 4), "big")
        return int(json.loads(await self._read(loop, length))["pid"])

    async def _read(self, loop: asyncio.AbstractEventLoop, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = await loop.sock_recv(self._control, size - len(data))
            if not chunk:
                raise asyncio.IncompleteReadError(data, size)
            data += chunk
        return data

    async def end(self) -> None:
        """End the warm process and everything that it left."""
        self.abandon()
        if self._stays is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._stays.wait()
            with contextlib.suppress(ProcessLookupError):
                self._stays.kill()
            await self._stays.wait()

    def abandon(self) -> None:
        """End a warm process that has not become a service."""
        self.is_gone = True
        self._control.close()
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._first.pid, signal.SIGKILL)  # an early JVM, its child, has the pipes too
            with contextlib.suppress(subprocess.TimeoutExpired):
                said = self._first.communicate(timeout=_END_SECONDS)[1].decode(errors="replace")
                self.last_words = said or self.last_words
            self._first = None
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _kill(self, seconds: float) -> None:
        """Kill the warm process, because it did not answer."""
        if self._stays is not None:
            with contextlib.suppress(ProcessLookupError):
                self._stays.kill()
        self.last_words = f"it did not answer within {seconds:g} s"
        self._lose()

    def _lose(self) -> None:
        """Let the warm process end by itself. Services that were forked from it continue."""
        self.abandon()


def begin_early(arguments: Sequence[str]) -> WarmParent | None:
    """Start the warm process, with Spark's JVM if that is needed anyway.

    Return None if the arguments do not start a system, if the system's folder does not exist yet, or if another system
    has the folder. The warm process is then started later, or not at all.
    """
    environment.raise_open_files_limit()
    places = dict(itertools.pairwise(arguments))
    database, folder = places.get("--database"), places.get("--home")
    if (database is None) == (folder is None):
        return None
    try:
        home = Home(Path(folder)) if folder is not None else Home.of(Path(database or "").expanduser())
    except RuntimeError:  # from expanding `~NAME`
        return None
    if not home.folder.is_dir() or _is_held(home.lock_file):
        return None
    on_demand = os.environ.get("LEMAN_SPARK__ON_DEMAND", "").lower() in ("1", "true", "yes", "on")
    with_jvm = "--warm" in arguments if folder is not None else not on_demand
    return WarmParent.begin(home.folder.resolve(), with_jvm=with_jvm)


def _is_held(lock_file: Path) -> bool:
    try:
        lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)
