"""Writes what is stored of a fragment that is still being computed as a column file, which can be committed.

The executor does this itself, for a fragment that workers have units of. The file's row states say which rows it has.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.plan import CheckpointRef, FragmentTask, StagedFile
from leman_core.model.ports import CheckpointStore
from leman_core.model.ranges import RowRange
from leman_core.model.work import FragmentWork, WorkContext
from leman_core.storage.scan import FragmentReader
from leman_executor.worker.computed_rows import CheckpointLost, KnownRows
from leman_executor.worker.fragment_writer import Existing, FragmentWriter
from leman_executor.worker.installed_file import InstalledFile


def write_partial(
    context: WorkContext,
    task: FragmentTask,
    checkpoints: Sequence[CheckpointRef],
    store: CheckpointStore,
    stop: threading.Event,
) -> StagedFile | None:
    """Write the rows of the task's current file and of checkpoints; the others are NULL, and marked as not computed.

    Memory is bounded as in the assembly of a fragment: by two checkpoints and a batch.

    Args:
        context: That of a plan without a filter.
        task: The fragment. Its column has no file, or one that the request extends.
        checkpoints: What is stored under the plan's request.
        store: Where it is stored.
        stop: Once it is set, nothing is written any more.

    Returns:
        The file, which nothing refers to yet; None where a checkpoint is gone or damaged, or `stop` was set.
    """
    reader = FragmentReader(context.uri, context.read_version, context.manifest)
    field = pa.ipc.read_schema(pa.py_buffer(context.output_schema)).field(0)
    whole = RowRange(0, task.physical_rows)
    refs = sorted((ref for ref in checkpoints if ref.settles), key=lambda ref: (ref.range, ref.key))
    current = InstalledFile(context, FragmentWork.of(task, (), finish=True), reader, field)
    known = KnownRows(store, refs, current.settled, field.type)

    def existing(covered: RowRange) -> pa.Array:
        return reader.values(task.fragment_id, covered, field.name)

    def live(covered: RowRange) -> npt.NDArray[np.bool_]:
        return reader.live(task.fragment_id, covered) if task.deleted_rows else np.ones(covered.rows, np.bool_)

    writer = FragmentWriter(
        context.uri,
        field,
        task.fingerprint,
        task.physical_rows,
        existing=Existing(task.current_file, existing) if task.current_file else None,
        live=live,
        selective=True,
        file_format=reader.file_format,
    )
    try:
        for covered in known.steps(whole):
            if stop.is_set():
                return None
            writer.emit(covered, known.settled(covered))
    except CheckpointLost:
        return None
    deletions = reader.deletions(task.fragment_id) if task.deleted_rows else None
    return writer.finish(current.filters, deletions, context.versions[1:])
