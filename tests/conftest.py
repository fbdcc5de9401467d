"""One embedded system for the whole suite: real services, real Redis, one Spark session."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import leman
from tests import bytecode, class_archive, scheduling, tiers
from tests.object_store.store_server import MODULE, VARIABLE, Program, program

bytecode.write_while_collecting()

START_SECONDS = 120.0
ROOT = Path(__file__).resolve().parent.parent
# No test asserts a speed, and the suite tries the same examples each time; LEMAN_LONG=1 tries others.
settings.register_profile("leman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", settings.get_profile("leman"), derandomize=True)
settings.load_profile("leman" if os.environ.get("LEMAN_LONG") else "suite")
# Systems that tests have started for them keep their files elsewhere than those of the user.
STATE = tempfile.mkdtemp(prefix="leman-tests-")
atexit.register(shutil.rmtree, STATE, ignore_errors=True)
os.environ["XDG_STATE_HOME"] = STATE
# A line at debug in which gRPC names a server that it is freeing ends the process in which pytest keeps it.
logging.getLogger("grpc._cython.cygrpc").setLevel(logging.INFO)
# What asyncio says when gRPC has news for the loop of an earlier test is not of the test that runs then.
logging.getLogger("asyncio").addFilter(lambda record: "PollerCompletionQueue._handle_events" not in record.getMessage())


@dataclass(frozen=True)
class System:
    """A running embedded system. `service` is the content of its service file."""

    database: Path
    process: subprocess.Popen[bytes]

    @property
    def service(self) -> dict[str, object]:
        return json.loads((self.database / "_leman" / "service.json").read_text())

    def connect(self, path: Path) -> leman.Database:
        """A database of its own, served by this system."""
        service = self.service
        return leman.connect(path, endpoint=str(service["executor"]), token=str(service["token"]))


def start_system(database: Path, **settings: str) -> System:
    """Starts an embedded system and returns when it is ready."""
    database.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "leman_local", "--database", str(database), "--idle-seconds", "0"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")}
    environment |= class_archive.settings() | settings
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    # not through leman.connect: it would start a supervisor of its own, and either might win
    service_file, pause = database / "_leman" / "service.json", threading.Event()
    deadline = time.monotonic() + START_SECONDS
    while not service_file.exists():
        assert process.poll() is None, "the supervisor ended"
        assert time.monotonic() < deadline, "the system did not start"
        pause.wait(0.02)
    return System(database, process)


def stop_system(system: System) -> str:
    """Ends it and returns what it printed."""
    system.process.send_signal(signal.SIGTERM)
    output, _ = system.process.communicate(timeout=60)
    return output.decode()


@pytest.fixture(scope="session")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    running = start_system(tmp_path_factory.mktemp("system") / "lake")
    yield running
    stop_system(running)


@pytest.fixture
def db(system: System, tmp_path: Path) -> Iterator[leman.Database]:
    """A fresh database under a path with spaces and more."""
    path = tmp_path / "a lake, né 1"
    path.mkdir()
    with system.connect(path) as database:
        yield database


@pytest.fixture(scope="session")
def store_program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program of an object store."""
    base = tmp_path_factory.getbasetemp()  # below that of all processes, where there are several
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "go-programs"
    folder.mkdir(exist_ok=True)
    found = program(folder, thorough=bool(os.environ.get("LEMAN_LONG")))
    if found is None:
        pytest.skip(f"no object store: put versitygw on PATH, name it in {VARIABLE}, or LEMAN_LONG=1 builds {MODULE}")
    return found


def pytest_configure(config: pytest.Config) -> None:
    """Before processes are started that run files side by side: they import as much as this one."""
    side_by_side = bool(config.getoption("numprocesses", None))
    bytecode.use(renew=side_by_side)
    if side_by_side and os.environ.get(tiers.VARIABLE) != "fast":
        class_archive.make()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the tier that was asked for, and what takes long unless the full tier was."""
    name = os.environ.get(tiers.VARIABLE)
    if name:
        tier = tiers.Tier[name.upper()]
        others = [item for item in items if tiers.tier_of(item.nodeid) > tier]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if tiers.tier_of(item.nodeid) <= tier]
    if not os.environ.get("LEMAN_LONG") and name != "full":
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long; ./leman test --full or LEMAN_LONG=1 runs it"))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(scheduling.group(item.nodeid)))
    items.sort(key=lambda item: scheduling.order(item.nodeid))


def pytest_collection_finish() -> None:
    """After the test modules are imported."""
    bytecode.stop_writing()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of several processes one waits; see `scheduling`."""
    return scheduling.WaitingApart(config, log) if config.getvalue("dist") == "loadfile" else None
