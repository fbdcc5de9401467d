"""An embedded system of its own whose processes are killed, and the UDF that tells what was evaluated."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pyarrow as pa
import pytest
import redis

import leman
from leman_local.service_file import Home
from tests import class_archive
from tests.integration.call_log import values

DEADLINE = 60.0
SERVICES = ("planner", "executor", "commit_coordinator")

#: Seconds of work between two checkpoints of a worker, and what a row of `StoredWork.double` costs at the least.
INTERVAL_SECONDS = 0.2
ROW_SECONDS = 0.005
#: Rows are handed to the function for about a tenth of a second at a time, and a checkpoint is due between two such
#: slices: a worker that dies takes with it what it did in one interval and one slice.
SLICE_SECONDS = 0.1
ROWS_AT_RISK = round((INTERVAL_SECONDS + SLICE_SECONDS) / ROW_SECONDS)
WORKERS = 4


def wait_for(what: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < deadline, "waited without success"
        time.sleep(0.005)
    return answer


def alive(process: psutil.Process) -> bool:
    """A zombie is not: it waits for anyone who adopted it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def watch_until(future: leman.JobFuture, reached: Callable[[leman.Progress], bool]) -> None:
    """Until the job says so; it must not be over then."""
    for job, _ in future.watch(timeout=DEADLINE):
        assert not job.state.terminal, "the job was over before the fault"
        if reached(job.progress):
            return


def checkpointed(rows: int) -> Callable[[leman.Progress], bool]:
    """For `watch_until`: this many rows are safe."""
    return lambda progress: progress.rows_checkpointed >= rows


def settings(folder: Path) -> dict[str, str]:
    """What the systems of these tests run with."""
    return {
        "LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS": str(INTERVAL_SECONDS),
        "LEMAN_EXECUTOR__SLOTS": str(WORKERS),
        # a slow machine makes no commits of its own: it is counted how often files are installed
        "LEMAN_EXECUTOR__PARTIAL_COMMIT_SECONDS": "3600",
        "LEMAN_EXECUTOR__RESERVATION_TTL_SECONDS": "2",
        "LEMAN_EXECUTOR__ENV_FOLDER": str(folder.parent / "env"),
        "LEMAN_SERVER__GRACE_SECONDS": "5",
        "LEMAN_EMBEDDED__IDLE_SECONDS": "0",
        **class_archive.settings(),
        "LEMAN_SPARK__ON_DEMAND": "false",
        "LEMAN_CRASH": str(folder),
    }


class CallLog:
    """A file that a UDF appends each input to, with the process it saw it in. Appends of a few bytes are atomic."""

    def __init__(self, folder: Path, name: str):
        self.folder = folder
        self._path = folder / f"{name}.txt"
        self._name = name

    def lines(self) -> list[list[int]]:
        """Each call: its input, the process that made it, and that one's session, which is its executor's."""
        text = self._path.read_text() if self._path.exists() else ""
        return [[int(word) for word in line.split()] for line in text.splitlines() if text]

    def seen(self) -> list[int]:
        """All inputs, in the order of the calls."""
        return [line[0] for line in self.lines()]

    def wait(self, rows: int) -> None:
        """Wait until this many calls were made."""
        wait_for(lambda: len(self.seen()) >= rows)

    def again(self) -> int:
        """How many calls were for a row that had been seen before."""
        seen = self.seen()
        return len(seen) - len(set(seen))

    def worker(self) -> int:
        """The process that made the last call."""
        return self.lines()[-1][1]

    def workers(self) -> set[int]:
        """All processes that made calls."""
        return {line[1] for line in self.lines()}

    def double(
        self, *, seconds: float = ROW_SECONDS, fatal: int = -1, version: str = "1", variable: str = ""
    ) -> leman.UDF:
        """x → 2x, taking its time; its process ends at the row `fatal`. It raises where the `variable` is not set."""
        path = str(self._path)

        def double(x: int) -> int:
            import os
            import time

            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{x} {os.getpid()} {os.getsid(0)}\n".encode())
            os.close(handle)
            if x == fatal:
                os._exit(1)
            if variable:
                os.environ[variable]
            if seconds:
                time.sleep(seconds)
            return 2 * x

        return leman.udf(data_type=pa.int64(), name=f"double_{self._name}", version=version)(double)


