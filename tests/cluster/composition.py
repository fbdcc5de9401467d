"""docker-compose.yml without a container engine.

Each container is a host of its own, which runs what the file says, with the environment, volumes, ports and health
checks that it says. Limits, capabilities and read-only roots take a container engine: `test_compose.py` reads them.

What images bring is this machine's: the Python environment of the tests for the image of the services, a Redis of the
environment for that of Redis, whose entry point runs what it is given. All run as root.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.network import Host, network
from tests.compose_file import SERVICES, environment, filled_in
from tests.conftest import ROOT
from tests.redis_process import redis_binary

#: The machine on which `docker compose up` was said, with the published ports.
MACHINE = "machine"
#: Where containers have certificates, and the settings that name them.
CERTIFICATES = "/certificates"
TLS = {
    "LEMAN_SERVER__TLS_CERT": f"{CERTIFICATES}/server.pem",
    "LEMAN_SERVER__TLS_KEY": f"{CERTIFICATES}/server.key",
    "LEMAN_PEERS__TLS_CA": f"{CERTIFICATES}/ca.pem",
}
_START_SECONDS = 180.0
_SECONDS = re.compile(r"(\d+)s")


@dataclass
class Composition:
    """Containers by name, in the order in which they were started, and became healthy."""

    hosts: Mapping[str, Host]
    chosen: dict[str, str]
    image: dict[str, str]
    #: Whether the services have certificates, as the head of the file has it.
    tls: bool = False
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    healthy: list[str] = field(default_factory=list)

    def up(self) -> None:
        """Start each container once those that it depends on are as it wants them, and wait until all are healthy."""
        waiting, deadline = [name for name in self.hosts if name != MACHINE], time.monotonic() + _START_SECONDS
        while waiting or len(self.healthy) < len(self.running):
            for name in [name for name in waiting if set(_depends_on(name)) <= set(self.healthy)]:
                waiting.remove(name)
                command = [filled_in(word, self.chosen) for word in SERVICES[name]["command"]]
                self.running[name] = self.hosts[name].start(command, self._environment(name), within="/data")
            for name, process in self.running.items():
                assert process.poll() is None, self.hosts[name].said()
                if name not in self.healthy and self.is_healthy(name):
                    self.healthy.append(name)
            assert time.monotonic() < deadline, {name: host.said() for name, host in self.hosts.items()}

    def _environment(self, name: str) -> dict[str, str]:
        given = environment(name, self.chosen)
        if self.tls and given.pop("LEMAN_SERVER__ALLOW_INSECURE_BIND", ""):
            given |= TLS
        return self.image | given

    def is_healthy(self, name: str) -> bool:
        """Whether the container's own check says so; it is where it has none."""
        if "healthcheck" not in SERVICES[name]:
            return True
        kind, *command = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        seconds = _seconds(SERVICES[name]["healthcheck"]["timeout"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.hosts[name].run(command, self._environment(name), seconds=seconds).returncode == 0
        return False

    def down(self) -> dict[str, int | None]:
        """Ask containers to end, those first that depend on others; return their exit codes, None where one did not end
        in the time that it is given."""
        ended: dict[str, int | None] = {}
        for name, process in reversed(self.running.items()):
            process.terminate()
            try:
                ended[name] = process.wait(_seconds(SERVICES[name].get("stop_grace_period", "10s")))
            except subprocess.TimeoutExpired:
                ended[name] = None
        return ended


def _depends_on(name: str) -> list[str]:
    wanted = SERVICES[name].get("depends_on", {})
    assert all(condition == {"condition": "service_healthy"} for condition in wanted.values()), wanted
    return list(wanted)


def _seconds(text: str) -> float:
    found = _SECONDS.fullmatch(text)
    assert found is not None, text
    return float(found[1])


@contextlib.contextmanager
def composed(
    folder: Path, chosen: dict[str, str], *profiles: str, certificates: Path | None = None
) -> Iterator[Composition]:
    """Do `docker compose up` with these variables and profiles; `down` where that was not done, and its volumes.

    Args:
        certificates: Has `server.pem`, its key and the `ca.pem` that signed it; None: there is no TLS.
    """
    names = [name for name, given in SERVICES.items() if set(given.get("profiles", profiles)) <= {*profiles}]
    volumes = {name: folder / f"volume-{name}" for name in ("data", "redis")}
    for volume in volumes.values():
        volume.mkdir()
    binds = {name: _binds(SERVICES[name], volumes) for name in names}
    binds["redis"]["/image"] = _programs(folder)
    if certificates is not None:
        for bound in (*binds.values(), binds.setdefault(MACHINE, {})):
            bound[CERTIFICATES] = certificates
    with network(folder, [*names, MACHINE], binds=binds) as hosts:
        made = Composition(hosts, chosen, _image(), tls=certificates is not None)
        try:
            made.up()
            with _published(hosts[MACHINE], names):
                yield made
        finally:
            for volume in volumes.values():
                shutil.rmtree(volume)


def _binds(service: dict[str, Any], volumes: Mapping[str, Path]) -> dict[str, Path]:
    # /tmp is this machine's: the tests' own folders lie there.
    named = [volume.split(":") for volume in service.get("volumes", ()) if not volume.endswith(":/tmp")]
    return {target: volumes[name] for name, target in named} or {"/data": volumes["data"]}


def _programs(folder: Path) -> Path:
    """What the image of Redis has: its programs, and an entry point."""
    programs = folder / "programs"
    programs.mkdir()
    for program in ("redis-server", "redis-cli"):
        (programs / program).symlink_to(Path(redis_binary()).with_name(program))
    entry = programs / "docker-entrypoint.sh"
    entry.write_text('#!/bin/sh\nexec "$@"\n')
    entry.chmod(0o755)
    return programs


def _image() -> dict[str, str]:
    """The environment that the Dockerfile gives; the path is that of the tests."""
    found = re.findall(r"^ENV PATH=\S+ (?:\\\n)?((?:.*\\\n)*.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    given = dict(word.split("=") for word in found[-1].replace("\\\n", " ").split())
    assert "LANCE_LOG" in given
    path = f"/image:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return given | {"PATH": path} | {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}


@contextlib.contextmanager
def _published(machine: Host, names: list[str]) -> Iterator[None]:
    pairs = []
    for name in names:
        for published in SERVICES[name].get("ports", ()):
            host, outside, inside = published.split(":")
            pairs.append(f"{host}:{outside}={name}:{inside}")
    command = machine.command([sys.executable, "-m", "tests.cluster.publish", *pairs], within=str(ROOT))
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listening\n"
        yield
    finally:
        process.terminate()
        process.communicate()
