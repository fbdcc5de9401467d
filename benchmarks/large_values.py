"""Texts of 10 MB through a function: one of a row, and one of a batch that does the same with each value, in turn.

The overhead of a row is small next to such values, so both should take equally long.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace

import lance
import pyarrow as pa

from benchmarks.common import Document, Target, figures, interleaved, medians, options_of, report, scratch
from benchmarks.leman_side import Run, running
from benchmarks.practical_limit import SCALAR, discard, even

_VALUE_BYTES = 10_000_000
_MOST = 1.25


def turned(text: str) -> str:
    """Another text of the same length."""
    return text[1:] + text[:1]


def turned_batch(text: pa.Array) -> pa.Array:
    """The same of each value of a batch."""
    return pa.array([turned(value) for value in text.to_pylist()], pa.string())


_KINDS = {
    "row": replace(SCALAR, name="turned", data_type=pa.string(), function=turned),
    "batch": replace(SCALAR, name="turned_batch", data_type=pa.string(), function=turned_batch),
}


def _texts(rows: int) -> Iterator[pa.RecordBatch]:
    """Texts that compress little, one by one."""
    for row in range(rows):
        text = random.Random(row).randbytes(_VALUE_BYTES // 2).hex()
        yield pa.record_batch({"text": [text]}, schema=pa.schema([pa.field("text", pa.string())]))


def _same(uri: str, columns: list[str]) -> bool:
    """Whether the columns hold the function's values."""
    for batch in lance.dataset(uri).scanner(columns=["text", *columns], batch_size=1, batch_readahead=1).to_batches():
        expected = turned(batch.column(0)[0].as_py())
        if any(batch.column(column)[0].as_py() != expected for column in columns):
            return False
    return True


def main() -> None:
    options = options_of(__doc__ or "", rows=40, fragments=4, repetitions=3)
    runs: dict[str, list[Run]] = {kind: [] for kind in _KINDS}
    equal = True
    with scratch(options) as folder, running(folder / "lake") as caller:
        reader = pa.RecordBatchReader.from_batches(pa.schema([pa.field("text", pa.string())]), _texts(options.rows))
        largest = max(even(options.rows, options.fragments))
        lance.write_dataset(reader, caller.uri("t"), max_rows_per_file=largest, enable_stable_row_ids=True)

        def side(kind: str, repetition: int) -> None:
            nonlocal equal
            column = f"{kind}{repetition}"
            caller.add_column("t", column, _KINDS[kind])
            run = caller.run("t", column)
            if repetition:
                runs[kind].append(run)
            if repetition == options.repetitions:
                equal = equal and _same(caller.uri("t"), [column])
            discard(caller.uri("t"), column)

        interleaved(options.repetitions, *(functools.partial(side, kind) for kind in _KINDS))
    sides: Document = {
        kind: {
            "seconds": figures([run.seconds for run in of_kind]),
            "phases": medians([run.phases for run in of_kind]),
            "summed_over_workers": medians([run.breakdown for run in of_kind]),
        }
        for kind, of_kind in runs.items()
    }
    ratio = sides["row"]["seconds"]["median"] / sides["batch"]["seconds"]["median"]
    targets = [Target(f"function of a row ≤ {_MOST} × that of a batch", ratio, _MOST)]
    report("large_values", options, targets, ratio=ratio, equal_values=equal, value_bytes=_VALUE_BYTES, **sides)


if __name__ == "__main__":
    main()
