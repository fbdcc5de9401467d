"""From no process at all to the first result of a small job: a fresh interpreter that calls `leman.connect`, makes a
table, adds a column, fills it and reads it. The other side does the same by hand in a fresh interpreter."""

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


def first_result(side: str, folder: Path, rows: int) -> Start:
    """Seconds until a fresh process has printed that it has the values."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LEMAN_")}
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
    supervisor = psutil.Process(json.loads((folder / "_leman" / "service.json").read_text())["pid"])
    supervisor.send_signal(signal.SIGTERM)
    supervisor.wait(_STOP_SECONDS)
    lines = (folder / "_leman" / "logs" / "supervisor.log").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {e["process"]: e["seconds"] for e in events if e.get("event") == "up"}


def main() -> None:
    options = options_of(__doc__ or "", rows=1000, fragments=1)
    leman: list[Start] = []
    plain: list[Start] = []
    up: list[Document] = []
    with scratch(options) as folder:

        def leman_side(repetition: int) -> None:
            lake = folder / f"lake{repetition}"
            start = first_result("leman", lake, options.rows)
            ended = end_system(lake)
            if repetition:
                leman.append(start)
                up.append(ended)

        def plain_side(repetition: int) -> None:
            start = first_result("plain", folder / f"plain{repetition}", options.rows)
            if repetition:
                plain.append(start)

        interleaved(options.repetitions, leman_side, plain_side)
    seconds = figures([start.seconds for start in leman])
    target = Target("Leman ≤ 12 s", seconds["median"], 12.0)
    leman_document = {
        "seconds": seconds,
        "phases": medians([start.phases for start in leman]),
        "processes_up_after": medians(up),
    }
    plain_document = {
        "seconds": figures([start.seconds for start in plain]),
        "phases": medians([start.phases for start in plain]),
    }
    report("cold_start", options, [target], leman=leman_document, plain=plain_document)


if __name__ == "__main__":
    main()
