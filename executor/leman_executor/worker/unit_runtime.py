"""What the fragments of a unit share.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model.ports import CheckpointStore, ErrorSink
from leman_core.storage.scan import FragmentReader
from leman_executor.worker.evaluator import Evaluated
from leman_executor.worker.meter import Meter
from leman_executor.worker.slice_sizes import Slices, SliceSizer


class Evaluates(Protocol):
    """What returns the values of rows; see `Evaluator`."""

    def __call__(self, fragment_id: int, offsets: npt.NDArray[np.int64], rows: pa.RecordBatch) -> Evaluated: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRuntime:
    """What the fragments of a unit share."""

    reader: FragmentReader
    store: CheckpointStore
    errors: ErrorSink
    #: Returns the evaluator; loads the function when it is first called.
    evaluator: Callable[[], Evaluates]
    sizer: SliceSizer
    meter: Meter
    #: Tells whether the unit is to end, as its budget is spent or as it was `stopped`.
    out_of_time: Callable[[], bool]
    stopped: Callable[[], bool]
    clock: Callable[[], float]
    #: Returns the seconds of work after which a checkpoint is due.
    interval: Callable[[], float]
    slices: Slices
