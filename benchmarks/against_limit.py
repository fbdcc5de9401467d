"""One workload, on Leman and on plain processes, in turn. The scripts for single workloads are made of this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance

from benchmarks.common import (
    CORES,
    Document,
    Options,
    Target,
    figures,
    interleaved,
    medians,
    options_of,
    report,
    scratch,
)
from benchmarks.leman_side import Caller, Run, running
from benchmarks.practical_limit import Filled, PlainPool, Workload, discard, even, make_table

_TABLE = "t"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides of all repetitions. `equal`: the values of the last repetition are the same."""

    leman: Sequence[Run]
    plain: Sequence[Filled]
    equal: bool

    @property
    def leman_seconds(self) -> float:
        return float(figures([run.seconds for run in self.leman])["median"])

    @property
    def plain_seconds(self) -> float:
        return float(figures([filled.seconds for filled in self.plain])["median"])

    @property
    def udf_cpu_seconds(self) -> float:
        """CPU in the function, as the plain processes measured it."""
        return float(figures([filled.udf_cpu_seconds for filled in self.plain])["median"])

    def document(self) -> Document:
        first = self.leman[0]
        return {
            "leman": {
                "seconds": figures([run.seconds for run in self.leman]),
                "phases": medians([run.phases for run in self.leman]),
                "summed_over_workers": medians([run.breakdown for run in self.leman]),
                "bottleneck": [run.bottleneck for run in self.leman],
                "spark_jobs": first.job.progress.spark_jobs,
                "commits": first.job.progress.commits,
            },
            "plain": {
                "seconds": figures([filled.seconds for filled in self.plain]),
                "commit_seconds": figures([filled.commit_seconds for filled in self.plain])["median"],
                "udf_cpu_seconds": self.udf_cpu_seconds,
            },
            "difference_seconds": self.leman_seconds - self.plain_seconds,
            "ratio": self.leman_seconds / self.plain_seconds,
            "equal_values": self.equal,
        }


def compare(workload: Workload, options: Options) -> Comparison:
    """Runs both sides. Each has its own table with the same data; each repetition has a new column."""
    with scratch(options) as folder:
        sizes = even(options.rows, options.fragments)
        plain_uri = str(folder / "plain.lance")
        make_table(plain_uri, sizes)
        with running(folder / "lake") as caller, PlainPool(workload, plain_uri, CORES) as pool:
            make_table(caller.uri(_TABLE), sizes)
            return _both(workload, options, caller, pool, plain_uri)


def _both(workload: Workload, options: Options, caller: Caller, pool: PlainPool, plain_uri: str) -> Comparison:
    runs: list[Run] = []
    filled: list[Filled] = []
    equal: list[bool] = []
    leman_uri = caller.uri(_TABLE)

    def leman(repetition: int) -> None:
        caller.add_column(_TABLE, f"y{repetition}", workload)
        run = caller.run(_TABLE, f"y{repetition}")
        if repetition:
            runs.append(run)

    def plain(repetition: int) -> None:
        column = f"y{repetition}"
        pool.add_column(column)
        result = pool.fill(column)
        if repetition:
            filled.append(result)
        if repetition == options.repetitions:
            equal.append(same_values(leman_uri, plain_uri, column))
        discard(leman_uri, column)
        discard(plain_uri, column)

    interleaved(options.repetitions, leman, plain)
    return Comparison(runs, filled, all(equal))


def same_values(one: str, other: str, column: str) -> bool:
    """Whether a column is equal in two tables of the same layout."""
    pairs = zip(lance.dataset(one).get_fragments(), lance.dataset(other).get_fragments(), strict=True)
    return all(a.to_table(columns=[column]).equals(b.to_table(columns=[column])) for a, b in pairs)


def beside_limit(name: str, workload: Workload, what: str) -> None:
    """Measures and reports a workload whose target is P + 0.25 s; 1.2 × P + 0.25 s at ten times the rows and more."""
    options = options_of(what, rows=workload.rows, fragments=workload.fragments)
    done = compare(workload, options)
    larger = options.rows >= 10 * workload.rows
    rule, factor = ("Leman ≤ 1.2 × P + 0.25 s", 1.2) if larger else ("Leman ≤ P + 0.25 s", 1.0)
    target = Target(rule, done.leman_seconds, factor * done.plain_seconds + 0.25)
    report(name, options, [target], **done.document())
