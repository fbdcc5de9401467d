"""From no process at all to the first result of a small job: a fresh interpreter that calls `leman.connect`, makes a
table, adds a column, fills it and reads it. The other side does the same by hand in a fresh interpreter.

Measured with the archive of Spark's classes that an idle executor makes (decision 8), and without: `leman_first`, as on
a machine that has never run Leman."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.common import Document, Target, figures, interleaved, medians, options_of, report, scratch

_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    """One cold start. `phases` as the fresh process measured them."""

    seconds: float
    phases: dict[str, float]


def first_result(side: str, folder: Path, rows: int, **settings: str) -> Start:
    """Seconds until a fresh process has printed that it has the values."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")} | settings
    command = [sys.executable, "-m", "benchmarks.first_result", side, str(folder), str(rows)]
    begin = time.perf_counter()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        seconds = time.perf_counter() - begin
    if process.returncode:
        raise RuntimeError(f"{side} ended with exit code {process.returncode}")
    return Start(seconds, json.loads(line))


def end_system(folder: Path) -> Document:
    """Ends the system that `first_result` has started; seconds in which each of its processes was up."""
    said = json.loads((folder / "_leman" / "service.json").read_text())
    supervisor = psutil.Process(said["pid"])
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(_STOP_SECONDS)
    lines = Path(said["home"], "logs", "supervisor.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {e["process"]: e["seconds"] for e in events if e.get("event") == "up"}


def archived(folder: Path) -> dict[str, str]:
    """Settings of a machine on which an executor has been idle once."""
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    command = [sys.executable, "-m", "leman_executor.spark.class_archive"]
    subprocess.run(command, env={**os.environ, **cache}, stdout=sys.stderr, check=True)
    return cache


def main() -> None:
    options = options_of(__doc__ or "", rows=1000, fragments=1)
    starts: dict[str, list[Start]] = {"leman": [], "leman_first": [], "plain": []}
    up: dict[str, list[Document]] = {"leman": [], "leman_first": []}
    with scratch(options) as folder:
        settings = {"leman": archived(folder), "leman_first": {"LEMAN_SPARK__CLASS_ARCHIVE": "false"}}

        def leman_side(name: str, repetition: int) -> None:
            lake = folder / f"{name}{repetition}"
            start = first_result("leman", lake, options.rows, **settings[name])
            ended = end_system(lake)
            if repetition:
                starts[name].append(start)
                up[name].append(ended)

        def plain_side(repetition: int) -> None:
            start = first_result("plain", folder / f"plain{repetition}", options.rows)
            if repetition:
                starts["plain"].append(start)

        interleaved(
            options.repetitions,
            lambda r: leman_side("leman", r),
            lambda r: leman_side("leman_first", r),
            plain_side,
        )
    documents: dict[str, Document] = {}
    for name, side in starts.items():
        seconds = figures([start.seconds for start in side])
        documents[name] = {"seconds": seconds, "phases": medians([start.phases for start in side])}
        if name in up:
            documents[name]["processes_up_after"] = medians(up[name])
    targets = [
        Target("Leman ≤ 6 s", documents["leman"]["seconds"]["median"], 6.0),
        Target("the first start on a machine ≤ 9 s", documents["leman_first"]["seconds"]["median"], 9.0),
    ]
    report("cold_start", options, targets, **documents)


if __name__ == "__main__":
    main()
