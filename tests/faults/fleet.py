"""Two of each service, as processes of their own, behind one address for each kind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import leman
from leman_core.process.release import MODULES, SERVICES
from tests import class_archive
from tests.conftest import ROOT
from tests.faults.lake import wait_for
from tests.redis_process import RedisProcess

TOKEN = "0123456789abcdef"
HOST = "127.0.0.1"
START_SECONDS = 180.0
STOP_SECONDS = 60.0


class Front:
    """One address of several servers, as that of a Service of Kubernetes: it knows bytes alone, and gives each
    connection to one of those that take it, in turn."""

    def __init__(self) -> None:
        self.behind: dict[int, str] = {}
        self._turns = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="front", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._connected, HOST, 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = [address for _, address in sorted(self.behind.items())]
        first = next(self._turns)
        for number in range(len(behind)):
            host, _, port = behind[(first + number) % len(behind)].rpartition(":")
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection(host, int(port))
                await asyncio.wait(
                    [asyncio.ensure_future(_passed_on(*way)) for way in ((reader, back), (there, writer))],
                    return_when=asyncio.FIRST_COMPLETED,
                )
                back.close()
                break
        writer.close()

    def close(self) -> None:
        """Listen no more; connections that there are break."""

        async def end() -> None:
            self._server.close()
            passing = asyncio.all_tasks() - {asyncio.current_task()}
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


async def _passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()


class Member:
    """One service of a fleet."""

    def __init__(self, fleet: Fleet, kind: str, number: int) -> None:
        self._fleet, self.kind, self._number = fleet, kind, number
        self._log = fleet.folder / f"{kind}-{number}.log"
        #: The release that it is started from.
        self.tree = fleet.tree
        self._begun = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self._number}"

    def start(self) -> None:
        """Start it; it has its address once it serves."""
        with self._log.open("ab") as log:
            self._begun = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module()],
                cwd=self.tree,
                env=os.environ | self._fleet.environment | {"PYTHONPATH": os.pathsep.join(self._import_path())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _module(self) -> str:
        """Return the module that runs it; releases before 0.2 call it like the service."""
        module = MODULES[self.kind]
        return module if (self.tree / self.kind / module).is_dir() else self.kind

    def _import_path(self) -> list[str]:
        roots = ("core", "planner", "executor", "commit_coordinator", "local", "clients/python")
        there = [self.tree / root for root in roots if self._module() != self.kind or root == "clients/python"]
        return [str(path) for path in (self.tree, *there)]

    def serve(self) -> None:
        """Wait until it takes calls, and have the front give it some."""
        port = wait_for(self._port, seconds=START_SECONDS)
        self._fleet.fronts[self.kind].behind[self._number] = f"{HOST}:{port}"

    def _port(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        for line in self._log.read_bytes()[self._begun :].splitlines():
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                if "port" in said and said.get("service") == self.kind:
                    return int(said["port"])
        return 0

    def end(self, number: signal.Signals) -> None:
        """Send it a signal, and wait until it is gone."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """Nothing of it is left, even in the middle of its work."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Fleet:
    """Two of each service, or of coordinators one alone, started from `tree`."""

    def __init__(
        self, folder: Path, redis_url: str, settings: dict[str, str], *, tree: Path, coordinators: int
    ) -> None:
        self.folder, self.tree = folder, tree
        self.fronts = {kind: Front() for kind in SERVICES}
        places = {kind.upper(): front.address for kind, front in self.fronts.items()}
        self.environment = {
            **{f"LEMAN_PEERS__{kind}": address for kind, address in places.items()},
            **{f"LEMAN_ADVERTISE__{kind}": address for kind, address in places.items()},
            "LEMAN_PEERS__TOKEN": TOKEN,
            "LEMAN_SERVER__TOKEN": TOKEN,
            "LEMAN_REDIS__URL": redis_url,
            **({"LEMAN_COMMIT__ALONE": "false"} if coordinators > 1 else {}),
            **class_archive.settings(),
            **settings,
        }
        self.members = [Member(self, kind, number) for kind in SERVICES for number in (1, 2)]
        if coordinators == 1:
            self.members.pop()

    def connect(self, database: Path) -> leman.Database:
        """As someone elsewhere, to whom rows come through the services."""
        endpoint = self.fronts["executor"].address
        return leman.connect(database, endpoint=endpoint, token=TOKEN, direct=False)


@contextlib.contextmanager
def running(folder: Path, *, tree: Path = ROOT, coordinators: int = 2, **settings: str) -> Iterator[Fleet]:
    """A fleet that runs until the end of the block."""
    with RedisProcess(folder) as redis:
        fleet = Fleet(folder, redis.url, settings, tree=tree, coordinators=coordinators)
        try:
            for member in fleet.members:
                member.start()
            for member in fleet.members:
                member.serve()
            yield fleet
        finally:
            for member in fleet.members:
                member.stop()
            for front in fleet.fronts.values():
                front.close()
