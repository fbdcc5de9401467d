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
    """A process that does nothing with what it is given. As xdist's, it runs a test once it knows the next one, or that
    there is none."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.done = 0
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def runs(self) -> bool:
        """Whether it resumes by itself."""
        return self.done < len(self.given) - (not self.shutting_down)


class Suite:
    """Tests that so many processes run, which are as quick as each other."""

    def __init__(self, names: list[str], processes: int) -> None:
        self.names = names
        self._tests = [f"{name}::test" for name in names]
        option = SimpleNamespace(loadscopereorder=False)
        config: Any = SimpleNamespace(getvalue=lambda _name: ["popen"] * processes, option=option)
        self._scheduler: Any = scheduling.WaitingApart(config, Producer("tests", enabled=False))
        self.nodes: list[Node] = []
        for _ in range(processes):
            self._start()
        self._scheduler.schedule()

    def _start(self) -> None:
        node = Node(f"gw{len(self.nodes)}")
        self.nodes.append(node)
        self._scheduler.add_node(node)
        self._scheduler.add_node_collection(node, self._tests)

    def run(self, rounds: int = 1000) -> None:
        """Have each of them run one test in a round, until there are no more."""
        for _ in range(rounds):
            if self._scheduler.tests_finished:
                for node in self.nodes:
                    node.shutdown()
            running = [node for node in self.nodes if node.runs]
            for node in running:
                node.done += 1
                self._scheduler.mark_test_complete(node, node.given[node.done - 1])
            if not running:
                return

    def crash(self, node: Node) -> str:
        """End a process amid a test, which is reported, and start another one."""
        running = self._scheduler.remove_node(node)
        del node.given[node.done :]
        self._start()
        self._scheduler.schedule()
        return running

    def ran(self, node: Node) -> list[str]:
        """The files whose tests it has run."""
        return [self.names[index] for index in node.given[: node.done]]


def files(processes: int) -> list[list[str]]:
    """What each of so many processes runs."""
    suite = Suite([*BUSY[:1], *scheduling.WAITING[:3], *BUSY[1:]], processes)
    suite.run()
    assert all(node.shutting_down for node in suite.nodes)
    return [suite.ran(node) for node in suite.nodes]


def test_the_last_of_three_has_all_that_wait_and_then_helps_the_others():
    *others, waiting = files(3)
    assert waiting[:3] == list(scheduling.WAITING[:3])
    assert waiting[3:]
    assert sorted([*itertools.chain(*others), *waiting[3:]]) == BUSY


@pytest.mark.parametrize("processes", [1, 2])
def test_fewer_share_everything(processes):
    assert sorted(itertools.chain(*files(processes))) == sorted([*BUSY, *scheduling.WAITING[:3]])


@pytest.mark.parametrize("crashing", range(3))
@pytest.mark.parametrize("rounds", range(4))
def test_a_process_that_ends_amid_a_test_leaves_nothing_undone(crashing, rounds):
    suite = Suite([*scheduling.WAITING[:3], *(f"tests/{number}.py" for number in range(30))], 3)
    suite.run(3 * rounds)
    node = suite.nodes[crashing]
    amid = suite.names[node.given[node.done]]
    assert suite.crash(node) == f"{amid}::test"
    suite.run()
    assert sorted(itertools.chain(*map(suite.ran, suite.nodes))) == sorted(suite.names)


def test_the_files_are_there():
    assert [file for file in (*scheduling.WAITING, scheduling.HISTORIES) if not (ROOT / file).is_file()] == []


def test_one_cluster_serves_all_that_run_on_it(request):
    groups = {
        file: scheduling.group(f"{file}::test") for file in ("tests/cluster/test_backfills.py", scheduling.HISTORIES)
    }
    assert len(set(groups.values())) == 2
    assert scheduling.group("tests/cluster/test_compose_runs.py::test[a]") == groups["tests/cluster/test_backfills.py"]
    assert request.node.get_closest_marker("xdist_group").args == (scheduling.group(request.node.nodeid),)
