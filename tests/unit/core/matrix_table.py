"""A table with a column of each type, and what fills computed columns of it in one process: the checks of a column that
is added, the call of the function, checkpoints, column files, the coordinator's check of them, and Lance."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from leman._format.stored_functions import ErrorPolicy, UdfDefinition, UdfKind
from leman_core.functions import column_checks
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import LemanError
from leman_core.sql import expressions
from leman_core.storage import column_files
from leman_core.storage.checkpoint_records import Piece, from_checkpoint, to_checkpoint
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.scan import FragmentReader
from leman_executor.worker.evaluator import Evaluator, JobFailing
from leman_executor.worker.fragment_writer import FragmentWriter
from leman_executor.worker.sql_source import SqlValues
from leman_executor.worker.unit_runtime import Evaluates
from leman_planner.catalog import table_catalog
from tests.integration.types.types_pipeline import ENTRYPOINTS

#: The offset of the row that is deleted, and where the rows after the checkpoint begin.
DELETED, SECOND = 6, 3


class MatrixTable:
    """One fragment with each row twice, one of them deleted."""

    def __init__(self, folder: Path, columns: Mapping[str, pa.Array], file_format: tuple[int, int]) -> None:
        self.uri = str(folder / "t.lance")
        self.faults: dict[str, str] = {}
        self._format = file_format
        twice = pa.table({name: pa.chunked_array([array, array]) for name, array in columns.items()})
        self._rows = twice.num_rows
        written = lance.write_dataset(twice, self.uri, data_storage_version="{}.{}".format(*file_format))
        written.delete(f"_rowaddr = {DELETED}")
        self._snapshot = LanceTables().snapshot(self.uri)
        self._store = LanceCheckpointStore(checkpoint_root(self.uri))
        self._functions: dict[str, UdfDefinition] = {}
        self._fields: dict[str, pa.Field] = {}

    def declare(self, name: str, kind: UdfKind, reads: str, output: pa.DataType) -> None:
        """A column to be computed from another. Raises what AddColumns raises where it cannot be."""
        udf = UdfDefinition(f"{name}_of", "1", kind, (reads,), output, entrypoint=ENTRYPOINTS[kind])
        field = column_checks.new_field(column_checks.NewColumn(name, udf.name, udf.version), udf, self._snapshot, name)
        self._functions[name], self._fields[name] = udf, field

    def declare_sql(self, name: str, expression: str) -> pa.DataType:
        """As `declare`, for an expression. Returns its type."""
        names = [field.name for field in self._snapshot.fields]
        expressions.check_expression(expression, names)
        output = LanceTables().expression_type(self.uri, expression)
        udf = table_catalog.sql_function_definition(
            expression, expressions.columns_of_expression(expression, names), output
        )
        column = column_checks.NewColumn(name, udf.name, udf.version, sql_expression=expression)
        self._fields[name] = column_checks.new_field(column, udf, self._snapshot, name)
        self._functions[name] = udf
        return self._fields[name].type

    def fill(self) -> pa.Table:
        """Adds, computes and commits all columns that were declared; the table as it then is. `faults`: what went
        wrong with a column."""
        if self._fields:
            lance.dataset(self.uri).add_columns(pa.schema(list(self._fields.values())))
        dataset = lance.dataset(self.uri)
        reader = FragmentReader(self.uri, dataset.version)
        self._live, self._deletions = reader.live(0, RowRange(0, self._rows)), reader.deletions(0)
        inputs = sorted({name for udf in self._functions.values() for name in udf.input_columns})
        (chunk,) = reader.read(0, RowRange(0, self._rows), inputs, deletions=True)
        files = []
        for name, udf in self._functions.items():
            try:
                if udf.kind is UdfKind.SQL:
                    (computed,) = reader.read(0, RowRange(0, self._rows), {"v": udf.sql_expression}, deletions=True)
                    files.append(self._column_file(name, udf, computed.offsets, computed.rows))
                else:
                    files.append(self._column_file(name, udf, chunk.offsets, chunk.rows.select(udf.input_columns)))
            except JobFailing as error:
                self.faults[name] = str(error)
            except (LemanError, KeyError, pa.ArrowException, OSError, ValueError, RuntimeError) as error:
                self.faults[name] = repr(error)
        self._install(dataset, files)
        return lance.dataset(self.uri).to_table()

    def _column_file(self, name: str, udf: UdfDefinition, offsets: np.ndarray, rows: pa.RecordBatch) -> str:
        """As a unit of work writes it that goes on after a checkpoint."""
        field = self._fields[name].remove_metadata()
        evaluate = _evaluator(udf, field.type)
        first, second = (
            Piece(offsets[part], evaluate(0, offsets[part], rows.slice(part.start, part.stop - part.start)).values)
            for part in (slice(0, SECOND), slice(SECOND, len(offsets)))
        )
        self._store[name] = to_checkpoint(0, name, [first], field.type)
        kept = from_checkpoint(self._store[name], field.type)
        writer = FragmentWriter(
            self.uri,
            field,
            name,
            self._rows,
            existing=None,
            live=lambda _: self._live,
            selective=False,
            file_format=self._format,
        )
        writer.emit(RowRange(0, self._rows), [kept, second])
        staged = writer.finish(frozenset(), self._deletions)
        column_files.verify_column_file(self.uri, staged, self._fields[name])
        return staged.file

    def _install(self, dataset: lance.LanceDataset, files: list[str]) -> None:
        fragment = dataset.get_fragment(0).metadata
        fragment.files.extend(lance.fragment.DataFile.create(dataset, file) for file in files)
        merged = lance.LanceOperation.Merge([fragment], dataset.lance_schema)
        lance.LanceDataset.commit(dataset, merged, read_version=dataset.version)


def _evaluator(udf: UdfDefinition, output: pa.DataType) -> Evaluates:
    if udf.kind is UdfKind.SQL:
        return SqlValues(output, ErrorPolicy())
    module, _, function = udf.entrypoint.partition(":")
    called = getattr(importlib.import_module(module), function)
    return Evaluator(called, udf.kind, udf.name, output, udf.input_columns, ErrorPolicy())
