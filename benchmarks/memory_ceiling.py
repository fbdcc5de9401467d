"""Memory of Spark workers while they fill wide columns of one large fragment, and of one a quarter as large.

The function limits its own process: from its first call on a worker may not have more than `allowed_mb` of private
memory beyond what it has then (RLIMIT_DATA), which is less than the large fragment's column takes. A job that ends as
DONE under that limit shows that no part of the worker holds a whole fragment; the peaks of both fragments compared show
that they do not grow with it. Each worker notes its own peak. The other side is a process that reads the fragment,
computes and writes it at once. `--rows` is the large fragment's.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter

import leman
from benchmarks.common import Document, Target, options_of, report, say, scratch
from benchmarks.leman_side import Caller, Run, running
from benchmarks.practical_limit import discard

WIDTH = 1536
ROW_BYTES = 4 * WIDTH
ALLOWED_MB = 1024
_SHARE = 4
_BATCH_ROWS = 4096
_MB = 1 << 20
_VECTOR = pa.list_(pa.float32(), WIDTH)


@dataclass(frozen=True, slots=True)
class Peaks:
    """One job. `workers`: peak resident MB of each worker process, beyond what it had at its first call."""

    run: Run
    workers: list[float]


def limited(folder: str, allowed: int) -> Callable[[pa.Array], pa.Array]:
    """Doubles vectors; notes the memory of its process, which it has limited."""

    def status(name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":"))

    def double(v: pa.Array) -> pa.Array:
        import os  # noqa: PLC0415 - shipped to workers by value

        note = Path(folder, f"{os.getpid()}.json")
        if not note.exists():
            Path("/proc/self/clear_refs").write_text("5")  # the peak of earlier jobs
            bound = int(status("VmData") + allowed) << 20
            resource.setrlimit(resource.RLIMIT_DATA, (bound, resource.getrlimit(resource.RLIMIT_DATA)[1]))
            note.write_text(json.dumps({"before": status("VmRSS"), "peak": 0}))
        values = v.flatten().to_numpy(zero_copy_only=False)
        result = pa.FixedSizeListArray.from_arrays(pa.array(values * np.float32(2)), WIDTH)
        known = json.loads(note.read_text())
        note.write_text(json.dumps({"before": known["before"], "peak": status("VmHWM")}))
        return result

    return double


def make_wide(uri: str, rows: int) -> None:
    """One fragment of vectors."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, _BATCH_ROWS):
            count = min(_BATCH_ROWS, rows - start)
            values = np.arange(count * WIDTH, dtype=np.float32) + start
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
            yield pa.record_batch([vectors], names=["v"])

    schema = pa.schema([pa.field("v", _VECTOR)])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(reader, uri, max_rows_per_file=rows, max_bytes_per_file=1 << 40, enable_stable_row_ids=True)


def fill(caller: Caller, table: str, folder: Path) -> Peaks:
    """A job on a new column, which is dropped afterwards."""
    notes = folder / uuid.uuid4().hex
    notes.mkdir()
    column = f"w{uuid.uuid4().hex[:8]}"
    make = leman.udf(data_type=_VECTOR, name="limited", version=column, input_columns=["v"])
    caller.sdk.open_table(table).add_columns({column: make(limited(str(notes), ALLOWED_MB))})
    run = caller.run(table, column)
    found = [json.loads(note.read_text()) for note in notes.iterdir()]
    discard(caller.uri(table), column)
    return Peaks(run, [note["peak"] - note["before"] for note in found])


def at_once(uri: str) -> float:
    """MB that a process needs to do it all at once."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return float(pool.apply(_whole, (uri,)))


def _whole(uri: str) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values = lance.dataset(uri).to_table(columns=["v"]).column(0).combine_chunks().flatten().to_numpy()
    result = pa.FixedSizeListArray.from_arrays(pa.array(values * np.float32(2)), WIDTH)
    file = f"{uri}/data/{uuid.uuid4().hex}.lance"
    writer = LanceFileWriter(file, pa.schema([pa.field("w", _VECTOR)]))
    writer.write_batch(pa.record_batch([result], names=["w"]))
    writer.close()
    Path(file).unlink()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before


def _document(rows: int, peaks: list[Peaks]) -> Document:
    return {
        "rows": rows,
        "column_mb": rows * ROW_BYTES / _MB,
        "seconds": [peak.run.seconds for peak in peaks],
        "worker_peaks_mb": [sorted(peak.workers) for peak in peaks],
        "peak_mb": max(max(peak.workers) for peak in peaks),
    }


def main() -> None:
    options = options_of(__doc__ or "", rows=350_000, fragments=1, repetitions=2)
    sizes = {"quarter": options.rows // _SHARE, "large": options.rows}
    peaks: dict[str, list[Peaks]] = {name: [] for name in sizes}
    with scratch(options) as folder, running(folder / "lake") as caller:
        for name, rows in sizes.items():
            make_wide(caller.uri(name), rows)
        for repetition in range(options.repetitions):
            for name in sizes:
                begin = time.perf_counter()
                peaks[name].append(fill(caller, name, folder))
                say(f"{name}, {repetition + 1}: {time.perf_counter() - begin:.1f} s, {peaks[name][-1].workers}")
        whole = at_once(caller.uri("large"))
    documents = {name: _document(rows, peaks[name]) for name, rows in sizes.items()}
    large, quarter = documents["large"], documents["quarter"]
    targets = [
        Target("largest worker ≤ what it is allowed, MB", large["peak_mb"], ALLOWED_MB),
        Target(
            "the fragment's column / what a worker is allowed ≥ 1", large["column_mb"] / ALLOWED_MB, 1.5, at_least=True
        ),
        Target("four times the fragment ≤ 1.25 × the memory", large["peak_mb"] / quarter["peak_mb"], 1.25),
    ]
    report("memory_ceiling", options, targets, allowed_mb=ALLOWED_MB, at_once_mb=whole, **documents)


if __name__ == "__main__":
    main()
