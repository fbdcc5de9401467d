"""What a function finds that looks around where the operator has secrets; workers have a user of Redis of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pytest
import redis as redis_py

import leman
from tests.capabilities import unprivileged
from tests.conformance.test_reservations import WORKERS_ACL
from tests.conftest import start_system, stop_system
from tests.redis_process import RedisProcess

OPERATORS, PASSWORD, TOKEN = "operators-own-key-7f3a", "password-of-redis-5b1c", "token-of-the-services-9d2e"
ROWS = 4000
#: What is no Python process has the environment that it may show, and memory that others can read.
_OF_SPARK = ("java", "cat")


@leman.udf(version="1")
def same(x: int) -> int:
    return x


@leman.udf(version="1")
def double(x: int) -> int:
    return x * 2


@pytest.fixture(scope="module")
def up(tmp_path_factory) -> Iterator[SimpleNamespace]:
    folder = tmp_path_factory.mktemp("confined")
    with RedisProcess(folder) as redis:
        with redis_py.Redis.from_url(redis.url) as first:
            first.execute_command("ACL", "SETUSER", "workers", *WORKERS_ACL.split())
            first.execute_command("ACL", "SETUSER", "default", "resetpass", f">{PASSWORD}")
        admin_url = redis.url.replace("unix://", f"unix://:{PASSWORD}@")
        running = unprivileged(
            start_system,
            folder / "lake",
            OPERATORS_API_KEY=OPERATORS,
            SHOWN_MODEL="small",
            LEMAN_SPARK__PASS_ENV='["SHOWN_*"]',
            LEMAN_SERVER__TOKEN=TOKEN,
            LEMAN_REDIS__URL=admin_url,
            LEMAN_REDIS__WORKERS_URL=redis.url.replace("unix://", "unix://workers:limited@"),
        )
        try:
            with redis_py.Redis.from_url(admin_url) as admin, running.connect(folder / "lake") as db:
                yield SimpleNamespace(system=running, db=db, admin=admin)
        finally:
            stop_system(running)


def processes(up) -> dict[int, str]:
    """Those of the system, with their names."""
    first = psutil.Process(up.system.process.pid)
    family = (first, *first.children(recursive=True))
    return {process.pid: process.name() for process in family if process.status() != psutil.STATUS_ZOMBIE}


def looker(pids: list[int]) -> leman.UDF:
    needles = [needle[::-1] for needle in (OPERATORS, PASSWORD, TOKEN)]  # the function itself has none

    @leman.udf(data_type=pa.string(), version="1")
    def look(x: int) -> str:
        wanted = [needle[::-1].encode() for needle in needles]
        shown, opened = set(), set()
        for folder in Path("/proc").glob("[0-9]*"):
            for name in ("environ", "cmdline"):
                try:
                    content = (folder / name).read_bytes()
                except OSError:
                    continue
                if any(needle in content for needle in wanted):
                    shown.add(f"{folder.name} {name}")
        for pid in {*pids, os.getppid()} - {os.getpid()}:
            for name in ("environ", "mem", "maps"):
                try:
                    Path(f"/proc/{pid}/{name}").open("rb").close()
                except (PermissionError, FileNotFoundError):
                    continue
                opened.add(f"{pid} {name}")
        return json.dumps({"shown": sorted(shown), "opened": sorted(opened), "env": dict(os.environ)})

    return look


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc is Linux's")
def test_a_function_that_looks_around_finds_no_secret(up):
    """Neither in its environment, nor in that, the command line or the memory of others; root's rights it has none."""
    table = up.db.create_table("looks", pa.table({"x": [1]}))
    table.add_columns({"first": same})
    table.backfill("first", progress=False)  # Spark's processes are there from now on
    family = processes(up)
    (jvm,) = (pid for pid, name in family.items() if name == "java")
    assert len(family) > 8
    table.add_columns({"a": looker([*family])})
    table.backfill("a", env={"GIVEN": "yes"}, progress=False)
    (stored,) = table.to_arrow(["a"])["a"].to_pylist()
    (tried,) = table.preview("a", env={"GIVEN": "yes"}).rows
    for found in (json.loads(stored), json.loads(tried.output)):
        assert found["shown"] == []
        names = {f"{family.get(int(pid), 'parent')} {name}" for pid, name in map(str.split, found["opened"])}
        assert {name.split()[0] for name in names} <= {*_OF_SPARK}, names
        assert f"{jvm} mem" in found["opened"], "which shows that it can look"
        assert (found["env"]["SHOWN_MODEL"], found["env"]["GIVEN"]) == ("small", "yes")
        assert not [name for name in found["env"] if name.startswith(("OPERATORS", "LEMAN", "_LEMAN", "SPARK", "JAVA"))]
        assert not {OPERATORS, PASSWORD, TOKEN} & set(found["env"].values())


def test_a_backfill_reserves_its_rows_as_the_user_of_workers(up):
    up.admin.execute_command("ACL", "LOG", "RESET")
    table = up.db.create_table("t", pa.table({"x": pa.array(range(ROWS), pa.int64())}))
    table.add_columns({"y": double})
    before = up.admin.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    table.backfill("y", progress=False)
    assert table.to_arrow(["x", "y"])["y"].to_pylist() == [2 * x for x in table.to_arrow(["x"])["x"].to_pylist()]
    assert up.admin.info("commandstats")["cmdstat_evalsha"]["calls"] > before
    assert "workers" in {client["user"] for client in up.admin.client_list()}
    refused = {entry[b"object"] for entry in up.admin.execute_command("ACL", "LOG")}
    assert refused <= {b"client"}, "beside what the library of Redis says of itself"
