"""What `benchmarks.load` makes of calls: figures, and whether they show what is promised."""

from __future__ import annotations

import grpc
import pytest

from benchmarks.load.flood import _sent_often
from benchmarks.load.front import Front, Noted
from benchmarks.load.generator import Outcomes, Target, _is_explained
from benchmarks.load.targets import judged
from leman.v1 import jobs_pb2
from leman_core.model.service_errors import NotFound, ResourceExhausted
from leman_core.server import status

TARGET = Target("127.0.0.1:1", "/x/Y", (b"",))


def error(code: grpc.StatusCode, details: bytes | None) -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata() if details is None else grpc.aio.Metadata((status.DETAILS_KEY, details))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers)


def packed(raised: Exception) -> bytes:
    return status.to_status(raised).SerializeToString()


def test_a_refusal_is_explained_by_its_reason_and_by_when_to_come_again():
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert _is_explained(error(exhausted, packed(ResourceExhausted("TOO_MANY_CALLS", "x"))))
    assert not _is_explained(error(exhausted, packed(ResourceExhausted("TOO_MANY_CALLS", "x", retry_after_seconds=0))))
    assert not _is_explained(error(exhausted, None))
    assert _is_explained(error(grpc.StatusCode.NOT_FOUND, packed(NotFound("JOB_NOT_FOUND", "x"))))


def test_processes_are_counted_together():
    outcomes, other = Outcomes(seconds=2.0), Outcomes(seconds=4.0)
    for milliseconds in range(100):
        outcomes.add("OK", milliseconds / 1000)
    other.add("RESOURCE_EXHAUSTED", 0.5, explained=False)
    outcomes.merge(other)
    document = outcomes.document(TARGET)
    assert (document["answered_per_second"], document["answered"]["p50"], document["answered"]["p99"]) == (25, 50, 99)
    assert document["others"]["RESOURCE_EXHAUSTED"]["calls"] == 1
    assert document["unexplained"] == {"RESOURCE_EXHAUSTED": 1}


def test_each_job_is_asked_for_under_an_id_of_its_own():
    target = Target("127.0.0.1:1", "/x/Y", (jobs_pb2.CreateJobRequest().SerializeToString(),), makes_jobs=True)
    ids = {jobs_pb2.CreateJobRequest.FromString(target.message(n)).request_id for n in range(3)}
    assert len(ids) == 3


def step(factor: float, answered: float, p99: float, *, refused: float = 0.0, probe: float = 1.0) -> dict[str, object]:
    others = {"RESOURCE_EXHAUSTED": {"calls": 5, "p99": refused}} if refused else {}
    return {
        "factor": factor,
        "answered_per_second": answered,
        "answered": {"p99": p99},
        "others": others,
        "unexplained": {},
        "probes": {"health": {"answered": {"p99": probe}}},
    }


@pytest.mark.parametrize(
    ("last", "after", "missed"),
    [
        (step(10, 90, 50, refused=60), 10, []),
        (step(10, 70, 50, refused=60), 10, ["≥ 80 % of the peak"]),
        (step(10, 90, 50, refused=160), 10, ["refusals p99 ≤ 100 ms"]),
        (step(10, 90, 50, refused=60, probe=101), 10, ["health, GetJob and CancelJob meanwhile p99 ≤ 100 ms"]),
        (step(10, 90, 50, refused=60), 25, ["p99 a second after it as before (10.0 ms)"]),
        ({**step(10, 90, 50, refused=60), "unexplained": {"X": 1}}, 10, ["refusals without ErrorInfo or RetryInfo"]),
    ],
)
def test_each_promise_is_judged_by_itself(last, after, missed):
    rpc = {
        "closed_loop": {"answered_per_second": 100.0},
        "open_loop": [step(0.5, 50, 10), last],
        "after": {"answered": {"p99": after}},
    }
    targets = judged({"rpcs": {"subjects": {"ExplainPlan": rpc}}})
    assert len(targets) == 5
    assert [target["rule"].partition(": ")[2] for target in targets if not target["met"]] == missed


def flooded(
    answered: float, refused: float, *, sent: float = 1.0, probe: float = 1.0, unexplained: int = 0
) -> dict[str, object]:
    refusals = {"RESOURCE_EXHAUSTED": {"p99": refused}}
    return {
        "factor": 10,
        "rate": 1000,
        "calls_per_second": 1000 * sent,
        "answered_per_second": answered,
        "all": {"p99": 50.0},
        "probes": {
            "GetJob": {"answered": {}, "others": {"RESOURCE_EXHAUSTED": {"p99": probe}}},
            "itself": {"answered": {"p99": 300.0}, "others": refusals, "unexplained": {"X": unexplained}},
        },
    }


@pytest.mark.parametrize(
    ("last", "after", "missed"),
    [
        (flooded(90, 50), 10, []),
        (flooded(90, 50, sent=0.8), 10, ["at 10 times: ≥ 90 % of the calls were sent"]),
        (flooded(70, 50), 10, ["at 10 times: ≥ 80 % of the peak"]),
        (flooded(90, 101), 10, ["refusals p99 ≤ 100 ms"]),
        (flooded(90, 50, unexplained=1), 10, ["refusals without ErrorInfo or RetryInfo"]),
        (flooded(90, 50), 25, ["p99 a second after it as before (10.0 ms)"]),
        (flooded(90, 50, probe=101), 10, ["health, GetJob and CancelJob meanwhile p99 ≤ 100 ms"]),
    ],
)
def test_a_flood_through_a_front_is_judged_by_the_refusals_that_a_client_sees(last, after, missed):
    half = {**flooded(50, 1), "all": {"p99": 10.0}}
    rpc = {
        "closed_loop": {"answered_per_second": 100.0},
        "open_loop": [half, last],
        "after": {"all": {"p99": after}},
    }
    targets = judged({"flood": {"subjects": {"X": rpc}}})
    found = [str(one["rule"]) for one in targets if not one["met"]]
    assert len(found) == len(missed)
    assert all(rule.endswith(end) for rule, end in zip(found, missed, strict=True))


def test_the_front_s_log_tells_refusals_from_answers_and_leaves_out_what_was_cut(tmp_path):
    log = tmp_path / "calls.log"
    log.write_text("/x/Y - OK 3\n/x/Y UO RESOURCE_EXHAUSTED 0\n/x/Y DC - 9\n/x/Y - NOT_FOUND 5\n/x/Y -")
    front = Front({}, 1, log)
    noted = [Noted("/x/Y", "OK", False, 0.003), Noted("/x/Y", "RESOURCE_EXHAUSTED", True, 0.0)]
    assert front.noted() == [*noted, Noted("/x/Y", "NOT_FOUND", False, 0.005)]
    front.forget()
    assert front.noted() == []


def test_a_flood_of_jobs_makes_one_with_each_call():
    target = Target(
        "127.0.0.1:1", "/x/Y", (jobs_pb2.CreateJobRequest(request_id="r").SerializeToString(),), makes_jobs=True
    )
    assert jobs_pb2.CreateJobRequest.FromString(_sent_often(target)).request_id == ""
