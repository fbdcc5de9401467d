"""A Spark cluster of two hosts with addresses of their own, which have nothing of the driver's Python environment."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from tests.conftest import ROOT, START_SECONDS

SPARK = Path(pyspark.__file__).parent
BRIDGE, EXECUTOR, WORKERS = "hub", "main", ("one", "two")
ADDRESS = {EXECUTOR: "10.86.0.10", "one": "10.86.0.11", "two": "10.86.0.12"}
MASTER = f"spark://{ADDRESS[EXECUTOR]}:7077"


def may_make_networks() -> bool:
    """Whether namespaces for networks and mounts can be had here."""
    if not shutil.which("ip") or not shutil.which("unshare"):
        return False
    name = f"leman-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=False)
    return made and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
]


@dataclass
class Hosts:
    """Network namespaces with an address each, on a bridge of their own."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def name(self, host: str) -> str:
        return f"lm{os.getpid()}{host}"

    def make(self) -> None:
        hub = self.name(BRIDGE)
        self._ip(f"netns add {hub}", f"-n {hub} link add br0 type bridge", f"-n {hub} link set br0 up")
        for number, (host, address) in enumerate(ADDRESS.items()):
            name = self.name(host)
            self._ip(
                f"netns add {name}",
                f"-n {name} link set lo up",
                f"link add lmv{number} netns {hub} type veth peer name eth0 netns {name}",
                f"-n {hub} link set lmv{number} master br0",
                f"-n {hub} link set lmv{number} up",
                f"-n {name} addr add {address}/24 dev eth0",
                f"-n {name} link set eth0 up",
            )

    def _ip(self, *commands: str) -> None:
        for command in commands:
            subprocess.run(["ip", *command.split()], check=True)

    def start(self, host: str, command: list[str], log: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name(host), *command],
                cwd=ROOT,
                env={k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")} | environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in reversed(self.processes):
            stop(process)
        for host in (*ADDRESS, BRIDGE):
            subprocess.run(["ip", "netns", "del", self.name(host)], check=False)


def stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if not may_make_networks():
        pytest.skip("network namespaces need root and iproute2")
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        made.make()
        java = ["org.apache.spark.deploy.master.Master", "--host", ADDRESS[EXECUTOR], "--port", "7077"]
        made.start(EXECUTOR, [str(SPARK / "bin" / "spark-class"), *java], "master.log", SPARK_DAEMON_MEMORY="256m")
        for host in WORKERS:
            made.start(host, ["unshare", "-m", "sh", "-c", worker(made.folder, host)], f"{host}.log")
        yield made
    finally:
        made.end()


def worker(folder: Path, host: str) -> str:
    """A worker in a file system without the driver's environment: it has Spark, Java and the system's own Python."""
    spark, work = folder / f"spark-{host}", folder / f"work-{host}"
    spark.mkdir()
    work.mkdir()
    hidden = [str(ROOT), *([sys.base_prefix] if sys.base_prefix != "/usr" else [])]
    java = f"org.apache.spark.deploy.worker.Worker --host {ADDRESS[host]} --cores 2 --memory 2g"
    return " && ".join(
        [
            f"mount --bind {shlex.quote(str(SPARK))} {spark}",
            *(f"mount -t tmpfs tmpfs {shlex.quote(path)}" for path in hidden),
            f"cd {work}",
            f"export SPARK_HOME={spark} SPARK_LOCAL_IP={ADDRESS[host]} SPARK_DAEMON_MEMORY=256m PATH=/usr/bin:/bin",
            f"exec {spark}/bin/spark-class {java} --work-dir {work} {MASTER}",
        ]
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("archive") / "env.tar.gz"
    subprocess.run([sys.executable, "-P", "-m", "leman_executor.spark.pack_env", str(out)], check=True, cwd=out.parent)
    return out


@contextlib.contextmanager
def system(hosts: Hosts, lake: Path, **settings: str) -> Iterator[Path]:
    """The services on the executor's host, for a database; its callers have to be there too."""
    lake.mkdir()
    command = [sys.executable, "-m", "leman_local", "--database", str(lake), "--idle-seconds", "0"]
    conf = {"spark.executor.memory": "512m", **json.loads(settings.pop("conf", "{}"))}
    settings |= {"LEMAN_SPARK__MASTER": MASTER, "LEMAN_SPARK__CONF": json.dumps(conf)}
    process = hosts.start(EXECUTOR, command, f"{lake.name}.log", LEMAN_SPARK__CLASS_ARCHIVE="false", **settings)
    file, pause, deadline = lake / "_leman" / "service.json", threading.Event(), time.monotonic() + 2 * START_SECONDS
    while not file.exists():
        assert process.poll() is None, (hosts.folder / f"{lake.name}.log").read_text()
        assert time.monotonic() < deadline, "the system did not start"
        pause.wait(0.1)
    try:
        yield lake
    finally:
        stop(process)


_CALLER = """
import json, sys
import pyarrow as pa
import leman
from leman_core.server.healthcheck import check

lake, met, workers, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
service = json.load(open(lake + "/_leman/service.json"))

@leman.udf(data_type=pa.string(), version="1", **options)
def where(x: int) -> str:
    import os, pathlib, socket, threading, time  # pids are of one machine
    seen, pause, until = pathlib.Path(met), threading.Event(), time.monotonic() + 240
    (seen / str(os.getpid())).touch()
    while len(list(seen.iterdir())) < workers and time.monotonic() < until:
        pause.wait(0.05)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("10.86.0.10", 7077))
        secrets = [name for name in os.environ if name.startswith("LEMAN_")]
        return f"{probe.getsockname()[0]} {os.getpid()} {len(secrets)}"

said = {}
with leman.connect(lake, endpoint=service["executor"], token=service["token"]) as db:
    table = db.create_table("t", pa.table({"x": list(range(40))}), max_rows_per_file=1)
    table.add_columns({"y": where, "z": "x + 1"})
    try:
        future = table.backfill_async("y", task_size=1)
        for job, events in future.watch():
            for event in events:
                print(event.kind, event.message, file=sys.stderr, flush=True)
        future.result()
        said["values"] = table.to_arrow()["y"].to_pylist()
    except leman.errors.LemanError as error:
        said |= {"reason": error.reason, "message": str(error)}
    table.backfill("z")
    said["sql"] = table.to_arrow()["z"].to_pylist() == list(range(1, 41))
said["health"] = check(service["executor"])
said["functions"] = check(service["executor"], "leman.functions")
print(json.dumps(said))
"""


def calling(hosts: Hosts, lake: Path, *, meeting: int = 0, **options: object) -> subprocess.Popen[str]:
    """A caller on the executor's host, which prints what the job says to standard error, and then the answer.
    `options`: of its function. `meeting`: processes that wait for one another in their first calls, so that none is
    through before the slowest host has unpacked what it was sent."""
    met = lake.with_name(f"{lake.name}-met")
    met.mkdir()
    caller = [sys.executable, "-c", _CALLER, str(lake), str(met), str(meeting), json.dumps(options)]
    command = ["ip", "netns", "exec", hosts.name(EXECUTOR), *caller]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def told(caller: subprocess.Popen[str]) -> dict[str, object]:
    """The answer that it got in the end."""
    out, errors = caller.communicate(timeout=600)
    assert caller.returncode == 0, errors
    return json.loads(out.splitlines()[-1])


def backfill(hosts: Hosts, lake: Path, *, meeting: int = 0) -> dict[str, object]:
    """The answer to a caller on the executor's host."""
    return told(calling(hosts, lake, meeting=meeting))


_OTHER = """
import sys, threading
from pyspark.sql import SparkSession

builder = SparkSession.builder.master(sys.argv[1]).config("spark.driver.host", sys.argv[2])
context = builder.config("spark.executor.memory", "512m").getOrCreate().sparkContext
cores, pause = 0, threading.Event()
while cores < 4:
    pause.wait(0.1)
    found = context._jsc.sc().statusStore().executorList(True)
    cores = sum(found.apply(n).totalCores() for n in range(found.size()) if found.apply(n).id() != "driver")
print("has them", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def another_application(hosts: Hosts) -> Iterator[subprocess.Popen[str]]:
    """It has all cores of both hosts, until its standard input ends."""
    command = [sys.executable, "-c", _OTHER, MASTER, ADDRESS[EXECUTOR]]
    process = subprocess.Popen(
        ["ip", "netns", "exec", hosts.name(EXECUTOR), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert "has them" in process.stdout.readline()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_packed_environment_runs_on_hosts_that_have_none(hosts, archive, tmp_path):
    """Workers on all cores of both hosts, more than the executor's machine is asked for."""
    conf = json.dumps({"spark.archives": f"{archive}#leman-env"})
    settings = {"LEMAN_SPARK__PYTHON": "./leman-env/bin/python", "LEMAN_SPARK__CALLBACK_PORT": "7100"}
    with system(hosts, tmp_path / "lake", conf=conf, LEMAN_SPARK__START_SECONDS="200", **settings) as lake:
        said = backfill(hosts, lake, meeting=4)
    assert said["health"] == "", said
    assert "values" in said, said
    found = [value.split() for value in said["values"]]
    assert {address for address, _, _ in found} == {ADDRESS[host] for host in WORKERS}
    assert len({(address, pid) for address, pid, _ in found}) == 4
    assert {secrets for _, _, secrets in found} == {"0"}


def test_a_missing_interpreter_is_named_with_its_host(hosts, tmp_path):
    with system(hosts, tmp_path / "lake") as lake:
        said = backfill(hosts, lake)
    assert said["reason"] == "WORKER_PYTHON_UNUSABLE"
    assert sys.executable in said["message"]
    assert any(ADDRESS[host] in said["message"] for host in WORKERS)
    assert "leman pack-env" in said["message"]
    assert (said["sql"], said["health"]) == (True, ""), "only functions need the workers"
    assert said["functions"] == "NOT_SERVING"


def test_a_driver_that_workers_cannot_reach_says_so(hosts, tmp_path):
    settings = {"LEMAN_SPARK__DRIVER_HOST": "10.86.0.99", "LEMAN_SPARK__START_SECONDS": "10"}
    with system(hosts, tmp_path / "lake", **settings) as lake:
        said = backfill(hosts, lake)
        log = (lake / "_leman" / "logs" / "executor.log").read_text()
    assert said["reason"] == "WORKERS_CANNOT_REACH_DRIVER"
    assert "cannot reach the driver at 10.86.0.99:" in said["message"]
    assert (said["sql"], said["health"]) == (True, ""), "SQL, lists and cancels go on"
    assert said["functions"] == "NOT_SERVING"
    assert "WORKERS_CANNOT_REACH_DRIVER" in log


def test_a_job_waits_for_a_cluster_that_another_application_fills(hosts, archive, tmp_path):
    conf = json.dumps({"spark.archives": f"{archive}#leman-env"})
    settings = {"LEMAN_SPARK__PYTHON": "./leman-env/bin/python", "LEMAN_SPARK__START_SECONDS": "200"}
    with another_application(hosts) as other, system(hosts, tmp_path / "lake", conf=conf, **settings) as lake:
        caller = calling(hosts, lake)
        assert caller.stderr is not None
        said = next(line for line in caller.stderr if line.startswith("wait "))
        assert f"all 4 cores of {MASTER} are in use by other applications" in said
        assert other.stdin is not None
        other.stdin.close()
        other.stdin = None
        ended = told(caller)
        log = (lake / "_leman" / "logs" / "executor.log").read_text()
    assert "values" in ended, ended
    assert ended["health"] == ""
    assert "CLUSTER_BUSY" in log
    assert "WORKERS_CANNOT_REACH_DRIVER" not in log


def test_a_job_that_asks_for_what_no_worker_has_fails_and_says_why(hosts, archive, tmp_path):
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true"}
    conf = json.dumps(dynamic | {"spark.archives": f"{archive}#leman-env"})
    settings = {"LEMAN_SPARK__PYTHON": "./leman-env/bin/python", "LEMAN_SPARK__START_SECONDS": "100"}
    with system(hosts, tmp_path / "lake", conf=conf, **settings) as lake:
        caller = calling(hosts, lake, num_cpus=3)
        assert caller.stderr is not None
        waits = next(line for line in caller.stderr if line.startswith("wait "))
        said = told(caller)
    assert said["reason"] == "RESOURCES_NOT_AVAILABLE", str(said["message"])
    for words in (waits, said["message"]):
        assert "needs Spark executors of 3 cores" in words
        assert "the largest has 2 cores and 2 GiB" in words
    assert said["health"] == "", "the service serves all the same"


@pytest.mark.parametrize(
    ("cores", "asked", "said_at_last"),
    [
        ({}, 3, f"takes 3 cores of one Spark executor, and the largest executor of {MASTER} has 2 cores"),
        ({"spark.cores.max": "2"}, 64, "num_cpus=64: Spark's executors have 2 cores together at most"),
        ({"spark.executor.cores": "4"}, 1, f"is to have 4 cores and 0.5 GiB, and no worker of {MASTER} has that"),
    ],
    ids=["whatever workers have", "so many in all", "none as large"],
)
def test_a_job_that_asks_for_more_than_executors_have_that_are_as_they_are(
    hosts, archive, tmp_path, cores, asked, said_at_last
):
    """Static allocation: the settings do not say how large an executor is, and Spark would wait for ever."""
    conf = json.dumps(cores | {"spark.archives": f"{archive}#leman-env"})
    settings = {"LEMAN_SPARK__PYTHON": "./leman-env/bin/python", "LEMAN_SPARK__START_SECONDS": "100"}
    with system(hosts, tmp_path / "lake", conf=conf, **settings) as lake:
        caller = calling(hosts, lake, num_cpus=asked)
        said = told(caller)
    assert said["reason"] == "RESOURCES_NOT_AVAILABLE", str(said["message"])
    assert said_at_last in said["message"]
    assert "LEMAN_SPARK__CONF" in said["message"]
    assert said["health"] == "", "the service serves all the same"


def test_a_job_that_waited_too_long_for_a_full_cluster_fails_and_says_why(hosts, tmp_path):
    settings = {"LEMAN_SPARK__BUSY_SECONDS": "3"}
    with another_application(hosts), system(hosts, tmp_path / "lake", **settings) as lake:
        said = backfill(hosts, lake)
    assert said["reason"] == "CLUSTER_BUSY"
    assert "are in use by other applications" in said["message"]
    assert said["health"] == "", "the service serves all the same"
