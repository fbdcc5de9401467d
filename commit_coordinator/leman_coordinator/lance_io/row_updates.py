"""The Lance side of updating rows: they leave their fragments, and are written to new ones with their other values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import DataFile as LanceDataFile
from lance.fragment import FragmentMetadata, RowIdSequence

from leman_coordinator.lance_io.commit_outcomes import CommitUnclear
from leman_coordinator.lance_io.row_commits import Matching
from leman_coordinator.lance_io.row_staging import RowFiles, check_takes_rows
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_coordinator.tables import fitting
from leman_coordinator.tables.fitting import Fitting
from leman_coordinator.tables.requests import UpdateRowsRequest
from leman_core.functions import binding
from leman_core.model.errors import FailedPrecondition, Unavailable
from leman_core.model.ranges import RowRange
from leman_core.model.table import TableField, TableSnapshot
from leman_core.storage.error_translation import using_storage
from leman_core.storage.scan import Chunk, FragmentReader
from leman_core.storage.sql_messages import clean_message
from leman_core.storage.storage_errors import said
from leman_core.storage.tables import LanceTables, snapshot_of

_ROW_ID = "_rowid"
#: Of a value that is the same for all rows so many bytes are held at once, and one value at least.
_REPEATED_BYTES = 16 << 20


def check(table: TableHandle, request: UpdateRowsRequest) -> None:
    """Check that the columns of the version that the handle is at can get such values.

    Raises:
        FailedPrecondition: IS_A_VIEW, FILE_FORMAT_NOT_SUPPORTED, COLUMN_NOT_FOUND, COLUMN_IS_COMPUTED, TYPE_MISMATCH,
            INPUT_COLUMN_MISSING.
        InvalidArgument: INVALID_EXPRESSION.
        LemanError: what `FragmentReader.schema` raises.
    """
    _Rewriting(table, request)


def update(table: TableHandle, found: Matching, request: UpdateRowsRequest, properties: Mapping[str, str]) -> int:
    """Update rows of the version that the handle is at, and return the version of the table with their new values.

    Args:
        found: the rows that match.

    Raises:
        FailedPrecondition: EXPRESSION_FAILED – an expression has no value for a row; TYPE_MISMATCH, NULL_VALUE – one
            does not fit its column; else as `check`.
        CommitConflict: Another writer came between.
        CommitUnclear: The commit may have been made.
        LemanError: what `storage_errors.unusable` gives.
    """
    rewriting = _Rewriting(table, request)
    try:
        return table.commit(rewriting.operation(found), properties)
    except CommitUnclear:
        raise
    except BaseException:
        rewriting.files.discard()
        raise


def resting_on(table: TableSnapshot, changed: Iterable[str]) -> frozenset[str]:
    """Return the computed columns that rest on any of some columns, near or far.

    Raises:
        DataLoss: BINDING_DAMAGED.
    """
    bound = {column.name: binding.read(column.arrow) for column in table.fields}
    reads = {
        name: {field.name.split(".")[0] for i in known.inputs if (field := table.find_id(i.field_id)) is not None}
        for name, known in bound.items()
        if known is not None
    }
    reached = set(changed)
    while more := {name for name, read in reads.items() if name not in reached and read & reached}:
        reached |= more
    return frozenset(reached & reads.keys())


class _Rewriting:
    """The rows of one update in their new fragments."""

    def __init__(self, table: TableHandle, request: UpdateRowsRequest) -> None:
        self._dataset = dataset = table.dataset
        self._request = request
        known = snapshot_of(request.uri, dataset, ())
        check_takes_rows(known)
        fitting.check_not_computed(request.columns, known.fields)
        lost = resting_on(known, request.columns)
        self._kept = [column for column in known.fields if column.name not in lost]
        self._reader = FragmentReader(request.uri, int(dataset.version))
        unchanged = [column.name for column in self._kept if column.name not in request.columns]
        self._fitting = Fitting(
            self._given(), self._kept, computed=request.expressions, clocks=request.clocks, kept=unchanged
        )
        self._fields = [i for column in known.fields for i in column.field_ids]
        self.files = RowFiles(known)

    def operation(self, found: Matching) -> LanceOperation.Update:
        """Write the rows, and return what makes the table one with them."""
        changed, emptied, ids, stable = [], [], [], bool(self._dataset.has_stable_row_ids)
        for fragment_id in sorted(found.offsets):
            offsets = []
            for chunk in self._rows(fragment_id):
                for rows in self._parts(chunk.rows):
                    for part in self._fitting.fitted(self._with_values(rows)):
                        self.files.write(part)
                offsets.append(chunk.offsets)
                if stable:
                    ids.append(chunk.rows.column(_ROW_ID).to_numpy())
            left = self._left(fragment_id, np.concatenate(offsets).tolist())
            if left is None:
                emptied.append(fragment_id)
            else:
                changed.append(left)
        self.files.close()
        return LanceOperation.Update(
            removed_fragment_ids=emptied,
            updated_fragments=changed,
            new_fragments=list(self._new_fragments(np.concatenate(ids) if stable else None)),
            fields_for_preserving_frag_bitmap=self._fields,
            update_mode="rewrite_rows",
        )

    def _given(self) -> pa.Schema:
        """Return what the rows have before they are fitted."""
        expressions = self._request.expressions
        constants = pa.schema([]) if self._request.values is None else self._request.values.schema
        try:
            read = self._reader.schema({_ROW_ID: _ROW_ID, **expressions})
        except Unavailable:
            for expression in expressions.values():  # what it reads may have gone since the call was checked
                LanceTables().expression_type(
                    self._request.uri, expression, int(self._dataset.version), may_be_constant=True
                )
            raise
        own = [fitting.taken(column.arrow) for column in self._kept if column.name not in self._request.columns]
        return pa.schema([*own, *(read.field(name) for name in expressions), *constants])

    def _columns(self) -> dict[str, str]:
        """Return what is read: column → SQL."""
        return {
            _ROW_ID: _ROW_ID,
            **{column.name: _quoted(column) for column in self._kept},
            **self._request.expressions,
        }

    def _rows(self, fragment_id: int) -> Iterator[Chunk]:
        """Yield the rows of a fragment that match, but for values that are the same for all of them."""
        fragment = self._fragment(fragment_id)
        every = RowRange(0, int(fragment.physical_rows))
        where = self._request.where
        try:
            for chunk in self._reader.read(fragment_id, every, self._columns(), deletions=True, where=where):
                if len(chunk.offsets):
                    yield chunk
        except Unavailable as error:
            if not self._fails_again(fragment_id, every):
                raise
            raise FailedPrecondition(
                "EXPRESSION_FAILED",
                f"An expression has no value for a row: {clean_message(said(error))}. Allow for such rows in it, with "
                "try_cast(…) or x / nullif(y, 0), or leave them out by the filter",
                uri=self._request.uri,
            ) from None

    def _fails_again(self, fragment_id: int, every: RowRange) -> bool:
        """Tell whether rows cannot be read once more, while what they are computed from can: the storage is well.

        Raises:
            LemanError: what `storage_errors.unusable` gives, where it is not.
        """
        where = self._request.where
        try:
            for _ in self._reader.read(fragment_id, every, self._columns(), deletions=True, where=where):
                pass
        except Unavailable:
            plain = [column.name for column in self._kept]
            for _ in self._reader.read(fragment_id, every, plain, deletions=True, where=where):
                pass
            return True
        return False

    def _parts(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Cut rows so that the values which are the same for all of them take bounded memory."""
        constants = self._request.values
        most = rows.num_rows if constants is None else max(1, _REPEATED_BYTES // max(1, constants.nbytes))
        for at in range(0, rows.num_rows, most):
            yield rows.slice(at, most)

    def _with_values(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        constants = self._request.values
        if constants is None:
            return rows.drop_columns(_ROW_ID)
        kept = [name for name in rows.schema.names if name not in {_ROW_ID, *constants.schema.names}]
        columns = [*rows.select(kept).columns, *(_repeated(value, rows.num_rows) for value in constants.columns)]
        return pa.RecordBatch.from_arrays(columns, names=[*kept, *constants.schema.names])

    def _left(self, fragment_id: int, offsets: list[int]) -> FragmentMetadata | None:
        with using_storage(self._request.uri):
            return self._fragment(fragment_id).delete_rows(offsets)

    def _fragment(self, fragment_id: int) -> lance.LanceFragment:
        fragment = self._dataset.get_fragment(fragment_id)
        if fragment is None:
            raise RuntimeError(f"fragment {fragment_id} is not in the version that was scanned")
        return fragment

    def _new_fragments(self, ids: npt.NDArray[np.uint64] | None) -> Iterator[FragmentMetadata]:
        """Yield what the files are, with the stable ids of all their rows; None: the table has none."""
        at = 0
        for file in self.files.files:
            with using_storage(self._request.uri):
                layout = LanceDataFile.create(self._dataset, file.file)
            end = at + file.physical_rows
            kept = None if ids is None else RowIdSequence(ids[at:end].tolist()).to_inline_metadata()
            yield FragmentMetadata(0, [layout], file.physical_rows, row_id_meta=kept)
            at = end


def _repeated(value: pa.Array, rows: int) -> pa.Array:
    """Return one value so many times: `take` does not know all types."""
    while len(value) < rows:
        value = pa.concat_arrays([value, value])
    return value.slice(0, rows)


def _quoted(column: TableField) -> str:
    return "`" + column.name.replace("`", "``") + "`"
