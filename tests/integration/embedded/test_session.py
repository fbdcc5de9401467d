"""Services of a program's own: databases share them, reading starts no Spark, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import lance
import psutil
import pyarrow as pa
import pytest

import leman
from leman._local import running_systems
from leman.errors import StartFailed


def java(pid):
    return [p for p in psutil.Process(pid).children(recursive=True) if "java" in Path(p.name()).name]


def told(*arguments):
    """What a command prints."""
    command = [sys.executable, "-m", "leman.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.long
@pytest.mark.spark
def test_databases_of_a_session(tmp_path, monkeypatch):
    monkeypatch.setenv("LEMAN_SPARK__CLASS_ARCHIVE", "false")

    @leman.udf(data_type=pa.int32())
    def words(text: str) -> int:
        print("counting", text)  # noqa: T201 - which `leman logs JOB` shows
        return len(text.split())

    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        lance.write_dataset(pa.table({"text": ["to be", "or"]}), path / "docs.lance")
    with leman.session() as session:
        read = session.connect(paths[0])
        assert read.table_names() == ["docs"]
        assert read.open_table("docs").describe().row_count == 2
        assert read.jobs() == []
        assert [entry.name for entry in paths[0].iterdir()] == ["docs.lance"]
        (system,) = [found for found in running_systems.list_systems() if found.home == session._home]
        assert java(system.pid) == []
        family = psutil.Process(system.pid).children(recursive=True)

        for path in paths:
            table = session.connect(path).open_table("docs")
            table.add_columns({"words": words})
            job_id = table.backfill("words", progress=False)
            assert table.to_arrow(["words"])["words"].to_pylist() == [2, 1]
            assert running_systems.system_serving(str(path)).pid == system.pid
            assert told("logs", job_id) == told("logs", str(path), job_id) == ["counting to be", "counting or"]
        assert len(java(system.pid)) == 1
        assert system.databases == [str(path) for path in paths]
        (line,) = [line for line in told("ps") if line.split()[0] == str(system.pid)]
        assert line.split()[1] == "session"
        assert json.loads("".join(told("status", str(paths[0]), "--json")))["databases"] == system.databases
        with leman.session() as other, pytest.raises(StartFailed, match=f"process {system.pid} serves .*a already"):
            other.connect(paths[0]).start()
        family += psutil.Process(system.pid).children(recursive=True)
        if sys.platform == "linux":  # Spark's daemon is forked, too, and ends with the executor as if it were below it
            daemons = [process for process in family if process.name() == "leman-daemon"]
            assert daemons
            os.kill(system.said["pids"]["executor"], signal.SIGKILL)
            assert psutil.wait_procs(daemons, timeout=30)[1] == []
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(system.pid).wait(10)
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not session._home.exists()
    for path in paths:
        assert not (path / "_leman" / "service.json").exists()
