"""Backfills and views whose values function servers compute, and what becomes of jobs as these die or change."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman._table_model import UdfInfo
from leman.error_handling import ErrorHandlingConfig, Skip
from leman.errors import FailedPrecondition, JobFailed, NotFound, PermissionDenied
from tests.certificates import Authority
from tests.conftest import ROOT, System, start_system, stop_system

TOKEN = "a-token-of-the-function-server"
EXAMPLE = [sys.executable, str(ROOT / "clients" / "python" / "examples" / "function_server.py")]
SLOW = [sys.executable, "-m", "tests.integration.remote_functions.slow_server"]
PATIENCE = 12.0
INTERVAL = 0.5
SKIP = ErrorHandlingConfig(on_error=[Skip()])

pytestmark = pytest.mark.spark


@dataclass
class FunctionServer:
    """A process that serves functions."""

    process: subprocess.Popen[str]
    port: int
    scheme: str = "grpc"

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End it, with what it has started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts function servers, which end with the test."""
    starter = Starter()
    yield starter
    starter.end()


class Starter:
    """Starts function servers."""

    def __init__(self) -> None:
        self._started: list[FunctionServer] = []

    def __call__(self, *command: str, scheme: str = "grpc") -> FunctionServer:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        server = FunctionServer(process, json.loads(process.stdout.readline())["port"], scheme)
        self._started.append(server)
        return server

    def end(self) -> None:
        """End those that run."""
        for server in self._started:
            server.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the system, its certificates and its credentials are."""
    return tmp_path_factory.mktemp("remote")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    """Signs the servers' certificates."""
    return Authority(folder)


@pytest.fixture(scope="module")
def remote_system(folder: Path, authority: Authority) -> Iterator[System]:
    """Services with credentials for servers over TLS, and little patience."""
    credentials = folder / "credentials.toml"
    credentials.write_text(
        f'[[server]]\naddress = "grpc+tls://127.0.0.1:*"\ntoken = "{TOKEN}"\nca = "{authority.ca}"\n'
    )
    system = start_system(
        folder / "lake",
        LEMAN_UDF__REMOTE_CREDENTIALS=str(credentials),
        LEMAN_UDF__REMOTE_PATIENCE_SECONDS=str(PATIENCE),
        LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS=str(INTERVAL),
        LEMAN_EXECUTOR__SLOTS="2",
    )
    yield system
    output = stop_system(system)
    assert TOKEN not in output


@pytest.fixture
def db(remote_system: System, tmp_path: Path) -> Iterator[leman.Database]:
    """A fresh database of these services."""
    with remote_system.connect(tmp_path / "lake") as database:
        yield database


def numbers(db: leman.Database, *values: int, rows: int = 1 << 20) -> leman.Table:
    return db.create_table("t", pa.table({"x": pa.array(values, pa.int64())}), max_rows_per_file=rows)


def of(known: UdfInfo, *columns: str) -> tuple[str, list[str]]:
    """A registered function, as a column's; by itself it reads columns that are called like its parameters."""
    return f"{known.name}@{known.version}", list(columns or known.input_columns)


def column(table: leman.Table, name: str) -> list[object]:
    return table.to_arrow([name])[name].to_pylist()


def batches(log: Path) -> list[list[int]]:
    """The rows of each batch that was begun, and whose end of line was written."""
    text = log.read_text() if log.exists() else ""
    return [[int(word) for word in line.split()[1:]] for line in text.splitlines(keepends=True) if line.endswith("\n")]


def wait_for(condition: object, what: str, seconds: float = 60.0) -> None:
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        pause.wait(0.01)


def test_a_backfill_has_its_values_computed_by_a_server(db, start):
    server = start(*EXAMPLE, "--port", "0")
    known = db.register_remote("double", addresses=[server.address])
    assert (known.kind, known.input_columns, known.data_type) == ("remote", ("x",), pa.int64())
    assert (known.addresses, db.udf("double")) == ((server.address,), known)
    upper = db.register_remote("loud", function="upper", addresses=[server.address], input_columns=["word"])
    words = [None if n % 3 == 0 else f"é{n}" for n in range(1000)]
    data = pa.table({"x": pa.array(range(1000), pa.int64()), "word": pa.array(words)})
    table = db.create_table("t", data, max_rows_per_file=300)
    table.add_columns({"y": of(known), "w": of(upper)})
    job = db.job(table.backfill("y", progress=False))
    table.backfill("w", progress=False)

    assert column(table, "y") == [2 * n for n in range(1000)]
    assert column(table, "w") == [word and word.upper() for word in words]
    assert (job.progress.rows_evaluated, table.describe().fragment_count) == (1000, 4)
    assert db.job(table.backfill("y", progress=False)).progress.rows_evaluated == 0


