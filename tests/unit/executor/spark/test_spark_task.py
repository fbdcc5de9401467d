"""What Spark runs for a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

import executor
from executor.spark import function_processes
from executor.spark.spark_task import task_function


def test_nothing_of_sparks_sql_is_used():
    """The JVM would load twice as many classes (decision 42)."""
    files = [*Path(executor.__file__).parent.rglob("*.py")]
    assert files
    assert [str(file) for file in files if "pyspark.sql" in file.read_text()] == []


@pytest.mark.parametrize("units", [0, 3])
def test_a_worker_tells_its_units_and_reads_to_the_end(monkeypatch, units):
    """Spark takes a process that has left something unread for none that it can use again."""
    told = []
    monkeypatch.setattr(function_processes, "run", lambda task: told.append(task) or units)
    nothing = iter(())
    assert list(task_function()(0, nothing)) == [units]
    assert told == ["null"]
    rows = iter([b"a", b"b"])
    assert list(task_function()(1, rows)) == [units]
    assert next(rows, None) is None