class Lake:
    """A running embedded system and its database."""

    def __init__(self, database: Path):
        self.database = database
        self.armed = database.parent / "crash"
        self.armed.mkdir(parents=True, exist_ok=True)
        self.env_folder = database.parent / "env"
        database.mkdir(exist_ok=True)
        self._home = self._own = Home.of(database)
        self._family: set[psutil.Process] = set()

    def said(self) -> dict[str, Any]:
        """What the system announced: addresses, token, process ids."""
        with contextlib.suppress(FileNotFoundError):
            said = json.loads(self._own.service_file.read_text())
            self._home = Home(Path(said["home"]))
            return said
        return {}

    @property
    def home(self) -> Home:
        """The folder of the system that serves it, or did so last."""
        self.said()
        return self._home

    def pid(self, name: str) -> int:
        """Process id of the supervisor, a service or Redis as it was last announced."""
        said = self.said()
        return int(said["pid"] if name == "supervisor" else said["pids"][name])

    def connect(self) -> leman.Database:
        """As a user does: what is not running is started."""
        database = leman.connect(self.database)
        database.start()
        return database

    @property
    def redis_url(self) -> str:
        """Of the system's own Redis."""
        words = dict(line.split(maxsplit=1) for line in (self.home.redis / "redis.conf").read_text().splitlines())
        password = words["requirepass"]
        if "unixsocket" in words:
            return f"unix://:{password}@{quote(str(self.home.redis / 'redis.sock'))}"
        return f"redis://:{password}@127.0.0.1:{words['port']}"

    def redis(self) -> redis.Redis:
        """A client of it."""
        return redis.Redis.from_url(self.redis_url)

    def family(self) -> set[psutil.Process]:
        """The supervisor and everything below it, now and at earlier calls."""
        with contextlib.suppress(psutil.NoSuchProcess, KeyError):
            top = psutil.Process(self.pid("supervisor"))
            self._family |= {top, *top.children(recursive=True)}
        return self._family

    def kill(self, pid: int) -> None:
        """kill -9, and proof that the process is gone."""
        assert alive(psutil.Process(pid))
        os.kill(pid, signal.SIGKILL)
        self.wait_gone(pid)

    def wait_gone(self, pid: int) -> None:
        """Until a process is dead."""
        with contextlib.suppress(psutil.NoSuchProcess):
            victim = psutil.Process(pid)
            wait_for(lambda: not alive(victim))

    def wait_back(self, name: str, before: int) -> None:
        """Until the supervisor has a service up again."""
        wait_for(lambda: self.said().get("pids", {}).get(name, before) != before)

    def arm(self, point: str, passes: int = 1) -> None:
        """Lets the process that comes to a crash point for the `passes`th time die there, once."""
        for n in range(1, passes + 1):
            (self.armed / f"{point}:{n}").touch()

    def went_off(self, point: str) -> bool:
        """Whether someone died there."""
        return not list(self.armed.glob(f"{point}:*"))

    def stop(self) -> None:
        """Ends it; nothing is left."""
        family = self.family()
        with contextlib.suppress(psutil.NoSuchProcess, KeyError):
            os.kill(self.pid("supervisor"), signal.SIGTERM)
        gone_by = time.monotonic() + DEADLINE
        while any(alive(process) for process in family) and time.monotonic() < gone_by:
            time.sleep(0.01)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def installed_files(table: leman.Table, column: str) -> dict[int, list[str]]:
    """Every column file that a fragment ever had, in the order of the table's versions."""
    latest = table.to_lance()
    field = next(f.id() for f in latest.lance_schema.fields() if f.name() == column)
    found: dict[int, list[str]] = {}
    for version in range(1, latest.version + 1):
        for fragment in latest.checkout_version(version).get_fragments():
            for file in fragment.metadata.files:
                if file.fields == [field] and file.path not in found.setdefault(fragment.fragment_id, []):
                    found[fragment.fragment_id].append(file.path)
    return found


def check_settled(db: leman.Database, table: leman.Table, rows: int, column: str = "y") -> None:
    """What holds after every fault: all values right, each fragment's file installed exactly once, all jobs ended,
    nothing left to do."""
    assert values(table, column) == {x: 2 * x for x in range(rows)}
    installed = installed_files(table, column)
    assert Counter(len(files) for files in installed.values()) == {1: len(table.to_lance().get_fragments())}
    assert all(job.state.terminal for job in db.jobs(table.name))
    version = table.version
    again = db.job(table.backfill(column, progress=False))
    assert again.state is leman.JobState.DONE
    assert (again.progress.rows_evaluated, again.progress.spark_jobs) == (0, 0)
    assert table.version == version


@contextlib.contextmanager
def armed_lake(folder: Path, **other: str) -> Iterator[Lake]:
    """Started by anyone who connects first. The settings are in our own environment, as it is the SDK that starts
    it."""
    running = Lake(folder / "lake")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (settings(running.armed) | other).items():
            patch.setenv(name, value)
        yield running
        running.stop()
