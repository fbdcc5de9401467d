"""Tasks that wait for a job, over real sockets: threads of the test stand for Spark's workers."""

from __future__ import annotations

import socket
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from leman_executor.spark.idle_tasks import IdleTasks, receive_task

SECONDS = 10.0


@pytest.fixture
def tasks(short_folder):
    tasks = IdleTasks(short_folder, 2)
    yield tasks
    tasks.close()


@pytest.fixture
def short_folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("s")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def ask(pool: ThreadPoolExecutor, tasks: IdleTasks, number: int) -> Future[str]:
    return pool.submit(receive_task, tasks.address, number)


def until_waiting(tasks: IdleTasks, count: int) -> None:
    """Returns when so many tasks wait: a connection is taken in the order in which it came."""
    while len(tasks._waiting) < count:
        probe = socket.socket(socket.AF_UNIX)
        with probe:
            probe.connect(str(tasks._path))
            probe.sendall(bytes(36))
            probe.recv(1)  # those before it were taken


def test_what_a_spark_job_says_itself_is_asked_of_nobody():
    assert receive_task("null", 0) == "null"
    assert receive_task('{"host": "h"}', 1) == '{"host": "h"}'


def test_tasks_wait_until_there_is_a_job(pool, tasks):
    first, second = ask(pool, tasks, 0), ask(pool, tasks, 1)
    until_waiting(tasks, 2)
    assert not any(task.done() for task in (first, second))
    tasks.give("the task" * 100_000, 2)
    assert first.result(SECONDS) == second.result(SECONDS) == "the task" * 100_000


def test_a_task_that_spark_tries_again_is_told_the_same(pool, tasks):
    tasks.give("the task", 2)
    assert [ask(pool, tasks, 1).result(SECONDS) for _ in range(2)] == ["the task"] * 2


def test_a_job_of_fewer_workers_lets_the_others_end(pool, tasks):
    first, second = ask(pool, tasks, 0), ask(pool, tasks, 1)
    until_waiting(tasks, 2)
    tasks.give("the task", 1)
    assert (first.result(SECONDS), second.result(SECONDS)) == ("the task", "")
    assert ask(pool, tasks, 1).result(SECONDS) == "", "tried again"


@pytest.mark.parametrize("end", [IdleTasks.dismiss, IdleTasks.close])
def test_tasks_that_no_job_comes_for_end(pool, tasks, end):
    waits = ask(pool, tasks, 0)
    until_waiting(tasks, 1)
    end(tasks)
    assert waits.result(SECONDS) == ""
    assert ask(pool, tasks, 1).result(SECONDS) == "", "one that comes later"


def test_a_task_that_died_while_it_waited_is_nobody_s_trouble(pool, tasks):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.connect(str(tasks._path))
        dead.sendall(tasks._secret + bytes(4))
        until_waiting(tasks, 1)
    again = ask(pool, tasks, 0)
    until_waiting(tasks, 2)
    tasks.give("the task", 2)
    assert again.result(SECONDS) == "the task"


@pytest.mark.parametrize("head", [b"", b"short", b"0" * 36, b"\xff" * 36])
def test_who_does_not_know_the_secret_is_told_nothing(tasks, head):
    tasks.give("the task", 2)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(SECONDS)
        stranger.connect(str(tasks._path))
        stranger.sendall(head)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(100) == b""


def test_a_folder_whose_name_is_too_long_for_a_socket(tmp_path):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with pytest.raises(OSError, match="too long"):
        IdleTasks(folder, 2)
    assert not list(folder.iterdir())


def test_nothing_is_left_in_the_folder(short_folder):
    IdleTasks(short_folder, 1).close()
    assert not list(short_folder.iterdir())
