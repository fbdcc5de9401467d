"""A table, a context and a unit, without services."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cloudpickle
import lance
import pyarrow as pa

from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfKind
from leman_core.model import keys
from leman_core.model.plan import FragmentTask, Reason
from leman_core.model.row_positions import RowRange
from leman_core.model.work import (
    FragmentWork,
    FunctionSpec,
    InFlightRows,
    ProgressReport,
    RowError,
    UnitOutcome,
    WorkContext,
    WorkUnit,
)
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_executor.coordination.reservations import InProcessReservations
from leman_executor.worker.unit_runner import UnitRunner, never_stopped

COLUMN = "y"
COLUMN_ID = "c0ffee"


class Lab:
    """A table with an int64 column `x` = 0, 1, 2, … and an empty computed column `y`."""

    def __init__(self, folder: Path, rows: int = 40, per_fragment: int = 20, output: pa.DataType | None = None):
        self.folder = folder
        self.uri = str(folder / "t.lance")
        self.output = output or pa.int64()
        table = pa.table({"x": pa.array(range(rows), pa.int64())})
        dataset = lance.write_dataset(table, self.uri, max_rows_per_file=per_fragment, enable_stable_row_ids=True)
        dataset.add_columns(pa.field(COLUMN, self.output))
        self.reservations = InProcessReservations(60)
        self.reports: list[ProgressReport] = []
        self.in_flight_rows: list[InFlightRows] = []
        self.errors: list[RowError] = []
        self.checkpoints = LanceCheckpointStore(checkpoint_root(self.uri))
        self.field_id = next(f.id() for f in self.dataset.lance_schema.fields() if f.name() == COLUMN)

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    def udf(self, function: object, kind: UdfKind = UdfKind.SCALAR, **changes: object) -> FunctionSpec:
        data = cloudpickle.dumps(function)
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / f"{digest}.bundle"
        path.write_bytes(data)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        ref = FunctionSpec(
            name="f",
            version=digest[:8],
            kind=kind,
            input_columns=("x",),
            bundle_uri=str(path),
            bundle_sha256=digest,
            bundle_python=python,
            entrypoint="",
            stateful=False,
            batch_size=0,
            error_policy=ErrorPolicy(),
        )
        return replace(ref, **changes)

    def context(self, udf: FunctionSpec, **changes: object) -> WorkContext:
        context = WorkContext(
            job_id="job-1",
            uri=self.uri,
            read_version=self.dataset.version,
            output_schema=pa.schema([pa.field(COLUMN, self.output)]).serialize().to_pybytes(),
            output_field_ids=(self.field_id,),
            column_id=COLUMN_ID,
            input_columns=("x",),
            udf=udf,
            where="",
            checkpoint=CheckpointBounds(),
            checkpoint_seconds=60.0,
            checkpoint_max_bytes=1 << 30,
        )
        return replace(context, **changes)

    def work(self, context: WorkContext, fragment_id: int, ranges: list[tuple[int, int]], **changes: object):
        fragment = self.dataset.get_fragment(fragment_id)
        metadata = fragment.metadata
        files = [str(f.path) for f in metadata.files]
        deleted = metadata.deletion_file.num_deleted_rows if metadata.deletion_file else 0
        udf = context.udf
        family = keys.KeyFamily(udf_name=udf.name, udf_version=udf.version, column=COLUMN, uri=self.uri)
        task = FragmentTask(
            fragment_id,
            metadata.physical_rows,
            deleted,
            Reason.MISSING,
            keys.fingerprint(udf.name, udf.version, COLUMN_ID, [(0, files[0])]),
            family.prefix(context.where, [(0, files[0])]),
            tuple(files[:1]),
        )
        own = {name: changes.pop(name) for name in ("finish", "checkpoints", "quarantined") if name in changes}
        work = FragmentWork(task._replace(**changes), tuple(RowRange(*r) for r in ranges), finish=True)
        return replace(work, **own)

    def run(
        self,
        context: WorkContext,
        *works: FragmentWork,
        unit: str = "u1",
        look_first: bool = False,
        budget_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        stopped: Callable[[], bool] = never_stopped,
    ) -> UnitOutcome:
        return UnitRunner(
            context,
            WorkUnit(unit, works, budget_seconds, look_first),
            store=self.checkpoints,
            reservations=self.reservations,
            sink=self,
            errors=self,
            clock=clock,
            stopped=stopped,
        ).run()

    def store(self, failures: Sequence[RowError]) -> None:
        self.errors.extend(failures)

    def send(self, report: ProgressReport) -> None:
        self.reports.append(report)

    def in_flight(self, in_flight: InFlightRows) -> None:
        self.in_flight_rows.append(in_flight)

    def install(self, outcome: UnitOutcome) -> None:
        """Commits the staged files without the coordinator's checks."""
        dataset = self.dataset
        groups = [
            lance.LanceOperation.DataReplacementGroup(
                r.fragment_id, lance.fragment.DataFile.create(dataset, r.staged.file)
            )
            for r in outcome.results
            if r.staged is not None
        ]
        lance.LanceDataset.commit(dataset, lance.LanceOperation.DataReplacement(groups), read_version=dataset.version)

    def values(self) -> dict[int, object]:
        table = self.dataset.to_table(columns=["x", COLUMN])
        return dict(zip(table["x"].to_pylist(), table[COLUMN].to_pylist(), strict=True))
