"""Leman under load, compared with a bare gRPC server with the same answers, in one run: `python -m benchmarks.load`.

A database with a long past is written and services are started on it. Then come the parts that `--only` names:

rpcs      each RPC in a closed loop for what it can, then from half to ten times of that, with health, GetJob and
          CancelJob at the same time (about five minutes)
flood     each RPC through an Envoy from half to ten times what it can, from h2load (needs --front)
watchers  as many streams as there may be (half a minute)
work      jobs with real work, many at once (a minute)
soak      everything at an easy rate for `--minutes`

Prints one JSON document with the targets and whether they are met. With `--json` the parts of earlier runs stay in the
file; `--lake` keeps the database for the next run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import Document, Options, machine, rounded, say, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.load import crowds
from benchmarks.load.cores import keep_apart
from benchmarks.load.flood import flood
from benchmarks.load.front import Front, in_front
from benchmarks.load.generator import Generator
from benchmarks.load.history import fill
from benchmarks.load.rpcs import measure
from benchmarks.load.sampling import Sampler
from benchmarks.load.soak import soak
from benchmarks.load.subjects import System
from benchmarks.load.targets import judged

_PARTS = ("rpcs", "watchers", "work", "flood", "soak")
_USUAL = ("rpcs", "watchers", "work")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=_USUAL, choices=_PARTS, help=f"default: {' '.join(_USUAL)}")
    parser.add_argument("--quick", action="store_true", help="check that it works; its figures mean nothing")
    parser.add_argument("--jobs", type=int, help="of history (default: 100,000)")
    parser.add_argument("--errors", type=int, help="failed rows (default: 1,000,000)")
    parser.add_argument("--seconds", type=float, help="of each step (default: 3)")
    parser.add_argument("--minutes", type=float, help="of the soak (default: 10)")
    parser.add_argument("--rpc", nargs="*", default=[], metavar="NAME", help="of the RPCs only these")
    parser.add_argument("--apart", action="store_true", help="services and callers have cores of their own")
    parser.add_argument("--front", action="store_true", help="through an Envoy; needs requirements/bench.txt")
    parser.add_argument("--plots", type=Path, help="folder that gets plots; needs requirements/bench.txt")
    parser.add_argument("--json", type=Path, help="file that gets the document, in addition to the parts that it has")
    parser.add_argument("--lake", type=Path, help="database to fill and keep, or that an earlier run has filled")
    parser.add_argument("--folder", default="", help="where the database is made")
    given = parser.parse_args()
    if "flood" in given.only and not given.front:
        parser.error("flood is about what a front refuses: it needs --front")
    usual = (2_000, 20_000, 0.5, 0.25) if given.quick else (100_000, 1_000_000, 3.0, 10.0)
    for name, value in zip(("jobs", "errors", "seconds", "minutes"), usual, strict=True):
        if getattr(given, name) is None:
            setattr(given, name, value)
    return given


def main() -> None:
    given = options()
    document: Document = json.loads(given.json.read_text()) if given.json is not None and given.json.exists() else {}
    document |= {"benchmark": "load", "jobs": given.jobs, "errors": given.errors}
    with scratch(Options(0, 0, 0, given.folder)) as folder:
        lake = given.lake.absolute() if given.lake is not None else folder / "lake"
        failed_job = fill(lake, given.jobs, given.errors)
        with running(lake) as caller, in_front(caller) if given.front else contextlib.nullcontext() as front:
            processes = caller.processes() | ({"front": front.pid} if front else {})
            if given.apart:
                keep_apart(processes.values())
            system = System(caller, failed_job, front and front.addresses)
            parts = _parts(given, caller, system, front)
            for name in given.only:
                say(f"== {name}")
                with Sampler(processes) as sampler:
                    found = parts[name]()
                ended = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                document[name] = {**found, "memory": sampler.document(), "ended": ended}
                document[name] |= {"apart": given.apart, "front": given.front, "load": machine()["load"]}
                _keep(document, given)
    document["targets"] = judged(document)
    document["machine"] = machine()
    text = _keep(document, given)
    if given.plots is not None:
        from benchmarks.load.plots import draw  # noqa: PLC0415 - what it needs is not installed everywhere

        draw(json.loads(text), given.plots)
    sys.stdout.write(text)


def _parts(
    given: argparse.Namespace, caller: Caller, system: System, front: Front | None
) -> dict[str, Callable[[], Document]]:
    jobs, streams = (20, 64) if given.quick else (200, 1024)

    def watchers() -> Document:
        with Generator(3) as prober:
            return crowds.watchers(caller, prober, system.probes("executor"), streams, given.seconds)

    def flooded() -> Document:
        assert front is not None  # the options were looked at
        return flood(system, front, given.rpc, given.seconds)

    return {
        "rpcs": lambda: measure(system, given.rpc, given.seconds),
        "watchers": watchers,
        "work": lambda: crowds.real_work(caller, jobs, 20_000),
        "flood": flooded,
        "soak": lambda: soak(caller, system.subjects(), given.minutes),
    }


def _keep(document: Document, given: argparse.Namespace) -> str:
    """Write what there is so far, and return it: a part that fails does not take the earlier ones with it."""
    text = json.dumps(rounded(document), indent=1) + "\n"
    if given.json is not None:
        given.json.write_text(text)
    return text


if __name__ == "__main__":
    main()
