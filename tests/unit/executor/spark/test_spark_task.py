"""What Spark runs for a worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import leman_executor
from leman_executor.spark import function_processes
from leman_executor.spark.spark_runner import task_function


def test_nothing_of_sparks_sql_is_used():
    """The JVM would load twice as many classes (decision 42)."""
    files = [*Path(leman_executor.__file__).parent.rglob("*.py")]
    assert files
    texts = {file.name: file.read_text() for file in files}
    assert [name for name, text in texts.items() if "SparkSession" in text or "mapInArrow" in text] == []


def test_the_bridge_to_the_jvm_imports_no_pandas():
    """Asked in a process of its own, as this one may have it."""
    program = (
        "import sys, leman_executor.spark.driver_jvm as c; c.SparkContext._ensure_initialized = lambda **_: None;"
        " c.SparkContext.getOrCreate = lambda _: None; c.SparkConf = lambda: type('Conf', (), {'setAll': list})();"
        " c.open_context({}); from pyspark.sql.types import NumpyScalarConverter as N; N().can_convert(1);"
        " print('pyspark.testing.utils' in sys.modules, 'pandas' in sys.modules)"
    )
    with_path = {**os.environ, "PYTHONPATH": str(Path(leman_executor.__file__).parents[1])}
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=with_path)
    assert told.stdout.split() == ["True", "False"]


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
