"""Start one supervised process, wait until it is ready, end it, and write its log file.

When the log file reaches a certain size, it is rotated, and the oldest rotated file is deleted. The supervisor restarts
the process if it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from io import TextIOBase, TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import psutil

from leman_core.model.service_errors import Unavailable
from leman_core.process import environment
from leman_local import child as child_module
from leman_local.warm_parent import Process, WarmParent


class LogFile(TextIOBase):
    """A log file that only its owner can read. The names of rotated files end with a number; 1 is the latest."""

    def __init__(self, path: Path, largest_bytes: int, kept: int) -> None:
        self._handler = _Private(
            path, maxBytes=largest_bytes, backupCount=kept, encoding="utf-8", errors="backslashreplace"
        )
        self._handler.terminator = ""

    def write(self, text: str) -> int:
        """Write whole lines, without buffering."""
        self._handler.emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))
        return len(text)

    def close(self) -> None:
        self._handler.close()
        super().close()


class _Private(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(os.fdopen(fd, "ab"), encoding=self.encoding, errors=self.errors)


_CHILD = str(Path(child_module.__file__).resolve())
_PROBE_SECONDS = 0.005
_TAIL_LINES = 12
#: Seconds to wait for the last output of a dead process.
_LAST_WORDS_SECONDS = 2.0
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The command of a process, and the way to run it."""

    name: str
    #: The command, from `module_command` or `program_command`.
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    ready_seconds: float = 120.0
    #: The size at which the log is rotated.
    log_bytes: int = 16 << 20
    #: Number of rotated log files to keep.
    logs_kept: int = 3
    #: Returns whether the process is up. If None, the process prints a readiness line instead.
    probe: Callable[[], Awaitable[bool]] | None = None


def module_command(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a Python module."""
    return ["run", name, *arguments]


def program_command(*command: str) -> list[str]:
    """Return the command that runs a program."""
    return ["exec" if sys.platform == "linux" else "watch", *command]


@dataclass(slots=True, kw_only=True)
class Running:
    """A started process."""

    spec: Spec
    process: Process
    pump: asyncio.Task[None]
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait_ready(self) -> None:
        """Wait until the process is up.

        Raises:
            Unavailable: START_FAILED – the process ended, or took longer than `ready_seconds`.
        """
        ending = asyncio.ensure_future(self.process.wait())
        up = asyncio.ensure_future(self._probed() if self.spec.probe else self.ready.wait())
        try:
            await asyncio.wait((ending, up), timeout=self.spec.ready_seconds, return_when=asyncio.FIRST_COMPLETED)
            if up.done() and not ending.done():
                return
            how = _how(self.process.returncode) if ending.done() else "did not come up in time"
            if ending.done():
                await asyncio.wait((self.pump,), timeout=_LAST_WORDS_SECONDS)
            raise Unavailable(
                "START_FAILED", f"{self.spec.name} {how}; its log {self.spec.log} ends:\n{log_tail(self.spec.log)}"
            )
        finally:
            ending.cancel()
            up.cancel()

    async def wait(self) -> str:
        """Wait until the process ends. Return how it ended."""
        return _how(await self.process.wait())

    async def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM and, after the grace period, SIGKILL. Then kill everything that the process started."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self.process.wait()
        except TimeoutError:
            self.kill()
            await self.process.wait()
        await self.clean_up()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    async def clean_up(self) -> None:
        """Kill the remaining processes in the session of a dead process, for example a JVM."""
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if pid != self.pid and os.getsid(pid) == self.pid:
                    os.kill(pid, signal.SIGKILL)
        await asyncio.wait((self.pump,), timeout=_LAST_WORDS_SECONDS)
        self.pump.cancel()
        await asyncio.wait((self.pump,))

    async def _probed(self) -> None:
        assert self.spec.probe is not None
        while not await self.spec.probe():  # noqa: ASYNC110 - nothing could set an event
            await asyncio.sleep(_PROBE_SECONDS)


async def start_process(
    spec: Spec, on_line: Callable[[dict[str, Any]], None], warm: WarmParent | None = None
) -> Running:
    """Start a process in a new session, so that Ctrl-C reaches only the supervisor.

    Args:
        on_line: Called with each JSON line that the process prints about itself.
        warm: The warm process from which modules are forked, if it runs.
    """
    log = LogFile(spec.log, spec.log_bytes, spec.logs_kept)
    is_module = spec.command[0] == "run"
    process: Process | None = await warm.start(spec) if warm is not None and is_module else None
    if process is None:
        # -P: modules in the working directory must not replace our packages.
        flags = ["-P"] if is_module else ["-I", "-S"]
        shown, rest = environment.split(spec.environment)
        reading, writing = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *flags, _CHILD, str(os.getpid()), *spec.command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**shown, environment.REST: str(reading)},
                pass_fds=[reading],
                start_new_session=True,
            )
        finally:
            os.close(reading)
            await asyncio.to_thread(environment.give_rest, writing, rest)
    ready = asyncio.Event()

    def on_told(line: dict[str, Any]) -> None:
        if "port" in line:
            ready.set()
        on_line(line)

    pump = asyncio.ensure_future(_pump(process, log, on_told))
    return Running(spec=spec, process=process, pump=pump, ready=ready)


async def _pump(process: Process, log: LogFile, on_line: Callable[[dict[str, Any]], None]) -> None:
    """Split the output of a process: its status lines go to the supervisor, all other lines to its log."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        await asyncio.gather(_read(process.stdout, log, on_line), _read(process.stderr, log, None))
    finally:
        log.close()


async def _read(stream: asyncio.StreamReader, log: LogFile, on_line: Callable[[dict[str, Any]], None] | None) -> None:
    rest = b""
    while chunk := await stream.read(1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        kept = []
        for line in lines:
            told = _announced(line) if on_line is not None else None
            if told is None or on_line is None:
                kept.append(line + b"\n")
            else:
                on_line(told)
        if len(rest) > _LONGEST_LINE:
            kept.append(rest)
            rest = b""
        if kept:
            log.write(b"".join(kept).decode(errors="backslashreplace"))
    if rest:
        log.write(rest.decode(errors="backslashreplace") + "\n")


def _announced(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b'{"service"'):
        return None
    with contextlib.suppress(ValueError):
        return dict(json.loads(line))
    return None


def log_tail(path: Path) -> str:
    """Return the last lines of a log; "" if it cannot be read."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    except OSError:
        return ""


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"
