"""The same 10,000 rows appended to a table of a million rows and to one of ten million, then a backfill of what is new.

Fragments have 62,500 rows; both tables are complete before. Each repetition appends to both in turn. The other side
is a careful program that knows which fragment is new: it reads, computes and writes that one, then commits. `--rows` is
the smaller table's.
"""

from __future__ import annotations

import time
import uuid

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from benchmarks.common import Document, Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Caller, Run, running
from benchmarks.practical_limit import SCALAR, even, make_table

APPENDED = 10_000
_TIMES = 10
_COLUMN = "y"


def append(uri: str) -> None:
    """Rows that are not there yet."""
    rows = np.arange(APPENDED, dtype=np.int64) - time.time_ns()
    lance.write_dataset(pa.table({"x": rows}), uri, mode="append")


def by_hand(uri: str) -> float:
    """Seconds to fill the newest fragment without any of Leman."""
    append(uri)
    begin = time.perf_counter()
    dataset = lance.dataset(uri)
    fragment = dataset.get_fragments()[-1]
    schema = pa.schema([pa.field(_COLUMN, SCALAR.data_type)])
    file = f"{uuid.uuid4().hex}.lance"
    writer = LanceFileWriter(f"{uri}/data/{file}", schema)
    for batch in fragment.to_batches(columns=["x"]):
        writer.write_batch(pa.record_batch([SCALAR.by_hand(batch.column(0))], schema=schema))
    writer.close()
    operations = lance.LanceOperation
    group = operations.DataReplacementGroup(fragment.fragment_id, DataFile.create(dataset, file))
    lance.LanceDataset.commit(dataset, operations.DataReplacement([group]), read_version=dataset.version)
    return time.perf_counter() - begin


def prepare(caller: Caller, table: str, rows: int, fragments: int) -> None:
    """A complete table, and one next to it that is filled by hand."""
    make_table(caller.uri(table), even(rows, fragments))
    caller.add_column(table, _COLUMN, SCALAR)
    caller.run(table, _COLUMN)
    plain = caller.uri(f"plain_{table}")
    make_table(plain, even(rows, fragments))
    lance.dataset(plain).add_columns(pa.field(_COLUMN, SCALAR.data_type))


def filled(caller: Caller, table: str) -> Run:
    """The backfill after an append. Raises RuntimeError where it computed anything else."""
    append(caller.uri(table))
    run = caller.run(table, _COLUMN)
    if run.job.progress.rows_evaluated != APPENDED:
        raise RuntimeError(f"{run.job.progress.rows_evaluated} rows were computed, {APPENDED} are new")
    return run


def _document(runs: list[Run], plain: list[float]) -> Document:
    return {
        "leman": {
            "seconds": figures([run.seconds for run in runs]),
            "phases": medians([run.phases for run in runs]),
            "summed_over_workers": medians([run.breakdown for run in runs]),
        },
        "plain": {"seconds": figures(plain)},
    }


def main() -> None:
    options = options_of(__doc__ or "", rows=1_000_000, repetitions=9)
    tables = {"small": (options.rows, options.fragments), "large": (_TIMES * options.rows, _TIMES * options.fragments)}
    runs: dict[str, list[Run]] = {name: [] for name in tables}
    plain: dict[str, list[float]] = {name: [] for name in tables}
    with scratch(options) as folder, running(folder / "lake") as caller:
        for name, (rows, fragments) in tables.items():
            prepare(caller, name, rows, fragments)

        def side(name: str, repetition: int) -> None:
            run, seconds = filled(caller, name), by_hand(caller.uri(f"plain_{name}"))
            if repetition:
                runs[name].append(run)
                plain[name].append(seconds)

        interleaved(options.repetitions, lambda r: side("small", r), lambda r: side("large", r))
    documents = {name: _document(runs[name], plain[name]) for name in tables}
    small, large = (documents[name]["leman"]["seconds"]["median"] for name in ("small", "large"))
    targets = [
        Target(f"+{APPENDED:,} rows at {options.rows:,} ≤ 0.35 s", small, 0.35),
        Target(f"+{APPENDED:,} rows at {_TIMES * options.rows:,} ≤ 0.35 s", large, 0.35),
        Target("ten times the table ≤ 1.2 × the time", large / small, 1.2),
    ]
    report("append_10k", options, targets, appended=APPENDED, **documents)


if __name__ == "__main__":
    main()
