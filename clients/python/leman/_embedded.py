"""Finds the embedded services of a local database, or starts them."""

from __future__ import annotations

import subprocess
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc

from leman import _local_database, _service_file, _services_here, _systems, local
from leman._channel import Endpoints
from leman._contact import ask
from leman._service_file import ServiceFile
from leman._start_line import StartLine
from leman._tracebacks import warn
from leman.errors import StartFailed

START_DEADLINE = 120.0
"""Seconds in which the embedded services must come up: a few, but for a machine that is very busy."""

_POLL = 0.05
_ANSWER_SECONDS = 2.0  # after which the supervisor is looked at again
_OTHER_THERE = (0, 4)  # exit codes of a supervisor that another one has made needless
_LOG_LINES = 15
_MEND_SECONDS = 8.0  # in which a supervisor that runs has long written a damaged service file anew


class Embedded:
    """Locator for the services of one local database, an absolute path.

    Whichever system serves the database says so in `<database>/_leman/service.json`. Where none does, the system of
    this environment is told to, and started first where it does not run. `home`: the folder of another one, which alone
    is to serve it then; it ends with this process if `lifeline`. `direct`: this process reads and writes rows itself,
    and imports what it needs for that while it waits for services. For calls that only read a database which Leman has
    written nothing to yet, nothing is written to it.
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
        """Raises NotFound (DATABASE_NOT_FOUND) for a call that reads where there is no database. One that writes has
        the database served. Where another system serves it by now, that one is to be called: its address is returned,
        as jobs are known to that one alone."""
        if reads:
            _local_database.check_there(self._database)
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
                    self._have_served(said)  # which has Spark start meanwhile
            except BaseException:
                self._writes = False
                raise
        return None

    def expect_writes(self) -> None:
        """Have Spark start with the services, where they are started before the first call that changes something."""
        self._expects_writes = True

    def would_start(self) -> bool:
        """Whether a call that only reads would have to start them, and no call that changes something is expected."""
        return not (self._home or self._writes or self._expects_writes or self.is_running())

    def locate(self) -> Endpoints:
        """The running services, started first where there are none. Raises StartFailed."""
        mended_by = 0.0  # when the service file of another system that serves the database must be whole
        end = time.monotonic() + self._deadline
        while time.monotonic() < end:
            said = self._own.running()
            if said is not None and self._home is not None and said.get("home") != str(self._home):
                raise StartFailed(f"process {said['pid']} serves {self._database} already: `leman down` ends it")
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
                mended_by = 0.0
                continue
            time.sleep(_POLL)
            if not self._own.is_held():
                mended_by = 0.0
                continue
            if mended_by and time.monotonic() > mended_by:
                raise self._unreachable(self._own, "cannot be understood")
            mended_by = mended_by or time.monotonic() + _MEND_SECONDS
        raise self._unreachable(ServiceFile(self._folder()), "is not taken at its word")

    def _check_reads(self, refusal: str) -> None:
        """Raise StartFailed unless this only reads: a database that cannot be written can be read."""
        if self._writes:
            raise StartFailed(
                f"The embedded services keep their files in {self._own.folder}, which cannot be written: {refusal}"
            )

    def locate_first(self) -> Endpoints:
        """The running services, once the planner answers; a system that has died is not waited for but started anew.

        Raises StartFailed.
        """
        begun = time.monotonic()
        while True:
            found = self.locate()
            answer = ask(found.planner, found, timeout=_ANSWER_SECONDS)
            if not isinstance(answer, grpc.RpcError):
                return found
            file = self._own if self._served else ServiceFile(self._folder())
            seconds, stopped = time.monotonic() - begun, _service_file.is_stopped(file.pid())
            if answer.code() is grpc.StatusCode.UNAUTHENTICATED and seconds > _MEND_SECONDS:
                raise self._unreachable(file, f"has a token that is refused: {answer.details()}")
            if stopped or seconds > self._deadline:
                raise StartFailed(_silence(file.pid(), found, answer, stopped=stopped))
            time.sleep(_POLL)

    def find_restarted(self) -> Endpoints | None:
        """The services that serve the database now. Those of a system that was killed are started anew; None for one
        that has ended otherwise, and for that of `leman up`: whoever ended it starts it again, or wants it to be gone.

        Raises StartFailed."""
        if self._own.running() is not None:
            return self.locate()
        if self._is_changing():
            return None
        file = self._own if self._served else ServiceFile(self._folder())
        was_killed = file.pid() == self._last.get("pid")
        is_anyones = _systems.System(Path(self._last.get("home") or self._own.folder), self._last).kind != "up"
        return self.locate() if was_killed and is_anyones else None

    def is_running(self) -> bool:
        """True when nothing would have to be started."""
        return self._own.running() is not None or ServiceFile(self._folder()).running() is not None

    def _is_changing(self) -> bool:
        """Whether a system that serves the database is starting, or ending."""
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
        """The folder of the system that is started where none runs."""
        return self._home or _systems.shared_home()

    def _have_served(self, system: dict[str, Any]) -> str:
        """Tell a system to serve the database, and return why it cannot; empty: another look shows whether it does, as
        another system may be faster, or it may end meanwhile."""
        try:
            answer = _systems.tell(system, {"do": "serve", "database": self._database, "warm": self._writes})
        except OSError as error:  # it has ended: the next one is told
            if _service_file.is_stopped(system["pid"]):
                pid = system["pid"]
                raise StartFailed(
                    f"The embedded services are there (process {pid} is stopped, as by SIGSTOP) and do not answer:"
                    f" {error}. End them with `kill -9 {pid}` and connect again: nothing that is stored is lost"
                ) from None
            answer = {"elsewhere": True}
        if answer.get("done"):
            return ""
        if answer.get("elsewhere"):
            time.sleep(_POLL)
            return ""
        return str(answer.get("error"))

    def _replaced(self, said: dict[str, Any]) -> bool:
        """End a shared system of another release where it is idle. Warn of one that goes on, and of one that runs
        functions in another Python than this one."""
        if self._warned or "python" not in said:
            return False
        self._warned = True
        ours, theirs, python = metadata.version("leman"), said.get("version", ""), said["python"]
        system = _systems.System(Path(said.get("home") or self._own.folder), said)
        ends = f"`leman down {self._database}` ends them, and the next call starts others"
        if theirs not in (ours, "unknown"):
            if _is_of_another_release(said) and system.kind == "shared" and system.end_if_idle():
                return True
            warn(f"the services of this database are of release {theirs}, and this client of {ours}: {ends}")
        elif not _systems.is_this_python(python):
            warn(f"functions for this database run in {python}, which started its services, not in this Python: {ends}")
        return False

    def _unreachable(self, file: ServiceFile, what: str) -> StartFailed:
        pid = file.holder()
        who = f"process {pid}" if pid else f"the process that holds {file.lock}"
        return StartFailed(
            f"The embedded services run ({who}), but {file.path}, which says how to reach them,"
            f" {what}. End them with `kill {pid or 'PID'}` and connect again: nothing that is stored is lost"
        )

    def _system(self) -> dict[str, Any]:
        """What the system says that is told to serve the database, started first where it does not run."""
        file = ServiceFile(self._folder())
        said = file.running()
        if said is None:
            return self._start(file)
        if _is_of_another_release(said) and _systems.System(file.folder, said).end_if_idle():
            return self._start(file)
        return said

    def _start(self, file: ServiceFile) -> dict[str, Any]:
        log = file.folder / "logs" / "supervisor.log"
        try:
            log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            log.touch()
        except OSError as error:
            raise StartFailed(
                f"The embedded services keep their files in {file.folder}, which cannot be written: {error.strerror}"
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
        mended_by = 0.0  # when another one's file must be whole
        while time.monotonic() < end:
            said = file.running()
            if said is not None:
                return said
            code = child.poll()
            if code is not None and code not in _OTHER_THERE:
                raise _failure(f"ended at once with exit code {code}", log, before)
            if code is None or not file.path.exists():
                mended_by = 0.0
            if code is not None and not file.is_held():  # that one was on its way out: ours is needed after all
                child, mended_by = self._spawn(file.folder, log), 0.0
            elif code is not None:
                mended_by = mended_by or time.monotonic() + _MEND_SECONDS
                if time.monotonic() > mended_by:
                    raise self._unreachable(file, "cannot be understood")
            line.look()
            time.sleep(_POLL)
        raise _failure(f"were not ready within {self._deadline:.0f} seconds", log, before)

    def _spawn(self, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start the supervisor in a session of its own: it outlives this process and ends when idle.

        Raises StartFailed.
        """
        _services_here.require(StartFailed)
        places = ["--home", str(folder), "--register", str(_systems.register())]
        warm = self._writes or self._expects_writes
        options = [*(["--warm"] if warm else []), *(["--lifeline"] if self._lifeline else [])]
        with log.open("ab") as output:
            child = subprocess.Popen(
                _services_here.command("leman_local", *places, *options),
                cwd=folder,
                stdin=subprocess.PIPE if self._lifeline else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _service_file.children[child.pid] = child
        return child


def _is_of_another_release(said: dict[str, Any]) -> bool:
    """Whether services that run are of another release than those that would be started."""
    try:
        return said.get("version", "unknown") not in (metadata.version("leman-services"), "unknown")
    except metadata.PackageNotFoundError:
        return False


def _silence(pid: int, found: Endpoints, answer: grpc.RpcError, *, stopped: bool) -> str:
    what = f"process {pid} is stopped (as by SIGSTOP)" if stopped else f"process {pid} runs"
    return (
        f"The embedded services are there ({what}) but the planner at {found.planner} does not answer:"
        f" {answer.details()}. End them with `kill -9 {pid}` and connect again: nothing that is stored is lost"
    )


def _failure(what: str, log: Path, before: int) -> StartFailed:
    with log.open("rb") as stream:
        stream.seek(before)
        text = stream.read().decode(errors="replace").strip()
    tail = "\n  ".join(text.splitlines()[-_LOG_LINES:])
    return StartFailed(f"The embedded services {what}; {log} ends with:\n  {tail}")
