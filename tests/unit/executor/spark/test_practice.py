"""What a process does before it has any task: a worker's work in small."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from types import SimpleNamespace

import pytest

from leman._format.stored_functions import UdfKind
from leman_core.model.work import FunctionSpec
from leman_executor.spark import function_processes
from leman_executor.worker import function_pool


@pytest.fixture(params=["warm_up_rows", "warm_up_batches"])
def practise(request):
    return getattr(function_processes, request.param)


def test_all_rows_are_computed_as_a_worker_does_it(practise, monkeypatch):
    computed: list[bool] = []

    def compute_in(folder: str, function: FunctionSpec, rows: int) -> int:
        done = compute(folder, function, rows)
        computed.append(done == rows)
        return done

    compute = function_processes.compute_in
    monkeypatch.setattr(function_processes, "compute_in", compute_in)
    practise()
    assert computed == [True]


def test_a_worker_s_files_are_all_written(tmp_path):
    function = function_processes._function(UdfKind.SCALAR, "builtins:abs")
    assert function_processes.compute_in(str(tmp_path), function, 100) == 100
    assert [path.name for path in (tmp_path / "practice.lance" / "_checkpoints").iterdir()] != []


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_it(practise, tmp_path, monkeypatch, fails):
    def refuse(*_: object) -> int:
        raise OSError("no room")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if fails:
        monkeypatch.setattr(function_processes, "compute_in", refuse)
    practise()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_function_that_says_where_temporary_files_go_finds_that_nobody_has_looked(practise, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(function_processes, "compute_in", lambda *_: 0)
    practise()
    assert tempfile.tempdir is None


class _Ended(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize("waiting", [False, True])
def test_a_process_for_which_a_task_waits_does_not_practise(monkeypatch, waiting):
    def end(_: int) -> None:
        raise _Ended

    guarded = SimpleNamespace(keeping=lambda _: contextlib.nullcontext())
    monkeypatch.setattr(function_pool, "os", SimpleNamespace(_exit=end))
    monkeypatch.setattr(function_pool, "_settle", lambda _: None)
    monkeypatch.setattr(function_pool.process_environment, "guard_descriptors", lambda: guarded)
    practised: list[bool] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def warm() -> None:
            practised.append(True)
            ours.send(b"c")  # a task comes, whose caller is gone: the process ends

        if waiting:
            ours.send(b"c")
        with pytest.raises(_Ended):
            function_pool.serve_tasks(theirs, 1, lambda *_: 0, lambda _: None, (warm, warm))
    assert practised == ([] if waiting else [True])
