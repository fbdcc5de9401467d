"""A whole installation over hosts with addresses of their own: Redis, the three services, and a Spark cluster whose
workers have nothing of the services' Python environment. All connections between hosts are encrypted."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pyspark
from cryptography import x509

import leman
from leman_core.process.release import MODULES
from leman_core.server.healthcheck import check
from tests.certificates import Authority, Files
from tests.cluster.network import Host, network
from tests.conftest import ROOT
from tests.integration.installed.environments import Environment, build_wheels
from tests.object_store.options import options_file
from tests.redis_process import redis_binary

SPARK = Path(pyspark.__file__).parent
PEERS = ("planner", "executor", "commit-coordinator")
#: Hosts for a second one of each, which some tests start.
SECOND = tuple(f"{peer}-2" for peer in PEERS)
#: One address for both of each kind, by a port of its own.
FRONT = "front"
FRONT_PORTS = {peer: 7501 + number for number, peer in enumerate(PEERS)}
WORKERS = ("one", "two")
MASTER = "spark-master"
#: Where an object store is that some tests start.
STORE, STORE_PORT = "store", 8333
#: Where callers are: it reaches all others.
OUTSIDE = "outside"
HOSTS = ("redis", *PEERS, *SECOND, FRONT, MASTER, *WORKERS, STORE, OUTSIDE)
PORT = 7443
CORES = 2
START_SECONDS = 180.0
#: Seconds of work between two checkpoints of a worker.
INTERVAL_SECONDS = 1.0

_TOKEN, _PASSWORD, _SPARK_SECRET = (secrets.token_hex(16) for _ in range(3))
#: Spark's own connections, encrypted; what `LEMAN_SPARK__CONF` and Spark's own processes are given.
_SPARK_CONF = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": _SPARK_SECRET,
    "spark.network.crypto.enabled": "true",
}
#: What workers unpack, on the share.
ARCHIVE = "/data/leman-env.tar.gz"
#: Where hosts may have it unpacked already, as in an image; `Cluster.unpacked` prepares it.
UNPACKED = "/leman-env"
_LOOPBACK = x509.IPAddress(ip_address("127.0.0.1"))
_JAVA = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}


@dataclass(frozen=True)
class Cluster:
    """What runs where, and how it is reached. `data` is the hosts' `/data`, a share that all of them have."""

    hosts: Mapping[str, Host]
    data: Path
    #: Service, or kind of services as `any planner` → port of this machine's loopback that leads there.
    ports: Mapping[str, int]
    authority: Authority
    certificates: Mapping[str, Files]
    #: The store's settings of the services.
    storage: Mapping[str, str]
    #: Of each host of workers.
    cores: int = CORES

    def connect(self, name: str, root: str = "/data") -> leman.Database:
        """A database on the share, or in the store. Rows go through the services."""
        return leman.connect(
            f"{root}/{name}",
            endpoint=[f"127.0.0.1:{self.ports[f'any {peer}']}" for peer in PEERS],
            token=_TOKEN,
            tls_ca=self.authority.ca,
            direct=False,
        )

    def start_redis(self) -> None:
        """A Redis that others reach over TLS alone."""
        host, cert = self.hosts["redis"], self.certificates["redis"]
        conf = host.folder / "tmp" / "redis.conf"
        conf.write_text(f'bind 127.0.0.1\nport 6380\nsave ""\ndir /tmp\nrequirepass {_PASSWORD}\n')
        host.start([redis_binary(), "/tmp/redis.conf"], {})
        command = [sys.executable, "-m", "tests.cluster.publish", "0.0.0.0:6379=127.0.0.1:6380"]
        host.start([*command, "--tls", _on_hosts(cert.cert), _on_hosts(cert.key)], {}, within=str(ROOT))

    def start_front(self) -> None:
        """What services reach one another by."""
        pairs = [f"0.0.0.0:{port}={behind(peer)}" for peer, port in FRONT_PORTS.items()]
        self.hosts[FRONT].start([sys.executable, "-m", "tests.cluster.publish", *pairs], {}, within=str(ROOT))

    def start_service(self, name: str, **more: str) -> None:
        """One of the three, by its own command, on the host of that name or on the second one for it."""
        cert = self.certificates[name]
        settings = {
            "HOST": self.hosts[name].address,
            "PORT": str(PORT),
            "TOKEN": _TOKEN,
            "TLS_CERT": _on_hosts(cert.cert),
            "TLS_KEY": _on_hosts(cert.key),
        }
        environment = {f"LEMAN_SERVER__{key}": value for key, value in settings.items()}
        for peer in PEERS:
            variable = peer.replace("-", "_").upper()
            environment[f"LEMAN_PEERS__{variable}"] = f"{FRONT}:{FRONT_PORTS[peer]}"
            environment[f"LEMAN_ADVERTISE__{variable}"] = f"127.0.0.1:{self.ports[f'any {peer}']}"
        environment |= {
            "LEMAN_PEERS__TOKEN": _TOKEN,
            "LEMAN_PEERS__TLS_CA": _on_hosts(self.authority.ca),
            "LEMAN_REDIS__URL": f"rediss://:{_PASSWORD}@redis:6379/0?ssl_ca_certs={_on_hosts(self.authority.ca)}",
            "LANCE_LOG": "error",
        }
        kind = name.removesuffix("-2")
        if kind == "executor":
            environment |= self._spark_settings() | {"LEMAN_EXECUTOR__ADDRESS": f"{name}:{PORT}"}
        command = [sys.executable, "-m", MODULES[kind.replace("-", "_")]]
        self.hosts[name].start(command, _JAVA | environment | self.storage | more)

    def _spark_settings(self) -> dict[str, str]:
        return {
            "LEMAN_SPARK__MASTER": f"spark://{MASTER}:7077",
            "LEMAN_SPARK__CALLBACK_PORT": "7100",
            "LEMAN_SPARK__PYTHON": "./leman-env/bin/python",
            "LEMAN_SPARK__CONF": _spark_conf(**{"spark.archives": f"{ARCHIVE}#leman-env"}),
            "LEMAN_SPARK__START_SECONDS": str(START_SECONDS),
            "LEMAN_SPARK__CLASS_ARCHIVE": "false",
            "LEMAN_EXECUTOR__CHECKPOINT_INTERVAL_SECONDS": str(INTERVAL_SECONDS),
        }

    def unpacked(self, **more: str) -> dict[str, str]:
        """Settings of an executor whose hosts have the environment of their Python already, as in an image.

        Args:
            more: for Spark.
        """
        python = self.data.parent / "unpacked" / "bin" / "python"
        if not python.exists():
            archive = self.data / Path(ARCHIVE).name
            subprocess.run(["tar", "-xzf", str(archive), "-C", str(python.parents[1])], check=True)
        return {"LEMAN_SPARK__PYTHON": f"{UNPACKED}/bin/python", "LEMAN_SPARK__CONF": _spark_conf(**more)}

    def start_master(self) -> None:
        """Spark's master, which knows applications and workers by the secret, and again after it was killed."""
        self._start_spark(MASTER, "org.apache.spark.deploy.master.Master", "--host", MASTER, "--port", "7077")

    def start_worker(self, name: str) -> None:
        """One of Spark's workers, with a folder of its own."""
        self._start_spark(
            name,
            "org.apache.spark.deploy.worker.Worker",
            *("--host", name, "--cores", str(self.cores), "--memory", "2g", "--work-dir", "/tmp/work"),
            f"spark://{MASTER}:7077",
        )

    def _start_spark(self, name: str, *command: str) -> None:
        conf = self.hosts[name].folder / "tmp" / "spark-defaults.conf"
        kept = {
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": "/tmp/known",
        }
        conf.write_text("".join(f"{key} {value}\n" for key, value in (_SPARK_CONF | kept).items()))
        environment = {"SPARK_HOME": "/spark", "SPARK_CONF_DIR": "/tmp", "SPARK_DAEMON_MEMORY": "256m"}
        self.hosts[name].start(
            ["/spark/bin/spark-class", *command],
            _JAVA | {"PATH": "/usr/bin:/bin:/usr/sbin", "SPARK_LOCAL_HOSTNAME": name} | environment,
            within="/tmp",
        )

    def wait_serving(self, *names: str) -> None:
        """Until services say that they serve."""
        for name in names:
            address, tls = f"127.0.0.1:{self.ports[name]}", (self.authority.ca, "", "")
            wait_for(lambda: not check(address, tls=tls), self.hosts[name].said)  # noqa: B023


