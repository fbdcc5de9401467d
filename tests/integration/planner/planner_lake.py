"""A database with one real table and one computed column, filled as an executor would."""

import dataclasses
import secrets
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions.column_checks import NewColumn
from leman_core.model import keys
from leman_core.model.plan import BackfillSpec
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.plan_maker import PlanMaker

ROWS = 10
UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:f")


class Lake:
    """`t`: id, x, body, box; fragments of ROWS rows; `c` is computed by f(x)."""

    def __init__(self, database, fragments=3, inputs=("x",), *, stable_row_ids=True):
        self.database = str(database)
        self.uri = f"{self.database}/t.lance"
        data = rows(fragments * ROWS)
        lance.write_dataset(data, self.uri, max_rows_per_file=ROWS, enable_stable_row_ids=stable_row_ids)
        self.registry = UdfRegistry(self.database)
        self.registry.put(UDF)
        self.add_column("c", inputs)

    @classmethod
    def at(cls, database):
        """One that someone else has made."""
        lake = cls.__new__(cls)
        lake.database, lake.uri, lake.registry = str(database), f"{database}/t.lance", UdfRegistry(str(database))
        return lake

    def moved_to(self, name):
        """The same one in another place, next to this one."""
        return Lake.at(Path(self.database).rename(Path(self.database).with_name(f"{Path(self.database).name}-{name}")))

    def add_column(self, name, inputs=("x",), udf=UDF):
        addition = Catalog(LanceTables()).addition(
            self.database, "t", [NewColumn(name, udf.name, udf.version, inputs)], ""
        )
        handle = TableHandle(self.uri)
        column_definitions.add_null_columns(handle, handle.latest(), addition.schema)

    def open(self):
        return lance.dataset(self.uri)

    def files(self):
        """The table's data files."""
        return sorted(Path(self.uri, "data").iterdir())

    @property
    def store(self):
        return LanceCheckpointStore(checkpoint_root(self.uri))

    def plan(self, column="c", reader=None, **spec):
        asked = BackfillSpec(self.database, "t", column, **spec)
        return (reader or PlanMaker(LanceTables())).plan(asked)

    def fill(self, made, **options):
        """Computes and commits all tasks of a plan."""
        for task in made.tasks:
            self.install(made, task, self.write(made, task, **options).file)

    def write(self, made, task, states=None):
        """A column file of zeros, staged."""
        field = made.header.output.field.arrow
        writer = ColumnFileWriter(self.uri, field)
        name = keys.column_file_name(task.fingerprint, secrets.token_hex(4), partial=states is not None)
        writer.open(name)
        writer.write(pa.array([0] * task.physical_rows, field.type))
        filters = frozenset({keys.filter_id(task.checkpoint_prefix)}) if made.header.where else frozenset()
        return writer.close(None if states is None else np.array(states, np.uint8), filters, name)

    def install(self, made, task, file):
        install(self.uri, task.fragment_id, file)

    def record(self, made, task, staged, **changes):
        """Leaves the fragment record of a staged file behind."""
        record = FragmentRecord(
            file=staged.file,
            src_data_files=task.input_files,
            output_field_ids=made.header.output.field.field_ids,
            column_id=made.header.output.column_id,
            fingerprint=task.fingerprint,
            size_bytes=staged.size_bytes,
            digest=staged.digest,
            physical_rows=staged.physical_rows,
            rows_computed=staged.rows_computed,
            rows_failed=staged.rows_failed,
            replaces=task.current_file,
        )
        key = keys.record_key(task.checkpoint_prefix, task.fragment_id)
        self.store[key] = dataclasses.replace(record, **changes).to_batch()

    def checkpoint(self, task, start, end):
        """Leaves a checkpoint behind."""
        key = keys.range_key(task.checkpoint_prefix, task.fragment_id, RowRange(start, end))
        base = task.fragment_id << 32
        addresses = pa.array([base + o for o in range(start, end)], pa.uint64())
        values = pa.array([0] * (end - start), pa.int64())
        self.store[key] = pa.RecordBatch.from_arrays([values, addresses], names=["c", "_rowaddr"])
        return key

    def rewrite(self, column, fragment_id):
        """Rewrites a column of one fragment in place, as someone else's backfill would."""
        dataset = self.open()
        values = dataset.get_fragment(fragment_id).to_table(columns=[column]).column(column).combine_chunks()
        writer = ColumnFileWriter(self.uri, dataset.schema.field(column))
        name = f"{secrets.token_hex(8)}.lance"
        writer.open(name)
        writer.write(values)
        writer.close(None, frozenset(), name)
        install(self.uri, fragment_id, name)


def install(uri, fragment_id, file):
    dataset = lance.dataset(uri)
    data_file = lance.fragment.DataFile.create(dataset, file)
    group = lance.LanceOperation.DataReplacementGroup(fragment_id, data_file)
    lance.LanceDataset.commit(dataset, lance.LanceOperation.DataReplacement([group]), read_version=dataset.version)


def rows(count, start=0):
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": pa.array(numbers, pa.int64()),
            "body": pa.array([f"text {i}" for i in numbers]),
            "box": pa.array([{"w": i, "h": 1} for i in numbers]),
        }
    )


def states(*, untouched=0, failed=0):
    """Of ROWS rows."""
    computed = ROWS - untouched - failed
    return [RowState.COMPUTED] * computed + [RowState.FAILED] * failed + [RowState.UNTOUCHED] * untouched


def why(made):
    """Reason of each task by fragment."""
    return {task.fragment_id: task.reason.name for task in made.tasks}
