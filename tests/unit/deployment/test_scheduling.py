"""Files that mostly wait have a process of the suite to themselves, until they are done."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.remote import Producer

from tests import scheduling
from tests.conftest import ROOT

BUSY = [f"tests/{name}.py" for name in "abcdefghijklm"]


class Node:
    """A process that does nothing with what it is given."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def files(processes: int) -> list[list[str]]:
    """What each of so many processes runs, which are as quick as each other."""
    names = [*BUSY[:1], *scheduling.WAITING[:3], *BUSY[1:]]
    tests = [f"{name}::test" for name in names]
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(getvalue=lambda _name: ["popen"] * processes, option=option)
    scheduler = scheduling.WaitingApart(config, Producer("tests", enabled=False))
    nodes: list[Any] = [Node(f"gw{number}") for number in range(processes)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    done = dict.fromkeys(range(processes), 0)
    while scheduler.has_pending:
        for number, node in enumerate(nodes):
            if done[number] < len(node.given):
                scheduler.mark_test_complete(node, node.given[done[number]])
                done[number] += 1
    assert all(node.shutting_down for node in nodes)
    return [[names[index] for index in node.given] for node in nodes]


def test_the_last_of_three_has_all_that_wait_and_then_helps_the_others():
    *others, waiting = files(3)
    assert waiting[:3] == list(scheduling.WAITING[:3])
    assert waiting[3:]
    assert sorted([*itertools.chain(*others), *waiting[3:]]) == BUSY


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_share_everything(processes):
    assert sorted(itertools.chain(*files(processes))) == sorted([*BUSY, *scheduling.WAITING[:3]])


def test_the_files_are_there():
    assert [file for file in (*scheduling.FIRST, scheduling.HISTORIES) if not (ROOT / file).is_file()] == []


def test_one_cluster_serves_all_that_run_on_it(request):
    groups = {
        file: scheduling.group(f"{file}::test") for file in ("tests/cluster/test_backfills.py", scheduling.HISTORIES)
    }
    assert len(set(groups.values())) == 2
    assert scheduling.group("tests/cluster/test_compose_runs.py::test[a]") == groups["tests/cluster/test_backfills.py"]
    assert request.node.get_closest_marker("xdist_group").args == (scheduling.group(request.node.nodeid),)
