"""Which process of the whole suite, and of that of clusters and object stores, runs which file.

Two of them share the processors; a third one has the files that wait much, for services that restart, leases that
expire and programs of clients: in their pauses the others have the processors. After these it takes others, too: many
wait for something now and then.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: So many processes are needed for one to do nothing but wait.
WITH_A_WAITING_ONE = 3
#: Files that wait much, with services of their own.
WAITING = (
    "tests/conformance/clients/test_cases.py",
    "tests/conformance/clients/test_languages.py",
    "tests/faults/test_frozen_executor.py",
    "tests/faults/test_rolling_restarts.py",
    "tests/faults/test_stalls.py",
    "tests/integration/remote_functions/test_remote_functions.py",
)
#: What `./leman test` leaves out unless LEMAN_LONG=1 is set or it is named: kills, object stores, all cases of clients.
FULL_TIER = ("tests/faults/", "tests/object_store/test_on_a_store.py", "tests/conformance/clients/test_cases.py")
#: Of these, what runs with each change all the same.
ONE_OF_EACH_KIND = (
    "tests/faults/test_damaged_checkpoints.py",
    "tests/faults/test_killed_columns.py::test_of_the_executor_in_the_second_of_three_columns",
    "tests/faults/test_killed_processes.py::test_of_the_executor",
    "tests/faults/test_killed_refreshes.py::test_in_a_refresh_of_what_changed",
    "tests/faults/test_whole_system.py::test_the_supervisor_is_ended[killed]",
)
#: Histories of a table in a store, of which nothing else runs.
HISTORIES = "tests/object_store/test_machine_on_a_store.py"
#: The files that take longest come first: none is waited for in the end.
FIRST = ("tests/integration/views/histories/test_sequences.py", *WAITING)


def order(nodeid: str) -> int:
    """Return the place of a test's file."""
    file = nodeid.partition("::")[0]
    return FIRST.index(file) if file in FIRST else len(FIRST)


def is_left_out(nodeid: str) -> bool:
    """Tell whether a test is of the full tier alone."""
    return nodeid.startswith(FULL_TIER) and not nodeid.startswith(ONE_OF_EACH_KIND)


def group(nodeid: str) -> str:
    """Return what a test is run with in one process where `test --cluster` has two.

    There is one cluster for all that run on it; the histories need none, and mostly wait for a store that is far.
    """
    return "histories" if nodeid.startswith(HISTORIES) else "services"


class WaitingApart(LoadFileScheduling):
    """Gives files that wait to one process, before all others, and to no other one as long as there are others."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._waiting: WorkerController | None = None

    def add_node(self, node: WorkerController) -> None:
        """Take a process in; the last one waits."""
        super().add_node(node)
        if len(self.nodes) == self.numnodes >= WITH_A_WAITING_ONE:
            self._waiting = node

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process out; what it had not done, others do.

        Of one that died amid a test, xdist gives others also the files that it was done with: nothing to do, and a
        process that has one test left waits for ever for what comes after it.
        """
        given = self.assigned_work[node]
        self.assigned_work[node] = {file: tests for file, tests in given.items() if not all(tests.values())}
        return super().remove_node(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits = node is self._waiting
        scope = next((file for file in self.workqueue if (file in WAITING) == waits), None)
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)
