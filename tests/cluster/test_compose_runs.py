"""docker-compose.yml is run: each container by its command until its health check says that it is well, and a backfill
through the published ports."""

from __future__ import annotations

import json
import os
import sys

import pytest
from cryptography import x509

from tests.certificates import Authority
from tests.cluster.composition import MACHINE, TLS, Composition, composed
from tests.compose_file import CHOSEN, ON_SPARK, TOKEN

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: Said on the machine of `docker compose up`, as the head of the file has it.
_CALLER = """
import json, ssl, sys, urllib.request
import pyarrow as pa
import leman

@leman.udf(data_type=pa.int64(), version="1")
def double(x: int) -> int:
    return 2 * x

@leman.udf(data_type=pa.string(), version="1")
def where(x: int) -> str:
    import os
    secrets = [name for name in os.environ if name.startswith("LEMAN_")]
    return f"{os.uname().nodename} {len(secrets)}"

tls = {"tls_ca": sys.argv[2]} if sys.argv[2] else {}
with leman.connect("/data/lake", endpoint="localhost:7443", token=sys.argv[1], direct=False, **tls) as db:
    table = db.create_table("t", pa.table({"x": list(range(1000))}), max_rows_per_file=100)
    table.add_columns({"y": double, "host": where})
    for column in ("y", "host"):
        table.backfill(column, progress=False)
    said = table.to_arrow().sort_by("x").to_pydict()
request = urllib.request.Request(
    f"http{'s' if tls else ''}://localhost:7480/leman.v1.InfoService/GetInfo", b"{}",
    {"content-type": "application/json", "authorization": f"Bearer {sys.argv[1]}"})
context = ssl.create_default_context(cafile=sys.argv[2]) if tls else None
with urllib.request.urlopen(request, context=context) as answer:
    said["info"] = json.load(answer)
print(json.dumps(said))
"""


def check_backfill(containers: Composition, *, computed_on: str) -> None:
    ca = TLS["LEMAN_PEERS__TLS_CA"] if containers.tls else ""
    called = containers.hosts[MACHINE].run([sys.executable, "-c", _CALLER, TOKEN, ca], {}, seconds=240)
    assert called.returncode == 0, called.stderr + containers.hosts["executor"].said()
    said = json.loads(called.stdout)
    assert said["x"] == list(range(1000))
    assert said["y"] == list(range(0, 2000, 2))
    assert set(said["host"]) == {f"{computed_on} 0"}, "functions run there, and have no settings of Leman"
    assert said["info"]["executorAddress"] == "localhost:7443"


def check_down(containers: Composition) -> None:
    """All end in their time, of their own accord or by the signal that they were sent."""
    ended = containers.down()
    assert list(ended) == list(reversed(containers.running))
    assert {name: code for name, code in ended.items() if code not in (0, -15, 143)} == {}


@pytest.mark.long
def test_compose_up_serves_on_the_published_ports(can_have_hosts, tmp_path):
    with composed(tmp_path, CHOSEN) as containers:
        assert containers.healthy == ["redis", "commit-coordinator", "planner", "executor"]
        check_backfill(containers, computed_on="executor")
        check_down(containers)


@pytest.mark.long
def test_with_the_certificates_that_the_head_advises_all_are_well_and_answer(can_have_hosts, tmp_path):
    folder = tmp_path / "ca"
    folder.mkdir()
    Authority(folder).issue("server", *map(x509.DNSName, ("planner", "executor", "commit-coordinator", "localhost")))
    with composed(tmp_path, CHOSEN, certificates=folder) as containers:
        assert containers.healthy == ["redis", "commit-coordinator", "planner", "executor"]
        check_backfill(containers, computed_on="executor")
        check_down(containers)


@pytest.mark.long
def test_with_the_profile_spark_functions_run_in_its_workers(can_have_hosts, tmp_path):
    with composed(tmp_path, ON_SPARK, "spark") as containers:
        check_backfill(containers, computed_on="spark-worker")
        check_down(containers)


@pytest.mark.long
def test_a_service_that_is_not_well_is_told_by_its_check(can_have_hosts, tmp_path):
    """The check that compose asks sees a service that is frozen, and none where there is none."""
    with composed(tmp_path, CHOSEN) as containers:
        planner = containers.running["planner"].pid
        assert containers.is_healthy("planner")
        os.kill(planner, 19)
        assert not containers.is_healthy("planner")
        os.kill(planner, 18)
        assert containers.is_healthy("planner")
        containers.hosts["planner"].kill()
        assert not containers.is_healthy("planner")
