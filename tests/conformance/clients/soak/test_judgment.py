"""Whether a soak would notice what it is there for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.clients.soak import judgment

_ATTEMPT = 1 << 32


def job(name: str) -> dict[str, Any]:
    watch = {"sequences": [3, 3, 8, 9], "events": [1, 3, 8, 9], "missing": False, "end": judgment.ENDS[name]}
    told = {"name": name, "job": f"job-{name}", "state": judgment.ENDS[name], "attempt": 1}
    told |= {"first": copy.deepcopy(watch), "second": copy.deepcopy(watch)}
    return told | ({"again": "job-twice"} if name == "twice" else {})


def seen() -> dict[str, Any]:
    jobs = [job(name) for name in judgment.ENDS]
    sums = {"rows": 4, "id": 6, "a": 18, "b": -6}
    return {"number": 1, "jobs": jobs, "listed": [one["job"] for one in jobs], "sums": sums}


def taken_over(told: dict[str, Any]) -> None:
    """Its executor was killed after the second event: no one knows whether that was the last of its attempt."""
    of_second = [_ATTEMPT + 2, _ATTEMPT + 9]
    told["attempt"] = 2
    told["first"] |= {"events": [1, 3, *of_second], "sequences": [3, *of_second], "missing": True}
    told["second"] |= {"events": of_second, "sequences": of_second, "missing": True}


def test_what_is_right_is_right():
    told = seen()
    assert list(judgment.faults_of_round(told, 2)) == []
    taken_over(told["jobs"][0])
    assert list(judgment.faults_of_round(told, 2)) == []


def damage(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Put something else in a place of the first job."""

    def do(told: dict[str, Any]) -> None:
        place = told["jobs"][0]
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return do


def untold_takeover(told: dict[str, Any]) -> None:
    taken_over(told["jobs"][0])
    told["jobs"][0]["first"]["missing"] = False


def lost_after_takeover(told: dict[str, Any]) -> None:
    taken_over(told["jobs"][0])
    del told["jobs"][0]["first"]["events"][2]


@pytest.mark.parametrize(
    ("do", "fault"),
    [
        (damage("first", "events", value=[1, 8, 9]), "told [1, 8, 9], and not [1, 3, 8, 9]"),
        (damage("first", "events", value=[1, 3, 3, 8, 9]), "came twice"),
        (damage("first", "events", value=[3, 1, 8, 9]), "in a wrong order"),
        (damage("first", "events", value=[]), "not its last event"),
        (damage("first", "sequences", value=[3, 1, 9]), "its sequence fell"),
        (damage("first", "sequences", value=[3, 8]), "not its last event"),
        (damage("second", "end", value="RUNNING"), "it ended with RUNNING"),
        (damage("state", value="FAILED"), "it ended as FAILED"),
        (untold_takeover, "no one said"),
        (lost_after_takeover, "at last"),
        (lambda told: told["jobs"][1].update(again="job-other"), "one request made two jobs"),
        (lambda told: told["listed"].append("job-other"), "listed were"),
        (lambda told: told["listed"].append("job-usual"), "listed were"),
        (lambda told: told["sums"].update(a=15), "rows add up to"),
        (lambda told: told["jobs"].pop(), "it has the jobs"),
    ],
)
def test_what_is_wrong_is_told(do, fault):
    told = seen()
    do(told)
    assert any(fault in found for found in judgment.faults_of_round(told, 2))


def test_jobs_that_nobody_made_or_that_are_gone_are_told():
    ids = ["job-usual", "job-twice", "job-cancelled"]
    assert list(judgment.faults_of_all([seen()], ids)) == []
    assert [fault.split()[1] for fault in judgment.faults_of_all([seen()], [*ids[:2], "job-9"])] == [
        "job-9",
        "job-cancelled",
    ]
    assert "listed 2 times" in next(judgment.faults_of_all([seen()], [*ids, ids[0]]))


def test_rows_that_are_there_twice_or_wrong_are_told():
    right = [{"id": n, "a": 3 * n, "b": -n} for n in (2, 0, 1)]
    assert list(judgment.faults_of_rows(right, 3)) == []
    for wrong in ([*right, right[0]], right[1:], [*right[1:], {"id": 2, "a": 6, "b": None}]):
        assert list(judgment.faults_of_rows(wrong, 3))


def test_what_is_held_beyond_the_leeway_is_told():
    warm, last = {"threads": 5, "handles": 20}, {"threads": 4, "handles": 22}
    assert list(judgment.leaks(warm, last, {"handles": 2})) == []
    assert list(judgment.leaks(warm, last, {"handles": 1})) == ["22 handles, and 20 after the warm-up"]
