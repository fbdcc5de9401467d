"""What the pool of function processes hears from its connections."""

from __future__ import annotations

import json
import os
import socket
import threading
import time

import msgspec
import pytest

from leman_executor.spark.function_processes import Caller, FunctionProcessEnded
from leman_executor.worker import function_pool as pools
from leman_executor.worker.function_pool import IDLE, FunctionPool, _Process, receive
from leman_executor.worker.worker_link import Hello, WorkerTask


def test_what_a_closed_connection_said_is_not_taken_for_one_that_has_its_number_now():
    """It would have been the end of a caller that has only just come, and with it of all workers of the daemon."""
    told: list[str] = []
    (first, said), (second, also_said), (spare, other) = (socket.socketpair() for _ in range(3))
    pool = FunctionPool(first, lambda *_: 0, lambda _: None, ())
    pool._spare = 0

    def replace_the_second() -> None:
        number = second.fileno()
        pool._close(second)
        os.dup2(spare.fileno(), number)
        pool._on(socket.socket(fileno=number), lambda: told.append("the new one"))
        pool._over = True

    pool._on(first, replace_the_second)
    pool._on(second, lambda: told.append("the second"))
    said.send(b"x")
    also_said.send(b"x")
    pool._look_after(os.getppid())
    assert told == []
    for connection, _ in pool._actions.values():
        connection.close()
    for connection in (said, also_said, spare, other):
        connection.close()


def a_process(pool: FunctionPool, pid: int, idle_since: float) -> tuple[_Process, socket.socket, socket.socket]:
    """A process of a function that runs someone's task, its own end of its connection, and the caller's."""
    control, its = socket.socketpair()
    caller, ours = socket.socketpair()
    process = _Process(pid, control, function=f"f@{pid}", caller=caller, idle_since=idle_since)
    pool._processes[pid] = process
    pool._on(control, lambda: pool._heard(process))
    pool._on(caller, lambda: pool._caller_gone(process, caller), events=0)
    return process, its, ours


def look(pool: FunctionPool) -> None:
    """What is there to hear is heard, and no more."""
    pool._requests.send(b"x")
    pool._look_after(os.getppid())
    pool._over = False


@pytest.fixture
def pool(monkeypatch):
    killed: list[int] = []
    monkeypatch.setattr(pools, "_kill_group", killed.append)
    requests, told = socket.socketpair()
    pool = FunctionPool(told, lambda *_: 0, lambda _: None, ())
    pool._requests, pool._spare = requests, 0

    def end_of_round() -> None:
        told.recv(1)
        pool._over = True

    pool._on(told, end_of_round)
    yield pool, killed
    for connection, _ in list(pool._actions.values()):
        connection.close()
    requests.close()


def test_a_process_that_is_idle_is_not_ended_before_its_answer_has_arrived(pool):
    """It says that it is idle and answers then: killed in between, its caller took the pool for gone."""
    pool, killed = pool
    processes = [a_process(pool, pid, idle_since=0.0) for pid in range(1001, 1013)]  # more than are kept
    for _, its, _ in processes:
        its.send(IDLE)
    look(pool)
    assert killed == []
    for _, its, ours in processes:
        its.close()
        ours.close()  # they have their answers
    pool._end_idle()
    assert killed == []
    look(pool)
    assert len(killed) == len(processes) - pools._MOST_IDLE, "those beyond what is kept"


def test_whoever_waits_for_a_process_that_is_ended_is_told(pool):
    pool, killed = pool
    process, its, first = a_process(pool, 1001, idle_since=0.0)
    its.send(IDLE)
    pool._heard(process)
    second, ours = socket.socketpair()
    process.caller = second
    pool._on(second, lambda: pool._caller_gone(process, second), events=0)
    ours.close()
    look(pool)
    assert killed == [1001]
    assert json.loads(receive(first) or b"")["error"] == "the function's process ended with its previous caller"
    assert first.recv(1) == b""
    its.close()
    first.close()


def test_processes_that_wait_for_a_function_end_where_none_has_come_for_long(pool, monkeypatch):
    """An idle system is not to keep 30 MB for each. They are back with the next task."""
    pool, killed = pool
    monkeypatch.setattr(pool, "_fork", lambda: pytest.fail("a process was forked"))
    process, its, ours = a_process(pool, 1001, idle_since=time.monotonic())
    spare_control, spare_end = socket.socketpair()
    pool._processes[1002] = _Process(1002, spare_control)
    pool._on(spare_control, lambda: None)
    pool._used -= pools._IDLE_SECONDS
    pool._end_idle()
    assert killed == [], "a task is running, which another may follow"
    its.send(IDLE)
    pool._heard(process)
    pool._end_idle()
    assert killed == [1002], "the other one may still be answering"
    pool._spare = 2
    assert not pool._lacks_spares(), "none is forked again for no one"
    pool._spare = 0
    ours.close()
    look(pool)
    pool._spare = 2
    assert pool._lacks_spares(), "a task has just ended"
    its.close()
    spare_end.close()


@pytest.mark.parametrize("there", [True, False])
def test_spark_s_daemon_is_ended_for_the_pool_alone(there, monkeypatch):
    """A process that ends without a word is one task's misfortune: with the daemon all jobs lose their workers."""
    ended: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _number: ended.append(pid))
    requests, asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def take_and_say_nothing() -> None:
        _, fds, _, _ = socket.recv_fds(requests, 4096, 1)
        if not there:
            requests.close()
        os.close(fds[0])

    thread = threading.Thread(target=take_and_say_nothing)
    thread.start()
    caller = Caller(asking, os.getppid())
    task = msgspec.json.encode(WorkerTask("x", 0, Hello("job", ""), function="f@1")).decode()
    with pytest.raises(FunctionProcessEnded, match="without an answer" if there else "the pool"):
        caller.run(task)
    thread.join()
    assert ended == ([] if there else [os.getppid()])
    asking.close()
    requests.close()


def test_a_new_function_gets_the_process_that_is_ready_longest(pool):
    """The one that was forked last may still be warming up."""
    pool, _ = pool
    control, other = socket.socketpair()
    spares = [_Process(pid, control, idle_since=float(pid)) for pid in (1001, 1002, 1003)]
    used = [_Process(pid, control, function="f@1", idle_since=float(pid)) for pid in (1004, 1005)]
    pool._processes = {process.pid: process for process in (*spares, *used)}
    assert pool._idle_one("") is spares[0]
    assert pool._idle_one("f@1") is used[-1]
    pool._processes.clear()
    control.close()
    other.close()
