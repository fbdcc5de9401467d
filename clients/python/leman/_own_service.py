"""A service of one's own, for what needs no other one and leaves the database as it is."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from leman import _services_here
from leman._channel import Endpoints, Services
from leman.errors import StartFailed

_SECONDS = 60.0
_GOODBYE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Here:
    endpoints: Endpoints

    def check(self, *, reads: bool) -> None:
        """Every call may be made."""

    def expect_writes(self) -> None:
        """Nothing is to be started."""

    def would_start(self) -> bool:
        return False

    def locate_first(self) -> Endpoints:
        return self.endpoints

    def locate(self) -> Endpoints:
        return self.endpoints

    def find_restarted(self) -> Endpoints:
        return self.endpoints


@contextlib.contextmanager
def reading(services: Services, name: str) -> Iterator[Services]:
    """For a block that only reads by calls of one service: `services`, or one of its own where these would have to be
    started and are installed here. Raises StartFailed."""
    if services.reads_alone() and _services_here.are_installed():
        with own_service(name) as own:
            yield own
    else:
        yield services


@contextlib.contextmanager
def own_service(name: str) -> Iterator[Services]:
    """Run `planner` or `commit_coordinator` as a child of this process, on loopback, under a token that nobody else
    knows. It keeps no files. Raises StartFailed."""
    token = secrets.token_urlsafe(32)
    ours = {"HOST": "127.0.0.1", "PORT": "0", "TOKEN": token, "TLS_CERT": "", "TLS_KEY": "", "REUSE_PORT": "false"}
    _services_here.require(StartFailed)
    settings = {f"LEMAN_SERVER__{key}": value for key, value in ours.items()} | {"LEMAN_EMBEDDED__DATABASE": ""}
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            _services_here.command(_services_here.MODULES[name]),
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
                raise StartFailed("\n".join([f"the {name.replace('_', ' ')} did not come up", *said[-15:]]))
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
