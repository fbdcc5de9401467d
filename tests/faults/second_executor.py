"""A second executor for a running system: a service of its own, which is frozen and woken."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

import leman
from tests.conftest import ROOT
from tests.faults.lake import Lake, alive, wait_for

START_SECONDS = 120.0
STOP_SECONDS = 60.0


class SecondExecutor:
    """It has planner, commit coordinator and Redis in common with the system, and a Spark of its own."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self._said = lake.said()
        self._log = folder / "second.log"
        self._frozen: list[psutil.Process] = []
        environment = {
            "LEMAN_PEERS__PLANNER": self._said["planner"],
            "LEMAN_PEERS__COMMIT_COORDINATOR": self._said["commit_coordinator"],
            "LEMAN_PEERS__TOKEN": self._said["token"],
            "LEMAN_SERVER__TOKEN": self._said["token"],
            "LEMAN_REDIS__URL": lake.redis_url,
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "leman_executor"],
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        wait_for(self._port, seconds=START_SECONDS)

    def _port(self) -> int:
        assert self._process.poll() is None, self._log.read_text()
        return next((int(line["port"]) for line in self.logged() if "port" in line), 0)

    def logged(self) -> list[dict[str, object]]:
        """What it printed and logged; a line may be half written."""
        found = []
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict)]

    @property
    def address(self) -> str:
        """Where it is called."""
        return f"127.0.0.1:{self._port()}"

    def connect(self, database: Path, *others: SecondExecutor) -> leman.Database:
        """As its user, and of others when it does not answer."""
        endpoints = [one.address for one in (self, *others)]
        return leman.connect(database, endpoint=endpoints, token=self._said["token"])

    def family(self) -> list[psutil.Process]:
        """It, its JVM and all workers, parents first."""
        top = psutil.Process(self.pid)
        return [top, *top.children(recursive=True)]

    def freeze(self, *, wholly: bool) -> None:
        """Stops its process, or `wholly` everything that it started too, as where a machine is paused."""
        top = psutil.Process(self.pid)
        top.suspend()
        self._frozen = [top]
        while wholly and (more := [p for p in top.children(recursive=True) if p not in self._frozen]):
            for process in more:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
            self._frozen += more

    def wake(self) -> None:
        """Lets all go on that was frozen."""
        frozen, self._frozen = self._frozen, []
        for process in reversed(frozen):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def stop(self) -> None:
        """Nothing of it is left."""
        self.wake()
        family = self.family() if self._process.poll() is None else []
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                if alive(process):
                    process.kill()


@contextlib.contextmanager
def second_executor(lake: Lake, folder: Path) -> Iterator[SecondExecutor]:
    """One that runs until the end of the block."""
    running = SecondExecutor(lake, folder)
    try:
        yield running
    finally:
        running.stop()
