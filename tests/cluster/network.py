"""Hosts with addresses, files and names of their own on one machine.

Each is a network namespace on a bridge that reaches nothing else, with a root folder of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.conftest import ROOT

_NETWORK = "10.86.0"
_FIRST = 10
_STOP_SECONDS = 30.0
_NETWORK_NAMESPACE = 0x40000000
#: Enters a root folder of its own, in which all of the machine's folders are, but those that are hidden or have
#: another content. Arguments: the new root; the host's name; its folder for /tmp; its /etc/hosts; hidden folders, a
#: line each; `source target` of others, a line each; the folder to be in; the command.
_ENTER = """
set -eu
root=$1 name=$2 tmp=$3 hosts=$4 hidden=$5 binds=$6 in=$7
shift 7
mount -t tmpfs tmpfs "$root"
for entry in /*; do
  if [ -L "$entry" ]; then cp -P "$entry" "$root"
  elif [ "$entry" = /tmp ]; then mkdir "$root/tmp" && mount --bind "$tmp" "$root/tmp"
  elif [ -d "$entry" ]; then mkdir "$root$entry" && mount --rbind "$entry" "$root$entry"
  fi
done
mount --bind "$hosts" "$root/etc/hosts"
echo "$hidden" | while read -r path; do
  [ -z "$path" ] || [ ! -d "$root$path" ] || mount -t tmpfs tmpfs "$root$path"
done
echo "$binds" | while read -r source target; do
  [ -z "$target" ] || { mkdir -p "$root$target"; mount --bind "$source" "$root$target"; }
done
echo "$name" > /proc/sys/kernel/hostname
exec chroot "$root" sh -c 'cd "$0" && exec "$@"' "$in" "$@"
"""


def why_not() -> str:
    """Say what is missing for separate hosts; empty where nothing is."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return "hosts with addresses of their own need root on Linux"
    for program in ("ip", "unshare", "chroot", "mount"):
        if not shutil.which(program):
            return f"hosts with addresses of their own need the program {program}"
    name = f"leman-probe-{os.getpid()}"
    made = _run("ip", "netns", "add", name)
    mounted = made and _run(
        "ip", "netns", "exec", name, "unshare", "--uts", "--mount", "mount", "-t", "tmpfs", "x", "/mnt"
    )
    if made:
        _run("ip", "netns", "del", name)
    return "" if mounted else "this machine does not let anyone make namespaces for networks, mounts and names"


def _run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Host:
    """One host of a network."""

    name: str
    address: str
    #: Its own files: `tmp`, and the log of each of its processes.
    folder: Path
    #: The network namespace.
    namespace: str
    names: Path
    binds: Mapping[str, Path]
    hidden: Sequence[str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def command(self, command: Sequence[str], *, within: str = "/") -> list[str]:
        """Return what runs a command here."""
        binds = "\n".join(f"{source} {target}" for target, source in self.binds.items())
        files = [self.folder / "root", self.name, self.folder / "tmp", self.names, "\n".join(self.hidden), binds]
        enter = ["unshare", "--uts", "--mount", "sh", "-c", _ENTER, "enter", *map(str, files), within]
        return ["ip", "netns", "exec", self.namespace, *enter, *command]

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], *, within: str = "/", log: str = "log"
    ) -> subprocess.Popen[bytes]:
        """Start a process with this environment alone; what it prints goes to a file of the host's folder."""
        with (self.folder / log).open("ab") as out:
            process = subprocess.Popen(
                self.command(command, within=within),
                env={"PATH": os.environ["PATH"], **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], *, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        Raises:
            subprocess.TimeoutExpired: It took longer.
        """
        return subprocess.run(
            self.command(command),
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def said(self, log: str = "log") -> str:
        """Return what its processes have printed."""
        path = self.folder / log
        return path.read_text(errors="replace") if path.exists() else ""

    def all_said(self) -> dict[str, str]:
        """Return what its processes have printed, by the names of their logs; of Spark's, those of its applications."""
        logs = [*self.folder.glob("log*"), *self.folder.glob("tmp/work/*/*/std*")]
        found = {str(path.relative_to(self.folder)): path.read_text(errors="replace") for path in sorted(logs)}
        return {name: said for name, said in found.items() if said}

    def alive(self) -> list[psutil.Process]:
        """Return all processes that run here."""
        shown = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=True)
        found = []
        for pid in map(int, shown.stdout.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def kill(self) -> None:
        """kill -9 of all that runs here, as when the power fails; other hosts see their connections end."""
        deadline, pause = time.monotonic() + _STOP_SECONDS, threading.Event()
        while processes := self.alive():
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            assert time.monotonic() < deadline, f"{processes} do not end"
            pause.wait(0.02)
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Ask what was started here to end, as when a machine is shut down; kill what is left after that time."""
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + seconds
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()

    def listen(self, port: int) -> socket.socket:
        """Return a socket of this process that listens on the host: its connections are the host's, so that they end
        where its link is cut."""
        made: list[socket.socket] = []
        entering = threading.Thread(target=lambda: made.append(self._listening(port)), name=f"enter-{self.name}")
        entering.start()
        entering.join()
        return made[0]

    def _listening(self, port: int) -> socket.socket:
        """In a thread that ends here: it is the thread alone that enters the host's network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/run/netns", self.namespace).open() as namespace:
            entered = libc.setns(namespace.fileno(), _NETWORK_NAMESPACE)
        assert entered == 0, os.strerror(ctypes.get_errno())
        return socket.create_server(("0.0.0.0", port))

    def cut(self) -> None:
        """Pull the plug of its network: nothing comes or goes, and no one is notified."""
        _ip(f"-n {self.namespace} link set eth0 down")

    def mend(self) -> None:
        """Plug it in again."""
        _ip(f"-n {self.namespace} link set eth0 up")


def _ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


@contextlib.contextmanager
def network(
    folder: Path,
    names: Sequence[str],
    *,
    binds: Mapping[str, Mapping[str, Path]],
    without_python: Sequence[str] = (),
) -> Iterator[dict[str, Host]]:
    """Make hosts that find one another by name, and remove them with all that runs on them and all their files.

    Args:
        binds: host → folder in its root → what is mounted there; folders that this machine does not have.
        without_python: hosts that have nothing of this repository and its Python environment.
    """
    tag = f"leman-{os.getpid()}-{folder.name}"
    hub, known = f"{tag}-hub", folder / "hosts"
    addresses = {name: f"{_NETWORK}.{_FIRST + n}" for n, name in enumerate(names)}
    known.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in addresses.items()))
    mine = [str(ROOT), *([sys.base_prefix] if sys.base_prefix != "/usr" else [])]
    in_tmp = {path: Path(path) for path in mine if Path(path).is_relative_to("/tmp")}
    hosts = {}
    for name, address in addresses.items():
        hidden, seen = (mine, {}) if name in without_python else ((), in_tmp)
        bound = {**seen, **binds.get(name, {})}
        hosts[name] = Host(name, address, folder / name, f"{tag}-{name}", known, bound, hidden)
        for sub in ("root", "tmp"):
            (folder / name / sub).mkdir(parents=True)
    try:
        _ip(f"netns add {hub}", f"-n {hub} link add br0 type bridge", f"-n {hub} link set br0 up")
        for number, host in enumerate(hosts.values()):
            _ip(
                f"netns add {host.namespace}",
                f"-n {host.namespace} link set lo up",
                f"-n {hub} link add v{number} type veth peer name eth0 netns {host.namespace}",
                f"-n {hub} link set v{number} master br0",
                f"-n {hub} link set v{number} up",
                f"-n {host.namespace} addr add {host.address}/24 dev eth0",
                f"-n {host.namespace} link set eth0 up",
            )
        yield hosts
    finally:
        _remove(hosts, hub)


def _remove(hosts: Mapping[str, Host], hub: str) -> None:
    there = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    made = {line.split()[0] for line in there.splitlines() if line.split()}
    for host in reversed(hosts.values()):
        if host.namespace in made:
            host.kill()
            _ip(f"netns del {host.namespace}")
        shutil.rmtree(host.folder, ignore_errors=True)
    if hub in made:
        _ip(f"netns del {hub}")
