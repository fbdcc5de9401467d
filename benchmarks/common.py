"""What the scripts share: options, repetitions, figures, and the JSON document that each of them prints."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("pylance", "pyarrow", "pyspark", "grpcio", "redis")
CORES = os.cpu_count() or 1

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of every script. `folder`: where tables are made; empty: the system's temporary folder."""

    rows: int
    fragments: int
    repetitions: int
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """What is promised: `measured` compared with `limit` by `rule`."""

    rule: str
    measured: float
    limit: float
    at_least: bool = False

    def document(self) -> Document:
        met = self.measured >= self.limit if self.at_least else self.measured <= self.limit
        return {"rule": self.rule, "measured": self.measured, "limit": self.limit, "met": met}


def options_of(what: str, *, rows: int, fragments: int = 16, repetitions: int = 5) -> Options:
    """Options from the command line; small ones give a quick check instead of a figure."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--fragments", type=int, default=fragments)
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--folder", default="", help="where the tables are made")
    return Options(**vars(parser.parse_args()))


@contextlib.contextmanager
def scratch(options: Options) -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="leman-bench-", dir=options.folder or None) as folder:
        yield Path(folder).resolve()


def interleaved(repetitions: int, *sides: Callable[[int], None]) -> None:
    """A B A B …: what the machine does meanwhile is done to both. Repetition 0 warms up; the sides leave it out."""
    for repetition in range(repetitions + 1):
        for side in sides:
            side(repetition)
        say(f"repetition {repetition} of {repetitions}" + ("" if repetition else " (warm-up)"))


def say(text: str) -> None:
    """Progress, for a person: standard output is for the document."""
    print(text, file=sys.stderr, flush=True)


def figures(values: Sequence[float]) -> Document:
    """Median, extremes and all."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": list(values)}


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each name."""
    return {name: statistics.median([row[name] for row in rows if name in row]) for name in rows[0]}


def percentile(values: Sequence[float], percent: float) -> float:
    """Of all values the smallest that `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def machine() -> Document:
    """What the figures were taken on. A load near or above the number of cores makes them worthless."""
    return {
        "cores": CORES,
        "usable_cores": len(psutil.Process().cpu_affinity() or []) if sys.platform == "linux" else CORES,
        "cpu": _cpu(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load": [round(x, 2) for x in psutil.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def report(name: str, options: Options, targets: Sequence[Target], **sides: Any) -> None:
    """Prints the document."""
    document = {
        "benchmark": name,
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": options.rows,
        "fragments": options.fragments,
        "repetitions": options.repetitions,
        "targets": [target.document() for target in targets],
        "met": all(target.document()["met"] for target in targets),
        **sides,
        "machine": machine(),
    }
    print(json.dumps(rounded(document), indent=2), flush=True)


def rounded(value: Any) -> Any:
    """Four digits of each number."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value
