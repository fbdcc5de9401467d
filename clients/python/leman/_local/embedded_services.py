"""Find or start the embedded services of a local database, and run a single service for calls that only read."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from leman import _locations, local
from leman._call_boundary import warn
from leman._local import running_systems
from leman._local.running_systems import ServiceFile
from leman._wire.channel import Endpoints, Locator, Services, fetch_service_info
from leman.errors import StartFailed

_PARTS = ("redis", "planner", "commit_coordinator", "executor")
_CLEAR = "\r\x1b[2K"


class StartLine:
    """A line on a terminal that shows which services have started, until the end of the `with` block."""

    def __init__(self, log: Path, before: int) -> None:
        """Show the state by the supervisor's `log`, from byte `before` on."""
        self._log = log
        self._before = before
        self._begun = time.monotonic()
        self._shown = ""
        self._is_shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

    def look(self) -> None:
        if not self._is_shown:
            return
        up = parts_up(self._log, self._before)
        marks = "  ".join(f"{'✓' if part in up else '·'} {part.replace('_', ' ')}" for part in _PARTS)
        text = f"leman: starting services {time.monotonic() - self._begun:3.0f} s  {marks}"
        if text != self._shown:
            self._shown = text
            sys.stderr.write(_CLEAR + text)
            sys.stderr.flush()


def parts_up(log: Path, before: int) -> set[str]:
    """Return the processes that have started, by a supervisor's log from byte `before` on."""
    found = set()
    try:
        with log.open("rb") as stream:
            stream.seek(before)
            lines = stream.read().splitlines()
    except OSError:
        return set()
    for line in lines:
        if b'"event": "up"' in line:
            try:
                found.add(str(json.loads(line)["process"]))
            except (ValueError, KeyError):  # the line is not complete yet
                continue
    return found


START_DEADLINE = 120.0
"""Seconds in which the embedded services must start. They need a few, unless the machine is very busy."""

_POLL = 0.05
_ANSWER_SECONDS = 2.0  # then check the supervisor again
_OTHER_THERE = (0, 4)  # exit codes of a supervisor that found another one running
_LOG_LINES = 15
_REPAIR_SECONDS = 8.0  # more than a running supervisor needs to rewrite a damaged service file


