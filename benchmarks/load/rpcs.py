"""The RPCs one by one: what each can, compared with the bare server with its answer, and what it does when asked for
more."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import grpc

from benchmarks.common import Document, say
from benchmarks.load import ghz
from benchmarks.load.bare import bare_server, on_bare, with_answers
from benchmarks.load.generator import Generator
from benchmarks.load.overload import Overload
from benchmarks.load.subjects import Subject, System

_TURNS = 3


def measure(system: System, names: Sequence[str], seconds: float) -> Document:
    """Measure all RPCs, or those that are named."""
    subjects = [one for one in system.subjects() if not names or one.name in names]
    found: Document = {"seconds": seconds, "first_call_ms": {one.name: _first_call(one) for one in subjects}}
    say(f"first calls: { {name: round(took) for name, took in found['first_call_ms'].items()} } ms")
    answers = with_answers({one.name: one.target for one in subjects})
    with bare_server(answers) as address, Generator() as generator, Generator(3) as prober:
        overload = Overload(generator, prober, seconds)
        found["subjects"] = {
            one.name: _measured(one, number, address, system, overload) for number, one in enumerate(subjects)
        }
    return found


def _measured(subject: Subject, number: int, bare: str, system: System, overload: Overload) -> Document:
    target = on_bare(subject.target, bare, number)
    found = overload.document(subject, system.probes(subject.service))
    found["bare"] = _beside(subject, Subject(subject.name, target, subject.callers), overload)
    go = ghz.installed()
    if go is not None:
        found["ghz"] = ghz.run(go, subject.target, callers=subject.callers, seconds=overload.seconds)
        say(f"  ghz: {found['ghz']['calls_per_second']:.0f}/s")
    return found


def _beside(subject: Subject, bare: Subject, overload: Overload) -> Document:
    """Call Leman and the bare server in turn: what the machine does meanwhile is done to both."""
    rates: dict[str, list[float]] = {"leman": [], "bare": []}
    for _ in range(_TURNS):
        for name, side in (("leman", subject), ("bare", bare)):
            answers = overload.closed_loop(side).document(side.target)
            rates[name].append(answers["answered_per_second"])
    share = statistics.median(ours / theirs for ours, theirs in zip(*rates.values(), strict=True))
    say(f"  bare grpc.aio: {statistics.median(rates['bare']):.0f}/s; Leman next to it {share:.0%} of that")
    return {**rates, "answered_per_second": statistics.median(rates["bare"]), "share": share}


def _first_call(subject: Subject) -> float:
    """Return the milliseconds of a call that is the first of its kind in the life of the services."""
    target = subject.target
    with grpc.insecure_channel(target.address) as channel:
        grpc.channel_ready_future(channel).result(10)
        begun = time.perf_counter()
        try:
            channel.unary_unary(target.method)(target.message(0), metadata=target.metadata)
        except grpc.RpcError as error:
            if error.code().name not in target.answers:
                raise
        return (time.perf_counter() - begun) * 1000
