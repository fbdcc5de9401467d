"""A process that a function forks continues with none of its parent's work, and the function is notified of it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_executor.worker import call_guards
from leman_executor.worker.evaluator import Evaluator, JobFailing

SKIP = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))


@pytest.fixture
def patient(monkeypatch) -> None:
    """Wait for a child that is slow to come back; this takes no longer than until it is there."""
    monkeypatch.setattr(call_guards, "_WAIT_SECONDS", 30.0)


@pytest.fixture
def calls(tmp_path) -> Path:
    return tmp_path / "calls"


def evaluate(function, kind=UdfKind.SCALAR, policy=None):
    rows = pa.RecordBatch.from_pydict({"x": pa.array(range(4), pa.int64())})
    evaluator = Evaluator(function, kind, "f", pa.int64(), ("x",), policy or ErrorPolicy())
    return evaluator(0, np.arange(4), rows).values.to_pylist()


def noted(calls: Path) -> int:
    return len(calls.read_text().splitlines())


@pytest.mark.parametrize("policy", [ErrorPolicy(), SKIP], ids=["fail", "skip"])
@pytest.mark.usefixtures("patient")
def test_a_child_that_returns_computes_no_row_and_fails_the_job(calls, policy):
    def function(x):
        with calls.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if x == 1:
            os.fork()
        return x

    with pytest.raises(JobFailing, match="forked a process, which returned") as failing:
        evaluate(function, policy=policy)
    assert failing.value.failure.error_type == "ForkReturned"
    assert noted(calls) == 4
    assert evaluate(lambda x: x) == [0, 1, 2, 3]


@pytest.mark.usefixtures("patient")
def test_a_child_that_returns_with_an_error_fails_the_job(calls):
    def function(x):
        if x == 1 and os.fork() == 0:
            raise ValueError
        with calls.open("a") as file:
            file.write("call\n")
        return x

    with pytest.raises(JobFailing, match="forked a process, which returned"):
        evaluate(function, policy=SKIP)
    assert noted(calls) == 4


@pytest.mark.usefixtures("patient")
def test_a_grandchild_that_returns_from_a_batch_fails_the_job():
    def function(x):
        if os.fork() == 0 and os.fork():
            os._exit(0)
        return x

    with pytest.raises(JobFailing, match="forked a process, which returned"):
        evaluate(function, UdfKind.ARRAY)


def test_a_child_that_exits_is_no_mistake():
    def function(x):
        child = os.fork()
        if child == 0:
            sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return x

    assert evaluate(function) == [0, 1, 2, 3]


def test_processes_of_multiprocessing_and_subprocess_are_no_mistake():
    def function(x):
        context = multiprocessing.get_context("fork")
        child = context.Process(target=time.sleep, args=(0,))
        child.start()
        child.join()
        subprocess.run([sys.executable, "-c", ""], check=True)
        return x + child.exitcode

    assert evaluate(function) == [0, 1, 2, 3]
