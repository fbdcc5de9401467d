"""Whether what a client saw is what it was promised. Pure.

A job is watched to its end, and then again from its beginning. What the second watch tells is what the services know:
the first one must have told all of that, each event once and in the same order. Where the executor that kept events was
killed meanwhile, `events_missing` must have said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

#: How each job of a round ends.
ENDS = {"usual": "DONE", "twice": "DONE", "cancelled": "CANCELLED"}


def faults_of_round(seen: Mapping[str, Any], rows: int) -> Iterator[str]:
    """What is wrong in a round; nothing: all is right. `rows`: how many it appends."""
    jobs = {job["name"]: job for job in seen["jobs"]}
    if jobs.keys() != ENDS.keys():
        yield f"it has the jobs {sorted(jobs)}"
        return
    for name, job in jobs.items():
        yield from (f"job {name} {job['job']}: {fault}" for fault in faults_of_job(job, ENDS[name]))
    if jobs["twice"]["again"] != jobs["twice"]["job"]:
        yield f"one request made two jobs: {jobs['twice']['job']} and {jobs['twice']['again']}"
    if sorted(seen["listed"]) != sorted(job["job"] for job in jobs.values()):
        yield f"listed were {seen['listed']}, and not {[job['job'] for job in jobs.values()]}"
    sums, expected = seen["sums"], sums_of(rows * (seen["number"] + 1))
    if sums != expected:
        yield f"rows add up to {sums}, and not to {expected}"


def sums_of(rows: int) -> dict[str, int]:
    """What the columns of the table add up to, once `rows` rows are computed."""
    total = rows * (rows - 1) // 2
    return {"rows": rows, "id": total, "a": 3 * total, "b": -total}


def faults_of_job(job: Mapping[str, Any], end: str) -> Iterator[str]:
    """What is wrong with a job, or with what its watches told."""
    if job["state"] != end:
        yield f"it ended as {job['state']}, and not as {end}"
    first, second = job["first"], job["second"]
    for which, watch in (("first", first), ("second", second)):
        yield from (f"the {which} watch: {fault}" for fault in _faults_of_watch(watch, job["state"]))
    if not second["missing"] and first["events"] != second["events"]:
        yield f"the first watch told {first['events']}, and not {second['events']}"
    known = [event for event in first["events"] if event >= second["events"][0]] if second["events"] else []
    if known != second["events"]:
        yield f"the first watch told {known} at last, and not {second['events']}"
    if job["attempt"] > 1 and not first["missing"]:
        yield f"it had {job['attempt']} attempts, and no one said that events may be missing"


def _faults_of_watch(watch: Mapping[str, Any], end: str) -> Iterator[str]:
    events, sequences = watch["events"], watch["sequences"]
    if watch["end"] != end:
        yield f"it ended with {watch['end']}"
    if any(a >= b for a, b in pairwise(events)):
        yield f"events came twice, or in a wrong order: {events}"
    if any(a > b for a, b in pairwise(sequences)):
        yield f"its sequence fell: {sequences}"
    if not events or not sequences or events[-1] != sequences[-1]:
        yield f"the end is not its last event: {events[-1:]} of {sequences[-1:]}"


def faults_of_all(rounds: Sequence[Mapping[str, Any]], listed: Sequence[str]) -> Iterator[str]:
    """What is wrong with the jobs of a database, which are to be those of the rounds."""
    made = [job["job"] for seen in rounds for job in seen["jobs"]]
    for job in sorted({*made, *listed}):
        if (made.count(job), listed.count(job)) != (1, 1):
            yield f"job {job} was made {made.count(job)} times and is listed {listed.count(job)} times"


def faults_of_rows(rows: Sequence[Mapping[str, int | None]], count: int) -> Iterator[str]:
    """What is wrong with the rows of a table to which the numbers up to `count` were appended."""
    expected = [{"id": number, "a": 3 * number, "b": -number} for number in range(count)]
    found = sorted(rows, key=lambda row: (row["id"] is None, row["id"]))
    if found != expected:
        wrong = [row for row in found if row not in expected][:3]
        yield f"the table has {len(found)} rows, and not {count}; wrong are {wrong}"


def leaks(warm: Mapping[str, int], last: Mapping[str, int], leeway: Mapping[str, int]) -> Iterator[str]:
    """What there is more of than after the warm-up. `leeway`: how much more may be, by what is counted."""
    for what, before in warm.items():
        if last[what] > before + leeway.get(what, 0):
            yield f"{last[what]} {what}, and {before} after the warm-up"
