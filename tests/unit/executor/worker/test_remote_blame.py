"""Remote functions on a worker: which rows are to blame where connections break, and when servers are."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule
from leman_core.model.service_errors import Unavailable
from leman_executor.coordination.reservations import InProcessReservations
from leman_executor.scheduling.crash_tracker import MOST_LOST
from leman_executor.worker import user_errors
from leman_executor.worker.evaluator import JobFailing
from leman_executor.worker.remote_calls import RemoteFunction, SharedSuspectLock, SuspectLock
from leman_executor.worker.unit_runner import never_stopped
from leman_executor.worker.unit_runtime import UnitMetrics
from leman_executor.worker.user_errors import FunctionLost
from tests.unit.executor.worker.remote_servers import (
    DEADLY,
    SKIP,
    Breaking,
    Ended,
    Heard,
    Server,
    Silent,
    batch,
    evaluated,
    made,
    nowhere,
    ref,
    running,
)


def test_a_batch_that_breaks_the_connection_again_and_again_is_to_blame():
    one, other = Server(), Server()
    with running(one, other), made(one.address, other.address) as function:
        function(batch(1))
        with pytest.raises(FunctionLost, match="broke 3 times over this batch") as caught:
            function(batch(DEADLY))
        assert function(batch(2)).to_pylist() == [4]
    assert "servers' log" in str(caught.value)
    assert "a smaller `batch_size`" in str(caught.value)
    assert one.batches + other.batches == 5
    assert {"FunctionLost", "WorkerLost", "Exception"} <= user_errors.error_names(caught.value)
    assert user_errors.to_row_failure(caught.value, 0, 0, 1).error_type == "FunctionLost"


def test_a_whole_batch_that_the_policy_tries_again_has_as_many_chances_again():
    """Each retry was over with the first connection that broke, as if the batch was a part of one to blame."""
    server = Server()
    again = ErrorPolicy((ErrorRule(ErrorAction.RETRY, max_attempts=3), ErrorRule(ErrorAction.FAIL)))
    often = pytest.raises(JobFailing, match="broke 3 times over this batch")
    with running(server), made(server.address, policy=again) as function, often:
        evaluated(function, 1, DEADLY, policy=again)
    assert server.batches == 9


@pytest.mark.parametrize("hosts", [1, 4])
def test_batches_that_were_at_work_beside_a_deadly_one_are_not_to_blame(tmp_path, hosts):
    """Nor where they are so again and again while it is isolated; workers are processes of their own elsewhere."""
    server, over = Ended(), threading.Event()
    reservations = InProcessReservations(6.0)

    def on_host(n: int) -> RemoteFunction:
        everywhere = SharedSuspectLock(reservations, 6.0, over.is_set) if hosts > 1 else None
        return made(server.address, suspects=SuspectLock([server.address], everywhere, tmp_path / str(n % hosts)))

    def innocent(n: int) -> None:
        with on_host(n) as function:
            while not over.is_set():
                assert function(batch(n)).to_pylist() == [2 * n]

    def deadly() -> list[int]:
        try:
            with on_host(3) as function:
                skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
                return [f.offset for f in evaluated(function, *range(20), DEADLY, *range(20), policy=skip).failures]
        finally:
            over.set()

    with running(server), ThreadPoolExecutor(4) as threads:
        others = [threads.submit(innocent, n) for n in range(3)]
        assert threads.submit(deadly).result(60) == [20]
        for other in others:
            other.result(20)


def test_rows_are_isolated_as_those_of_any_function():
    server = Server()
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP, ("BadValue", "WorkerLost")),))
    with running(server), made(server.address) as function:
        result = evaluated(function, 1, -5, 3, DEADLY, 5, policy=skip)
    assert result.values.to_pylist() == [2, None, 6, None, 10]
    assert [(f.offset, f.error_type) for f in result.failures] == [(1, "my.pack.BadValue"), (3, "FunctionLost")]


def test_servers_that_take_batches_and_answer_none_end_the_job_and_no_row_is_to_blame():
    """A function without a timeout waited for ever."""
    server, heard = Silent(), Heard()
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    with running(server), made(server.address, answer=0.2) as function, pytest.raises(Unavailable) as caught:
        evaluated(function, 1, 2, policy=skip, notes=UnitMetrics("u", heard))
    assert caught.value.reason == "FUNCTION_UNAVAILABLE"
    assert f"2 times in succession: {server.address} did not answer for 0.2 s" in caught.value.message
    assert "LEMAN_UDF__REMOTE_ANSWER_SECONDS" in caught.value.message
    assert heard.sums == []


@pytest.mark.parametrize(("policy", "of_whole"), [(SKIP, 2), (ErrorPolicy(), 3)], ids=["isolates", "ends"])
def test_a_row_that_breaks_connections_is_found_by_few_of_them(policy, of_whole):
    """Two rows took thirty of them, by halves; where a death takes seconds that took minutes."""
    server, heard = Server(), Heard()
    with running(server), made(server.address, policy=policy, notes=(meter := UnitMetrics("u", heard))) as function:
        result = evaluated(function, *range(1000, 1400), DEADLY, *range(1400, 2000), DEADLY, policy=SKIP, notes=meter)
    assert [f.offset for f in result.failures] == [400, 1001]
    assert heard.error is None
    assert heard.broken == (of_whole - 1) + 2 * (1 + 3), "the whole one's first break was beside others"
    assert server.batches < 100


@pytest.mark.parametrize("deadly", [range(5, 100), range(5, 9)], ids=["all that come", "some"])
def test_rows_are_failed_nowhere_while_the_servers_may_be_to_blame(lab, deadly):
    """They were, in checkpoints: the next job found them failed, and did not compute them."""
    server = Breaking(frozenset(deadly))
    stopped = lambda: any(report.servers.lost >= 4 for report in lab.reports)  # noqa: E731
    with running(server):
        skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
        udf = replace(ref(server.address), error_policy=skip, batch_size=1)
        context = lab.context(udf, checkpoint_seconds=0.0)
        outcome = lab.run(
            context, lab.work(context, 0, [(0, 20)]), stopped=stopped if len(deadly) > 4 else never_stopped
        )
    (result,) = outcome.results
    if len(deadly) > 4:
        assert [(r.start, r.end) for r in result.left] == [(5, 20)]
        assert lab.errors == []
    else:
        assert (result.rows_computed, result.rows_failed) == (16, 4)
        assert [row.offset for row in lab.errors] == [*deadly]


def test_servers_that_break_every_connection_are_found_out_after_some_rows():
    """A whole table was tried row by row, at half a second for each."""
    server, heard = Server(), Heard()
    retry = ErrorRule(ErrorAction.RETRY, ("FunctionLost",), max_attempts=2)
    policy = ErrorPolicy((retry, ErrorRule(ErrorAction.SKIP)))
    with running(server), made(server.address) as function:
        evaluated(function, *[DEADLY] * (MOST_LOST - 1), policy=policy, notes=UnitMetrics("u", heard))
        assert heard.error is None
        assert heard.sums == [(0, n) for n in range(1, MOST_LOST)]
        evaluated(function, DEADLY, policy=policy, notes=UnitMetrics("v", heard))
    assert heard.error is not None
    assert "broke 3 times over this batch: " + server.address in heard.error.message


def test_rows_that_break_connections_among_others_end_no_job():
    server, heard = Server(), Heard()
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    values = [*[DEADLY] * (MOST_LOST - 1), -1, DEADLY, 4]  # an error is an answer, too
    with running(server), made(server.address) as function:
        result = evaluated(function, *values, policy=skip, notes=UnitMetrics("u", heard))
    assert result.values.to_pylist() == [None] * (MOST_LOST + 1) + [8]
    assert heard.sums[-1][1] == MOST_LOST
    assert heard.error is None


def test_no_policy_skips_rows_because_no_server_is_there():
    skip = ErrorPolicy((ErrorRule(ErrorAction.SKIP),))
    with made(nowhere(), patience=0.0) as function, pytest.raises(Unavailable):
        evaluated(function, 1, 2, policy=skip)


def test_without_a_policy_the_row_that_fails_fails_the_job():
    server = Server()
    with running(server), made(server.address) as function, pytest.raises(JobFailing) as caught:
        evaluated(function, 1, -2)
    assert caught.value.failure.error_type == "my.pack.BadValue"