def behind(peer: str) -> str:
    """Where services of a kind are, for what passes connections on."""
    return f"{peer}:{PORT},{peer}-2:{PORT}"


def _spark_conf(**more: str) -> str:
    """Return what an executor tells Spark."""
    return json.dumps(_SPARK_CONF | {"spark.executor.memory": "512m"} | more)


def wait_for(reached: Callable[[], object], what: Callable[[], str], seconds: float = START_SECONDS) -> None:
    """Until something is so; `what` is said where it takes too long."""
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def _on_hosts(path: str) -> str:
    """Where hosts find a certificate."""
    return f"/tls/{Path(path).name}"


def _packed(folder: Path, out: Path) -> None:
    """What `leman pack-env` makes of an environment with the wheels, and what these need."""
    environment = Environment(folder / "environment")
    environment.install_offline(build_wheels(folder / "wheels"))
    environment.program("leman", "pack-env", str(out))
    shutil.rmtree(environment.folder)


@contextlib.contextmanager
def running(folder: Path, cores: int = CORES) -> Iterator[Cluster]:
    """Start all of it, and end it; nothing of it stays. `cores`: of each host of workers."""
    data, tls, unpacked = folder / "data", folder / "tls", folder / "unpacked"
    for made in (data, tls, unpacked):
        made.mkdir()
    _packed(folder, data / "leman-env.tar.gz")
    binds = {"/data": data, "/tls": tls, "/spark": SPARK, UNPACKED: unpacked}
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, data)
        ending.callback(shutil.rmtree, unpacked)
        hosts = ending.enter_context(network(folder, HOSTS, binds=dict.fromkeys(HOSTS, binds), without_python=WORKERS))
        authority = Authority(tls)
        names = {name: (name, "localhost", FRONT) for name in ("redis", *PEERS, *SECOND)}
        certificates = {
            name: authority.issue(name, *map(x509.DNSName, known), _LOOPBACK) for name, known in names.items()
        }
        targets = {f"any {peer}": behind(peer) for peer in PEERS} | {
            name: f"{name}:{PORT}" for name in (*PEERS, *SECOND)
        }
        ports = ending.enter_context(_published(hosts[OUTSIDE], targets))
        storage = options_file(tls, STORE_PORT, host=STORE, seen_as=Path("/tls"))
        cluster = Cluster(hosts, data, ports, authority, certificates, storage, cores)
        cluster.start_redis()
        cluster.start_front()
        cluster.start_master()
        for worker in WORKERS:
            cluster.start_worker(worker)
        for service in PEERS:
            cluster.start_service(service)
        cluster.wait_serving(*PEERS)
        yield cluster


@contextlib.contextmanager
def _published(outside: Host, targets: Mapping[str, str]) -> Iterator[dict[str, int]]:
    """Ports of this machine's loopback that lead to targets."""
    with contextlib.ExitStack() as sockets:
        listening = {name: sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for name in targets}
        pairs = [f"fd:{listener.fileno()}={targets[name]}" for name, listener in listening.items()]
        command = outside.command([sys.executable, "-m", "tests.cluster.publish", *pairs], within=str(ROOT))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, pass_fds=[listener.fileno() for listener in listening.values()]
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"listening\n"
            yield {name: listener.getsockname()[1] for name, listener in listening.items()}
        finally:
            process.terminate()
            process.communicate()