class Embedded(Locator):
    """Finds or starts the services of one local database, which has an absolute path.

    A system that serves the database has written `<database>/_leman/service.json`. If there is none, the system of this
    Python environment serves the database, and is started if needed. Calls that only read never write to a database to
    which Leman has not written yet.

    `home` is the folder of another system. If given, only that system may serve the database. With `lifeline`, that
    system ends with this process. `direct` means that this process reads and writes rows itself; it imports pylance
    while services start.
    """

    def __init__(
        self,
        database: str,
        deadline: float = START_DEADLINE,
        home: Path | None = None,
        *,
        lifeline: bool = False,
        direct: bool = False,
    ) -> None:
        self._database = database
        self._deadline = deadline
        self._home = home
        self._lifeline = lifeline
        self._direct = direct
        self._own = ServiceFile(Path(database, "_leman"))
        self._checking = threading.Lock()
        self._writes = False
        self._expects_writes = False
        self._served = False
        self._warned = False
        self._last: dict[str, Any] = {}

    def check(self, *, reads: bool) -> Endpoints | None:
        """Raise NotFound (DATABASE_NOT_FOUND) if a call would read a database that does not exist.

        A call that writes needs a system that serves the database. If another system serves the database by now, return
        that system's addresses, because only it knows the jobs.
        """
        if reads:
            _locations.check_database_exists(self._database)
            serves = not self._served and self._own.running() is not None
            return self.locate() if serves else None
        with self._checking:
            if self._writes:
                return None
            self._writes = True
            try:
                if not self._served:
                    return self.locate()
                if (said := self._own.running()) is not None and said.get("control"):
                    self._have_served(said)  # so that the system starts Spark now
            except BaseException:
                self._writes = False
                raise
        return None

    def expect_writes(self) -> None:
        """Announce a call that writes: if a call that reads starts the services first, start Spark with them."""
        self._expects_writes = True

    def would_start(self) -> bool:
        """Return whether a call that only reads would start services, although no call that writes is expected."""
        return not (self._home or self._writes or self._expects_writes or self.is_running())

    def locate(self) -> Endpoints:
        """Return the running services. Start them if there are none. Raises StartFailed."""
        repaired_by = 0.0  # the time until which the service file of another system must be repaired
        end = time.monotonic() + self._deadline
        while time.monotonic() < end:
            said = self._own.running()
            if said is not None and self._home is not None and said.get("home") != str(self._home):
                raise StartFailed(
                    f"Process {said['pid']} already serves {self._database}: stop it with `leman down` first"
                )
            if said is not None and not self._replaced(said):
                self._served = True
                return self._found(said)
            if said is None and self._is_changing():
                time.sleep(_POLL)
                continue
            system = self._system()
            if not self._writes and not self._own.folder.exists():
                return self._found(system)
            if refusal := self._have_served(system):
                self._check_reads(refusal)
                return self._found(system)
            if self._own.running() is not None:
                repaired_by = 0.0
                continue
            time.sleep(_POLL)
            if not self._own.is_held():
                repaired_by = 0.0
                continue
            if repaired_by and time.monotonic() > repaired_by:
                raise self._unreachable(self._own, "is not valid")
            repaired_by = repaired_by or time.monotonic() + _REPAIR_SECONDS
        raise self._unreachable(ServiceFile(self._folder()), "leads to no system that serves the database")

    def _check_reads(self, refusal: str) -> None:
        """Raise StartFailed if a call wrote to the database, which needs a folder that can be written."""
        if self._writes:
            raise StartFailed(f"The embedded services cannot write their files to {self._own.folder}: {refusal}")

    def locate_first(self) -> Endpoints:
        """Return the services once the planner answers. Restart a system that crashed. Raises StartFailed."""
        begun = time.monotonic()
        while True:
            found = self.locate()
            answer = fetch_service_info(found.planner, found, timeout=_ANSWER_SECONDS)
            if not isinstance(answer, grpc.RpcError):
                return found
            file = self._own if self._served else ServiceFile(self._folder())
            seconds, stopped = time.monotonic() - begun, running_systems.is_stopped(file.pid())
            if answer.code() is grpc.StatusCode.UNAUTHENTICATED and seconds > _REPAIR_SECONDS:
                raise self._unreachable(file, f"has a token that is refused: {answer.details()}")
            if stopped or seconds > self._deadline:
                raise StartFailed(_silence(file.pid(), found, answer, stopped=stopped))
            time.sleep(_POLL)

    def find_restarted(self) -> Endpoints | None:
        """Return the services that serve the database now. Restart a system that was killed.

        Return None for a system that was ended on purpose or belongs to `leman up`: these are not restarted here.
        Raises StartFailed.
        """
        if self._own.running() is not None:
            return self.locate()
        if self._is_changing():
            return None
        file = self._own if self._served else ServiceFile(self._folder())
        was_killed = file.pid() == self._last.get("pid")
        is_anyones = running_systems.System(Path(self._last.get("home") or self._own.folder), self._last).kind != "up"
        return self.locate() if was_killed and is_anyones else None

    def is_running(self) -> bool:
        return self._own.running() is not None or ServiceFile(self._folder()).running() is not None

    def _is_changing(self) -> bool:
        """Return whether a system that serves the database is starting or ending."""
        return self._own.is_held() and not self._own.path.exists()

    def _found(self, said: dict[str, Any]) -> Endpoints:
        self._last = said
        return Endpoints(
            planner=said["planner"],
            executor=said["executor"],
            commit_coordinator=said["commit_coordinator"],
            token=said.get("token", ""),
        )

    def _folder(self) -> Path:
        """Return the folder of the system to start if none runs."""
        return self._home or running_systems.shared_home()

    def _have_served(self, system: dict[str, Any]) -> str:
        """Ask a system to serve the database. Return an error message if it cannot.

        Return "" if it serves the database, or if the caller should look again, because another system serves the
        database by now or this one is ending.
        """
        try:
            answer = running_systems.send_command(
                system, {"do": "serve", "database": self._database, "warm": self._writes}
            )
        except OSError as error:  # the system has ended: the caller looks for the next one
            if running_systems.is_stopped(system["pid"]):
                pid = system["pid"]
                raise StartFailed(
                    f"The embedded services (process {pid}) are stopped, as by SIGSTOP, and do not answer: {error}."
                    f" End them with `kill -9 {pid}` and connect again: stored data is not lost"
                ) from None
            answer = {"elsewhere": True}
        if answer.get("done"):
            return ""
        if answer.get("elsewhere"):
            time.sleep(_POLL)
            return ""
        return str(answer.get("error"))

    def _replaced(self, said: dict[str, Any]) -> bool:
        """End a shared system of another release if it is idle, and return whether it ended.

        Warn if such a system continues, or if a system runs functions in another Python environment.
        """
        if self._warned or "python" not in said:
            return False
        self._warned = True
        ours, theirs, python = metadata.version("leman"), said.get("version", ""), said["python"]
        system = running_systems.System(Path(said.get("home") or self._own.folder), said)
        ends = f"`leman down {self._database}` ends them, and the next call starts new ones"
        if theirs not in (ours, "unknown"):
            if _is_of_another_release(said) and system.kind == "shared" and system.end_if_idle():
                return True
            warn(f"the services of this database are of release {theirs}, and this client of {ours}: {ends}")
        elif not running_systems.is_this_python(python):
            warn(f"functions for this database run in {python}, which started its services, not in this Python: {ends}")
        return False

    def _unreachable(self, file: ServiceFile, what: str) -> StartFailed:
        pid = file.holder()
        who = f"process {pid}" if pid else f"the process that holds {file.lock}"
        return StartFailed(
            f"The embedded services run ({who}), but {file.path}, which says how to reach them,"
            f" {what}. End them with `kill {pid or 'PID'}` and connect again: stored data is not lost"
        )

    def _system(self) -> dict[str, Any]:
        """Return the service file of the system for the database. Start the system if needed."""
        file = ServiceFile(self._folder())
        said = file.running()
        if said is None:
            return self._start(file)
        if _is_of_another_release(said) and running_systems.System(file.folder, said).end_if_idle():
            return self._start(file)
        return said

    def _start(self, file: ServiceFile) -> dict[str, Any]:
        log = file.folder / "logs" / "supervisor.log"
        try:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            log.touch()
        except OSError as error:
            raise StartFailed(
                f"The embedded services cannot write their files to {file.folder}: {error.strerror}"
            ) from None
        before = log.stat().st_size if log.exists() else 0
        child = self._spawn(file.folder, log)
        meanwhile = threading.Thread(target=self._prepare, name="leman-local", daemon=True)
        meanwhile.start()
        try:
            with StartLine(log, before) as line:
                return self._wait(file, child, log, before, line)
        finally:
            meanwhile.join()

    def _prepare(self) -> None:
        if self._direct:
            local.prepare()

    def _wait(
        self, file: ServiceFile, child: subprocess.Popen[bytes], log: Path, before: int, line: StartLine
    ) -> dict[str, Any]:
        end = time.monotonic() + self._deadline
        repaired_by = 0.0  # the time until which the service file of another system must be repaired
        while time.monotonic() < end:
            said = file.running()
            if said is not None:
                return said
            code = child.poll()
            if code is not None and code not in _OTHER_THERE:
                raise _failure(f"ended at once with exit code {code}", log, before)
            if code is None or not file.path.exists():
                repaired_by = 0.0
            if code is not None and not file.is_held():  # the other system has ended since, so start ours again
                child, repaired_by = self._spawn(file.folder, log), 0.0
            elif code is not None:
                repaired_by = repaired_by or time.monotonic() + _REPAIR_SECONDS
                if time.monotonic() > repaired_by:
                    raise self._unreachable(file, "is not valid")
            line.look()
            time.sleep(_POLL)
        raise _failure(f"were not ready within {self._deadline:.0f} seconds", log, before)

    def _spawn(self, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start the supervisor in its own session, so that it outlives this process. It ends when idle.

        Raises StartFailed.
        """
        running_systems.require_services(StartFailed)
        places = ["--home", str(folder), "--register", str(running_systems.register_system())]
        warm = self._writes or self._expects_writes
        options = [*(["--warm"] if warm else []), *(["--lifeline"] if self._lifeline else [])]
        with log.open("ab") as output:
            child = subprocess.Popen(
                running_systems.services_command("leman_local", *places, *options),
                cwd=folder,
                stdin=subprocess.PIPE if self._lifeline else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running_systems.child_processes[child.pid] = child
        return child


def _is_of_another_release(said: dict[str, Any]) -> bool:
    """Return whether running services are of another release than the installed ones."""
    try:
        return said.get("version", "unknown") not in (metadata.version("leman-services"), "unknown")
    except metadata.PackageNotFoundError:
        return False


def _silence(pid: int, found: Endpoints, answer: grpc.RpcError, *, stopped: bool) -> str:
    what = f"process {pid} is stopped (as by SIGSTOP)" if stopped else f"process {pid} runs"
    return (
        f"The embedded services are there ({what}) but the planner at {found.planner} does not answer:"
        f" {answer.details()}. End them with `kill -9 {pid}` and connect again: stored data is not lost"
    )


def _failure(what: str, log: Path, before: int) -> StartFailed:
    with log.open("rb") as stream:
        stream.seek(before)
        text = stream.read().decode(errors="replace").strip()
    tail = "\n  ".join(text.splitlines()[-_LOG_LINES:])
    return StartFailed(f"The embedded services {what}; {log} ends with:\n  {tail}")


_SECONDS = 60.0
_GOODBYE_SECONDS = 10.0


class _Here(Locator):
    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    def locate(self) -> Endpoints:
        return self._endpoints


@contextlib.contextmanager
def reading_service(services: Services, name: str) -> Iterator[Services]:
    """Yield services for a block that only reads, through the service `name`.

    Yield `services` if they run or cannot be started here. Otherwise start only that service, for the block. Raises
    StartFailed.
    """
    if services.reads_alone() and running_systems.services_installed():
        with ephemeral_service(name) as own:
            yield own
    else:
        yield services


@contextlib.contextmanager
def ephemeral_service(name: str) -> Iterator[Services]:
    """Run the planner or the commit coordinator as a child of this process, on loopback, with a secret token.

    It stores no files. Raises StartFailed.
    """
    token = secrets.token_urlsafe(32)
    ours = {"HOST": "127.0.0.1", "PORT": "0", "TOKEN": token, "TLS_CERT": "", "TLS_KEY": "", "REUSE_PORT": "false"}
    running_systems.require_services(StartFailed)
    settings = {f"LEMAN_SERVER__{key}": value for key, value in ours.items()} | {"LEMAN_EMBEDDED__DATABASE": ""}
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            running_systems.services_command(running_systems.MODULES[name]),
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        timer = threading.Timer(_SECONDS, child.kill)
        timer.start()
        try:
            line = child.stdout.readline() if child.stdout is not None else b""
            timer.cancel()
            if not line:
                log.seek(0)
                said = log.read().decode(errors="replace").strip().splitlines()
                raise StartFailed("\n".join([f"the {name.replace('_', ' ')} did not start", *said[-15:]]))
            address = f"127.0.0.1:{json.loads(line)['port']}"
            services = Services(_Here(Endpoints(address, address, address, token)))
            try:
                yield services
            finally:
                services.close()
        finally:
            timer.cancel()
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GOODBYE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is not None:
        child.stdout.close()
