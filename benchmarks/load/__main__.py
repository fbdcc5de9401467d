"""Leman under load, beside a bare gRPC server with the same answers, in one run: `python -m benchmarks.load`.

A database with a long past is written, services are started on it, and each RPC is called: in a closed loop for what it
can, then from half to ten times of that, with health, GetJob and CancelJob beside it. Then come as many watchers as
there may be, and many jobs with real work at once. `--minutes` adds a soak. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Document, Options, machine, rounded, say, scratch
from benchmarks.leman_side import running
from benchmarks.load import crowds, ghz
from benchmarks.load.bare import bare_server, on_bare, with_answers
from benchmarks.load.generator import Generator
from benchmarks.load.history import fill
from benchmarks.load.overload import Overload
from benchmarks.load.sampling import Sampler
from benchmarks.load.soak import soak
from benchmarks.load.subjects import Subject, System

_STREAMS = 1024
_REAL_JOBS = 200


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000, help="of history (default: %(default)s)")
    parser.add_argument("--errors", type=int, default=1_000_000, help="failed rows (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each step (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=0.0, help="of the soak; 0: none (default)")
    parser.add_argument("--only", nargs="*", default=[], metavar="PART", help="rpcs, watchers, work; default: all")
    parser.add_argument("--rpc", nargs="*", default=[], metavar="NAME", help="of the RPCs only these")
    parser.add_argument("--plots", type=Path, help="folder that gets plots; needs requirements/bench.txt")
    parser.add_argument("--json", type=Path, help="file that gets the document too")
    parser.add_argument("--lake", type=Path, help="database to fill and keep, or that an earlier run has filled")
    parser.add_argument("--folder", default="", help="where the database is made")
    return parser.parse_args()


def main() -> None:
    given = options()
    document: Document = {"benchmark": "load", "jobs": given.jobs, "errors": given.errors, "seconds": given.seconds}
    with scratch(Options(0, 0, 0, given.folder)) as folder:
        lake = given.lake or folder / "lake"
        failed_job = fill(lake, given.jobs, given.errors)
        with running(lake) as caller, Sampler(caller.processes()) as sampler:
            system = System(caller, failed_job)
            with _part(given, "rpcs") as wanted, Generator() as generator, Generator(3) as prober:
                if wanted:
                    overload = Overload(generator, prober, given.seconds)
                    subjects = [one for one in system.subjects() if not given.rpc or one.name in given.rpc]
                    document["rpcs"] = _rpcs(subjects, system, overload, given.seconds)
            with _part(given, "watchers") as wanted, Generator(3) as prober:
                if wanted:
                    probes = system.probes("executor")
                    document["watchers"] = crowds.watchers(caller, prober, probes, _STREAMS, given.seconds)
            with _part(given, "work") as wanted:
                if wanted:
                    document["real_work"] = crowds.real_work(caller, _REAL_JOBS, 20_000)
            if given.minutes:
                document["soak"] = soak(caller, system.subjects(), given.minutes)
        document["memory"] = sampler.document()
    document["machine"] = machine()
    text = json.dumps(rounded(document), indent=2)
    if given.json is not None:
        given.json.write_text(text + "\n")
    if given.plots is not None:
        from benchmarks.load.plots import draw  # noqa: PLC0415 - what it needs is not installed everywhere

        draw(json.loads(text), given.plots)
    sys.stdout.write(text + "\n")


@contextlib.contextmanager
def _part(given: argparse.Namespace, name: str) -> Iterator[bool]:
    wanted = not given.only or name in given.only
    if wanted:
        say(f"== {name}")
    yield wanted


def _rpcs(subjects: list[Subject], system: System, overload: Overload, seconds: float) -> Document:
    """Measure each RPC, and the bare server with its answer in turn."""
    go = ghz.installed()
    found: Document = {}
    answers = with_answers({subject.name: subject.target for subject in subjects})
    with bare_server(answers) as address:
        for number, subject in enumerate(subjects):
            service = "planner" if subject.name == "ExplainPlan" else "executor"
            found[subject.name] = overload.document(subject, system.probes(service))
            bare = Subject(subject.name, on_bare(subject.target, address, number), subject.callers)
            found[subject.name]["bare"] = overload.peak(bare).document(bare.target)
            if go is not None:
                found[subject.name]["ghz"] = ghz.run(go, subject.target, callers=subject.callers, seconds=seconds)
                say(f"  ghz: {found[subject.name]['ghz']['calls_per_second']:.0f}/s")
            say(f"  bare grpc.aio: {found[subject.name]['bare']['answered_per_second']:.0f}/s")
    return found


if __name__ == "__main__":
    main()