def test_a_view_has_a_column_of_a_server(db, start):
    server = start(*EXAMPLE, "--port", "0")
    known = db.register_remote("double", addresses=[server.address])
    table = numbers(db, *range(100), rows=30)
    query = table.search(None).where("x >= 50").select(["x"]).add_column("y", of(known))
    view = query.create_materialized_view(conn=db, view_name="v")
    view.refresh(progress=False)
    table.add(pa.table({"x": pa.array([1000], pa.int64())}))
    view.refresh(progress=False)
    assert sorted(column(view, "y")) == [*range(100, 200, 2), 2000]


def test_rows_that_a_server_refuses_are_isolated(db, start):
    server = start(*EXAMPLE, "--port", "0")
    known = db.register_remote("fail_on", addresses=[server.address], error_handling=SKIP)
    table = numbers(db, 1, -2, 3, 4, -5, 6)
    table.add_columns({"y": of(known)})
    job = table.backfill("y", progress=False)
    assert column(table, "y") == [1, None, 3, 4, None, 6]
    errors = db.get_errors(job)
    assert [(e.error_type, e.error_message) for e in errors] == [
        ("ValueError", "-2 is below zero"),
        ("ValueError", "-5 is below zero"),
    ]
    assert "function_server.py" in errors[0].traceback


def test_a_call_that_takes_too_long_is_ended(db, start):
    server = start(*EXAMPLE, "--port", "0")
    known = db.register_remote("slow", addresses=[server.address], error_handling=SKIP, timeout=1.5, batch_size=1)
    table = numbers(db, 1, 60_000)
    table.add_columns({"y": of(known, "x")})
    job = table.backfill("y", progress=False)
    assert column(table, "y") == [1, None]
    assert [e.error_type for e in db.get_errors(job)] == ["UdfTimeout"]


def test_another_server_takes_over_from_one_that_is_killed(db, start, tmp_path):
    """A function that is killed in the middle costs at most a checkpoint interval of each worker's work."""
    log = tmp_path / "log"
    servers = [start(*SLOW, "--log", str(log)) for _ in range(2)]
    known = db.register_remote("slowly", addresses=[server.address for server in servers])
    table = numbers(db, *range(3000), rows=1000)
    table.add_columns({"y": of(known)})
    job = table.backfill_async("y")
    wait_for(lambda: sum(map(len, batches(log))) > 500, "the job did not begin")
    servers[0].kill()
    job.result()

    assert column(table, "y") == list(range(3000))
    begun = [row for rows in batches(log) for row in rows]
    assert set(begun) == set(range(3000))
    assert len(begun) - 3000 <= 2 * INTERVAL * 1000  # of two workers, an interval's work of a millisecond for each row


def test_a_server_that_freezes_leaves_its_batch_to_another_one(db, start, tmp_path):
    """Its batch overran the timeout of the function, which failed the job."""
    log = tmp_path / "log"
    servers = [start(*SLOW, "--log", str(log)) for _ in range(2)]
    known = db.register_remote("slowly", addresses=[server.address for server in servers], timeout=2.0)
    table = numbers(db, *range(1200), rows=600)
    table.add_columns({"y": of(known)})
    job = table.backfill_async("y")
    wait_for(lambda: sum(map(len, batches(log))) > 100, "the job did not begin")
    os.kill(servers[0].process.pid, signal.SIGSTOP)
    job.result()
    assert column(table, "y") == list(range(1200))
    assert table.row_states("y").failed == 0


def test_the_only_server_may_be_away_for_a_while(db, start, tmp_path):
    log = tmp_path / "log"
    server = start(*SLOW, "--log", str(log))
    known = db.register_remote("slowly", addresses=[server.address])
    table = numbers(db, *range(2000))
    table.add_columns({"y": of(known)})
    job = table.backfill_async("y")
    wait_for(lambda: sum(map(len, batches(log))) > 200, "the job did not begin")
    server.kill()
    start(*SLOW, "--log", str(log), "--port", str(server.port))
    job.result()

    assert column(table, "y") == list(range(2000))
    assert sum(map(len, batches(log))) - 2000 <= 2 * INTERVAL * 1000


