"""Runs the benchmarks one after the other, each in a process of its own, and says which targets are met.

`python -m benchmarks.run_all --json out.json` keeps all documents; `--quick` only checks that every script works.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import Document, say

NAMES = (
    "scalar_1m",
    "vectorised_10m",
    "small_jobs",
    "embedding_200k",
    "heavy_20k",
    "sql_1m",
    "many_columns",
    "ten_times",
    "nothing_to_do",
    "plan_time",
    "append_10k",
    "view_first_refresh",
    "view_changes",
    "view_append",
    "view_deletes",
    "skew",
    "storage_latency",
    "storage_requests",
    "resume",
    "checkpoint_overhead",
    "commit_rate",
    "flight",
    "remote_functions",
    "work_queue_rate",
    "get_job_rate",
    "watchers",
    "observed_job",
    "memory_ceiling",
    "idle_memory",
    "stalled_readers",
    "large_values",
    "history_growth",
    "cold_start",
)
#: Rows with which a script is over in seconds, where it has rows to choose.
_QUICK_ROWS = {
    "scalar_1m": 20_000,
    "vectorised_10m": 100_000,
    "small_jobs": 20_000,
    "embedding_200k": 2_000,
    "heavy_20k": 2_000,
    "sql_1m": 20_000,
    "many_columns": 20_000,
    "ten_times": 20_000,
    "append_10k": 20_000,
    "view_first_refresh": 20_000,
    "view_changes": 20_000,
    "view_append": 20_000,
    "view_deletes": 20_000,
    "flight": 20_000,
    "remote_functions": 20_000,
    "memory_ceiling": 20_000,
    "idle_memory": 20_000,
    "history_growth": 2_000,
    "stalled_readers": 1_000,
    "large_values": 8,
    "watchers": 2_000,
    "observed_job": 2_000,
    "skew": 2_000,
    "storage_latency": 2_000,
    "resume": 8_000,
    "checkpoint_overhead": 2_000,
}
_QUICK_FRAGMENTS = {"commit_rate": 32, "plan_time": 1000, "work_queue_rate": 1000}


def arguments_of(name: str, options: argparse.Namespace) -> list[str]:
    """The options of one script."""
    if not options.quick:
        return ["--repetitions", str(options.repetitions)] if options.repetitions else []
    arguments = ["--repetitions", "1"]
    if name in _QUICK_ROWS:
        arguments += ["--rows", str(_QUICK_ROWS[name])]
    if name in _QUICK_FRAGMENTS:
        arguments += ["--fragments", str(_QUICK_FRAGMENTS[name])]
    return arguments


def run(name: str, options: argparse.Namespace) -> Document:
    """The document of one script, or what went wrong with it."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments_of(name, options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"benchmark": name, "error": f"exit code {done.returncode}", "met": False, "targets": []}
    document: Document = json.loads(done.stdout)
    return {**document, "took_seconds": round(time.perf_counter() - begin, 1)}


def lines_of(document: Document) -> list[str]:
    """For a person: a line for each target."""
    if "error" in document:
        return [f"{document['benchmark']:20} {document['error']}"]
    return [
        f"{document['benchmark']:20} {'met   ' if t['met'] else 'MISSED'} {t['rule']}: "
        f"{t['measured']:g} (limit {t['limit']:g})"
        for t in document["targets"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {' '.join(NAMES)}; default: all")
    parser.add_argument("--json", type=Path, help="file that gets all documents")
    parser.add_argument("--repetitions", type=int, help="for all scripts; default: each its own")
    parser.add_argument("--quick", action="store_true", help="small sizes, one repetition: the figures mean nothing")
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    documents = []
    for name in options.names or NAMES:
        say(f"== {name}")
        documents.append(run(name, options))
        print("\n".join(lines_of(documents[-1])), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(documents, indent=2) + "\n")
    sys.exit(1 if any("error" in document for document in documents) else 0)


if __name__ == "__main__":
    main()
