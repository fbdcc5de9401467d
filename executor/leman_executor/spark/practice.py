"""A worker's work in small, for processes that have none yet.

A forked process copies each page of memory that it is the first to write to: a few thousand of them in its first
fragment, which takes twice as long as the next. What is copied beforehand, nobody waits for.
"""

from __future__ import annotations

import contextlib
import tempfile

import pyarrow as pa

from leman_core.model.plan import FragmentTask, Reason
from leman_core.model.ranges import RowRange
from leman_core.model.udf import CheckpointBounds, ErrorPolicy, UdfKind
from leman_core.model.work import FragmentWork, InFlightRows, ProgressReport, UdfRef, WorkContext, WorkUnit
from leman_core.storage.checkpoints.lance_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.thread_startup import small_table
from leman_executor.coordination.reservations import GrantAll
from leman_executor.spark.temp_folder import TempFolder
from leman_executor.worker.error_store import JobErrors
from leman_executor.worker.unit_runner import UnitRunner

#: A row at a time, and as many rows at once as a fragment may have: each kind touches memory of its own.
_SCALAR_ROWS, _VECTORISED_ROWS = 1 << 16, 10 << 16


def _function(kind: UdfKind, entrypoint: str) -> UdfRef:
    return UdfRef(
        name=f"practice, {kind.name}",
        version="",
        kind=kind,
        input_columns=("x",),
        bundle_uri="",
        bundle_sha256="",
        bundle_python="",
        entrypoint=entrypoint,
        stateful=False,
        batch_size=0,
        error_policy=ErrorPolicy(),
    )


def practise_rows() -> None:
    """Compute a column of a table that is gone afterwards, a row at a time."""
    _practise(_function(UdfKind.SCALAR, "builtins:abs"), _SCALAR_ROWS)


def practise_batches() -> None:
    """Compute a column of a table that is gone afterwards, a batch at a time."""
    _practise(_function(UdfKind.ARRAY, "pyarrow.compute:abs"), _VECTORISED_ROWS)


def _practise(function: UdfRef, rows: int) -> None:
    kept = tempfile.tempdir  # a function that sets TMPDIR is to find that nobody has looked
    try:
        with contextlib.suppress(Exception):  # then the first job takes longer
            folder = TempFolder.make("", patient=False)  # a task may wait
            if folder is not None:
                try:
                    compute_in(str(folder.path), function, rows)
                finally:
                    folder.remove()
    finally:
        tempfile.tempdir = kept


def compute_in(folder: str, function: UdfRef, rows: int) -> int:
    """Compute a column of a small table in a folder as a worker does, and return how many rows it has."""
    uri = f"{folder}/practice.lance"
    version = small_table(uri, rows)
    context = WorkContext(
        job_id="practice",
        uri=uri,
        read_version=version,
        output_schema=pa.schema([pa.field("y", pa.int64())]).serialize().to_pybytes(),
        output_field_ids=(1,),
        column_id="practice",
        input_columns=("x",),
        udf=function,
        where="",
        checkpoint=CheckpointBounds(),
        checkpoint_seconds=60.0,
        checkpoint_max_bytes=1 << 20,
    )
    task = FragmentTask(0, rows, 0, Reason.MISSING, "0" * 32, "practice", ())
    work = FragmentWork(task, (RowRange(0, rows),), finish=True)
    outcome = UnitRunner(
        context,
        WorkUnit("practice", (work,)),
        store=LanceCheckpointStore(checkpoint_root(uri)),
        reservations=GrantAll(),
        sink=_Nobody(),
        errors=JobErrors("", "practice", "y", ""),
    ).run()
    return sum(result.rows_computed for result in outcome.results)


class _Nobody:
    """A sink of reports that nobody reads."""

    def send(self, report: ProgressReport) -> None:
        """Ignore it."""

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Ignore it."""