def test_another_version_is_not_taken_for_this_one(db, start, tmp_path):
    log = tmp_path / "log"
    server = start(*SLOW, "--log", str(log))
    db.register_remote("slowly", addresses=[server.address])
    table = numbers(db, *range(10))
    table.add_columns({"y": ("slowly@1", ["x"])})
    server.kill()
    start(*SLOW, "--log", str(log), "--port", str(server.port), "--version", "2")

    with pytest.raises(JobFailed, match="serves version 2 of function 'slowly', not 1") as caught:
        table.backfill("y", progress=False)
    assert (caught.value.reason, batches(log)) == ("FUNCTION_VERSION_MISMATCH", [])
    with pytest.raises(FailedPrecondition) as refused:
        db.register_remote("slowly", addresses=[server.address], version="1")
    assert refused.value.reason == "FUNCTION_VERSION_MISMATCH"
    assert db.register_remote("slowly", addresses=[server.address]).version == "2"
    table.alter_columns({"y": ("slowly@2", ["x"])})
    table.backfill("y", progress=False)
    assert column(table, "y") == list(range(10))


def test_a_job_ends_where_no_server_is_there(db, start):
    server = start(*EXAMPLE, "--port", "0")
    with pytest.raises(NotFound) as unknown:
        db.register_remote("triple", addresses=[server.address])
    assert unknown.value.reason == "FUNCTION_NOT_FOUND"
    known = db.register_remote("double", addresses=[server.address], error_handling=SKIP)
    table = numbers(db, 1, 2)
    table.add_columns({"y": of(known)})
    server.kill()

    with pytest.raises(JobFailed, match=f"was available for {PATIENCE:g} s") as caught:
        table.backfill("y", progress=False)
    assert caught.value.reason == "FUNCTION_UNAVAILABLE"
    assert "row_address" not in caught.value.facts
    assert table.row_states("y").failed == 0


def test_a_job_that_waits_for_a_server_can_be_paused(db, start):
    server = start(*EXAMPLE, "--port", "0")
    known = db.register_remote("double", addresses=[server.address])
    table = numbers(db, 1, 2)
    table.add_columns({"y": of(known)})
    server.kill()
    with socket.create_server(("127.0.0.1", server.port)) as silent:
        silent.settimeout(60)
        job = table.backfill_async("y")
        for _ in range(2):  # it was refused once, and asks again
            silent.accept()[0].close()
    job.pause()
    wait_for(lambda: job.status() is leman.JobState.PAUSED, "it did not pause")

    start(*EXAMPLE, "--port", str(server.port))
    job.resume()
    job.result()
    assert column(table, "y") == [2, 4]


def test_a_row_that_kills_the_server_is_isolated(db, start, tmp_path):
    log = tmp_path / "log"
    server = start(*SLOW, "--log", str(log), "--respawn")
    known = db.register_remote("slowly", addresses=[server.address], error_handling=SKIP)
    table = numbers(db, 1, -666, 3)
    table.add_columns({"y": of(known)})
    job = table.backfill("y", progress=False)
    assert column(table, "y") == [1, None, 3]
    errors = db.get_errors(job)
    assert [e.error_type for e in errors] == ["FunctionLost"]
    assert "broke 3 times" in errors[0].error_message


@pytest.mark.long
def test_servers_that_end_over_every_row_end_the_job_and_not_the_table(db, start, tmp_path):
    log = tmp_path / "log"
    server = start(*SLOW, "--log", str(log), "--respawn")
    known = db.register_remote("slowly", addresses=[server.address], error_handling=SKIP)
    table = numbers(db, *range(10), *[-666] * 1000, rows=10)
    table.add_columns({"y": of(known)})
    with pytest.raises(JobFailed, match="in succession") as caught:
        table.backfill("y", progress=False)
    assert caught.value.reason == "FUNCTION_UNAVAILABLE"
    assert column(table, "y")[:10] == list(range(10))
    states = table.row_states("y")
    assert states.failed < 100
    assert states.not_computed == 1010 - 10 - states.failed
    assert len(db.get_errors(caught.value.job_id)) == states.failed, "no row is failed in one place only"


def test_tokens_and_tls(db, start, authority):
    files = authority.server()
    server = start(
        *(*EXAMPLE, "--port", "0", "--token", TOKEN, "--cert", files.cert, "--key", files.key), scheme="grpc+tls"
    )
    known = db.register_remote("double", addresses=[server.address])
    table = numbers(db, 4, 5)
    table.add_columns({"y": of(known)})
    table.backfill("y", progress=False)
    assert column(table, "y") == [8, 10]
    other = start(
        *(*EXAMPLE, "--port", "0", "--token", "another", "--cert", files.cert, "--key", files.key), scheme="grpc+tls"
    )
    with pytest.raises(FailedPrecondition) as caught:
        db.register_remote("double", addresses=[other.address])
    assert caught.value.reason == "FUNCTION_ACCESS_DENIED"
    assert TOKEN not in str(caught.value)


def test_callers_cannot_send_the_services_anywhere(db):
    with pytest.raises(PermissionDenied) as caught:
        db.register_remote("double", addresses=["grpc://192.0.2.1:7815"])
    assert caught.value.reason == "UDF_NOT_ALLOWED"
