"""What the scripts about views share: refreshes timed as a caller sees them, and the same work by plain processes."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Sequence
from multiprocessing.pool import Pool
from types import TracebackType
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments

from benchmarks.leman_side import TERMINAL, Caller, Run
from benchmarks.practical_limit import double
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2

_BATCH_ROWS = 65_536
KEPT = "x % 2 = 0"


def refresh(caller: Caller, view: str, **parameters: Any) -> Run:
    """Refreshes a view, from CreateJob to its end. Raises RuntimeError where it does not end as DONE."""
    ref = catalog_pb2.TableRef(database=caller.database, table=view)
    spec = planner_pb2.RefreshSpec(view=ref, **parameters)
    begin = time.perf_counter()
    request = jobs_pb2.CreateJobRequest(refresh=spec, request_id=uuid.uuid4().hex)
    job = caller.jobs.CreateJob(request, metadata=caller.metadata, wait_for_ready=True).job
    if job.state not in TERMINAL:
        for message in caller.watch(job.job_id):
            job = message.job
    seconds = time.perf_counter() - begin
    if job.state != jobs_pb2.Job.STATE_DONE:
        raise RuntimeError(f"refresh {job.job_id} ended as {job.state}: {job.error.message}")
    return Run(seconds, job)


class PlainView:
    """Warm plain processes that make a filtered copy of a table, with a column computed by a Python function."""

    def __init__(self, processes: int) -> None:
        self._pool: Pool = multiprocessing.get_context("spawn").Pool(processes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.terminate()
        self._pool.join()

    def make(self, source: str, target: str) -> float:
        """Seconds from the first read to the commit."""
        begin = time.perf_counter()
        fragments = [f.fragment_id for f in lance.dataset(source).get_fragments()]
        made = self._pool.starmap(_copy, [(source, target, f) for f in fragments], chunksize=1)
        commit(target, [fragment for part in made for fragment in part])
        return time.perf_counter() - begin


SCHEMA = pa.schema([("__source_row_id", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])


def _copy(source: str, target: str, fragment_id: int) -> list[Any]:
    fragment = lance.dataset(source).get_fragment(fragment_id)
    if fragment is None:
        raise RuntimeError(f"there is no fragment {fragment_id}")
    batches = []
    for batch in fragment.scanner(columns=["x"], filter=KEPT, with_row_id=True, batch_size=_BATCH_ROWS).to_batches():
        x = batch.column("x")
        y = pa.array([double(v) for v in x.to_pylist()], pa.int64())
        batches.append(pa.record_batch([batch.column("_rowid").cast(pa.int64()), x, y], schema=SCHEMA))
    return write_fragments(pa.Table.from_batches(batches, SCHEMA), target, schema=SCHEMA)


def commit(target: str, fragments: Sequence[Any]) -> None:
    """A new table of these fragments."""
    operation = lance.LanceOperation.Overwrite(SCHEMA, list(fragments))
    lance.LanceDataset.commit(target, operation, enable_stable_row_ids=True)


def append_rows(uri: str, rows: int) -> None:
    """Continues a table made by `make_table`."""
    start = lance.dataset(uri).count_rows()
    data = pa.table({"x": np.arange(start, start + rows, dtype=np.int64)})
    lance.write_dataset(data, uri, mode="append", max_rows_per_file=rows)
