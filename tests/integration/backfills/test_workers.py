"""What every worker process is made of."""

from __future__ import annotations

import contextlib
import re
import sys

import psutil
import pyarrow as pa
import pytest

import leman
from tests.integration.call_log import numbers, values

pytestmark = pytest.mark.spark


@leman.udf(data_type=pa.string(), name="zipped")
def zipped(x: int) -> str:
    """Spark's zips that this process imports from or has imported from."""
    import sys

    files = [str(getattr(module, "__file__", None)) for module in list(sys.modules.values())]
    return " ".join(place for place in (*sys.path, *files) if ".zip" in place and "spark" in place)


def test_a_worker_imports_nothing_from_zips_of_spark(db):
    """They would be compiled at each start, and each worker would read their lists of modules again."""
    table = db.create_table("t", numbers(8), max_rows_per_file=2)
    table.add_columns({"y": zipped})
    table.backfill("y", progress=False)
    assert values(table, "y") == dict.fromkeys(range(8), "")


@leman.udf(data_type=pa.int64(), name="vandal")
def vandal(x: int) -> int:
    """Leaves its process in a bad state, a process of its own included."""
    import math
    import os
    import subprocess

    math.floor = lambda _: 99  # type: ignore[assignment]
    os.chdir("/")
    os.environ["VANDAL"] = "was here"
    os.close(1)
    return subprocess.Popen(["setsid", "sleep", "1000"]).pid if x == 0 else -1


@leman.udf(data_type=pa.string(), name="bystander")
def bystander(x: int) -> str:
    import math
    import os
    from pathlib import Path

    print("what is printed goes nowhere near the values")  # noqa: T201
    return f"{math.floor(x + 0.5)} {Path.cwd()} {os.environ.get('VANDAL')}"


def test_a_function_finds_nothing_of_another_one(db):
    """Patched modules, working directory, environment, closed descriptors; processes that it started have ended."""
    table = db.create_table("t", numbers(8), max_rows_per_file=2)
    table.add_columns({"before": (bystander, ["x"]), "v": vandal, "after": (bystander, ["x"])})
    table.backfill("before", progress=False)
    table.backfill("v", progress=False)
    table.backfill("after", progress=False)
    before = values(table, "before")
    assert values(table, "after") == before
    assert {said.split()[0] for said in before.values()} == {str(x) for x in range(8)}
    (pid,) = set(values(table, "v").values()) - {-1}
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(10.0)


def counting(version: str) -> leman.UDF:
    @leman.udf(data_type=pa.string(), name="counting", version=version)
    class Counting:
        def __init__(self) -> None:
            import os
            import uuid

            os.environ["MODEL"] = self.model = uuid.uuid4().hex

        def __call__(self, x: int) -> str:
            import os

            return f"{os.getpid()} {self.model} {os.environ['MODEL']}"

    return Counting


def test_a_model_stays_loaded_for_the_jobs_of_its_version(db):
    """Also where another version ran in between; what it set up while it was loaded is still there."""
    table = db.create_table("t", numbers(8))
    seen = []
    versions = {version: counting(version) for version in ("one", "two")}
    for place, version in enumerate(["one", "two", "one"]):
        table.add_columns({f"y{place}": versions[version]})
        table.backfill(f"y{place}", concurrency=1, progress=False)
        seen.append(set(values(table, f"y{place}").values()))
    assert seen[0] == seen[2]
    assert not seen[0] & seen[1]
    for pid, model, found in (said.split() for said in seen[0] | seen[1]):
        assert int(pid)
        assert model == found


def nosy(*secrets: str) -> leman.UDF:
    """Looks for these in what its own process and all above it show."""

    @leman.udf(data_type=pa.string(), name="nosy")
    def look(x: int) -> str:
        import contextlib
        import os
        from pathlib import Path

        import psutil

        found = []
        for process in (psutil.Process(), *psutil.Process().parents()):
            for file in (Path(f"/proc/{process.pid}/{what}") for what in ("environ", "cmdline")):
                with contextlib.suppress(PermissionError):  # anyone who started the suite
                    found += [str(file)] * any(secret.encode() in file.read_bytes() for secret in secrets)
        own = [name for name, value in os.environ.items() if name.startswith("LEMAN_") or value in secrets]
        return " ".join([*found, *own])

    return look


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_function_is_not_handed_the_services_secrets(system, db):
    """Neither in its environment nor in that of a process above it, nor on a command line."""
    password = re.search(
        r"^requirepass (\w+)$", (system.database / "_leman" / "redis" / "redis.conf").read_text(), re.M
    )
    table = db.create_table("t", numbers(2))
    table.add_columns({"y": nosy(str(system.service["token"]), password[1])})
    table.backfill("y", progress=False)
    assert values(table, "y") == {0: "", 1: ""}
