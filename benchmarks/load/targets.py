"""What is promised of Leman under load, and whether a document shows it."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.common import Document, Target
from benchmarks.load.flood import ITSELF, worst_of
from benchmarks.load.overload import FACTORS

#: A latency counts as unchanged up to this factor of the earlier one and this many milliseconds.
_AS_BEFORE, _MILLISECONDS = 1.5, 5.0


def judged(document: Document) -> list[Document]:
    """Return the targets of the parts that a document has."""
    return [target.document() for target in _targets(document)]


def _targets(document: Document) -> Iterator[Target]:
    rpcs = document.get("rpcs", {}).get("subjects", {})
    yield from _rates(rpcs)
    for name, rpc in rpcs.items():
        yield from _overload(name, rpc)
    for name, rpc in document.get("flood", {}).get("subjects", {}).items():
        yield from _flood(name, rpc)
    if "watchers" in document:
        yield from _watchers(document["watchers"])
    if "work" in document:
        yield from _work(document["work"])
    if "soak" in document:
        yield from _soak(document["soak"])


def _rates(rpcs: Document) -> Iterator[Target]:
    if "GetJob" in rpcs:
        yield Target("GetJob ≥ 60 % of a bare server", rpcs["GetJob"]["bare"]["share"], 0.6, at_least=True)
    rates = {"GetJob, unknown": 1000, "CreateJob, nothing to do": 100}
    rates |= {name: 300 for name in rpcs if name.startswith("ListJobs")}
    for name, least in rates.items():
        if name in rpcs:
            rate = rpcs[name]["closed_loop"]["answered_per_second"]
            yield Target(f"{name} ≥ {least}/s", rate, least, at_least=True)
    if "CreateJob, nothing to do" in rpcs:
        rpc = rpcs["CreateJob, nothing to do"]
        yield Target(
            f"CreateJob, nothing to do, p99 ≤ 250 ms of {rpc['callers']} callers",
            rpc["closed_loop"]["answered"]["p99"],
            250,
        )
    if "ListJobErrors" in rpcs:
        took = rpcs["ListJobErrors"]["one_caller"]["answered"]
        yield Target("ListJobErrors, a page ≤ 20 ms (p50 of one caller)", took["p50"], 20)


def _overload(name: str, rpc: Document) -> Iterator[Target]:
    steps = rpc["open_loop"]
    if not steps:
        return
    peak, last = rpc["closed_loop"]["answered_per_second"], steps[-1]
    reached = "" if last["factor"] == FACTORS[-1] else ", the most that the generator can send"
    at = f"{name} at {last['factor']:g} times{reached}"
    refused = [took["p99"] for step in steps for took in step["others"].values()]
    if refused:
        yield Target(f"{name}: refusals p99 ≤ 100 ms", max(refused), 100)
        bare = sum(sum(step["unexplained"].values()) for step in steps)
        yield Target(f"{name}: refusals without ErrorInfo or RetryInfo", bare, 0)
    yield Target(f"{at}: ≥ 80 % of the peak", last["answered_per_second"] / peak, 0.8, at_least=True)
    yield _as_before(name, steps[0]["answered"]["p99"], rpc["after"]["answered"].get("p99", float("inf")))
    probes = [probe["answered"].get("p99", float("inf")) for step in steps for probe in step["probes"].values()]
    yield Target(f"{name}: health, GetJob and CancelJob meanwhile p99 ≤ 100 ms", max(probes), 100)


def _as_before(name: str, before: float, after: float) -> Target:
    """A latency under half of the peak, before all else and a second after it."""
    limit = _AS_BEFORE * before + _MILLISECONDS
    return Target(f"{name}: p99 a second after it as before ({before:.1f} ms)", after, limit)


def _flood(name: str, rpc: Document) -> Iterator[Target]:
    steps, peak = rpc["open_loop"], rpc["closed_loop"]["answered_per_second"]
    last = steps[-1]
    at = f"{name} through a front at {last['factor']:g} times"
    yield Target(f"{at}: ≥ 90 % of the calls were sent", last["calls_per_second"] / last["rate"], 0.9, at_least=True)
    yield Target(f"{at}: ≥ 80 % of the peak", last["answered_per_second"] / peak, 0.8, at_least=True)
    itself = [step["probes"][ITSELF] for step in steps]
    refused = [took["p99"] for probe in itself for took in probe["others"].values()]
    if refused:
        yield Target(f"{name} through a front: refusals p99 ≤ 100 ms", max(refused), 100)
        bare = sum(sum(probe["unexplained"].values()) for probe in itself)
        yield Target(f"{name} through a front: refusals without ErrorInfo or RetryInfo", bare, 0)
    yield _as_before(f"{name} through a front", steps[0]["all"]["p99"], rpc["after"]["all"]["p99"])
    beside = [probe for step in steps for kind, probe in step["probes"].items() if kind != ITSELF]
    rule = f"{name} through a front: health, GetJob and CancelJob meanwhile p99 ≤ 100 ms"
    yield Target(rule, worst_of(beside), 100)


def _watchers(found: Document) -> Iterator[Target]:
    yield Target(f"{found['streams']} watchers stay", found["still_open"], found["streams"], at_least=True)
    probes = [probe["answered"].get("p99", float("inf")) for probe in found["probes"].values()]
    yield Target("health, GetJob and CancelJob beside watchers p99 ≤ 100 ms", max(probes), 100)


def _work(found: Document) -> Iterator[Target]:
    many = found["many"]
    yield Target(f"{many['jobs']} jobs with work at once end right", many["right"], many["jobs"], at_least=True)
    few = found["few"]["peak_mb"] - found["before_mb"]
    rule = f"memory above idle no more than 1.25 times that of as many jobs, {found['few_at_a_time']} at a time"
    yield Target(rule, many["peak_mb"] - found["before_mb"], 1.25 * few)


def _soak(found: Document) -> Iterator[Target]:
    for name, kinds in found["growth"].items():
        for kind, growth in kinds.items():
            if kind != "mb" or name != "disk":
                yield Target(f"soak: {name} {kind} in the last quarter ≤ 1.05 times the second", growth["share"], 1.05)
