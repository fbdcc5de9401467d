"""Update and merge rows. Callers' SQL is checked on the latest version, and its `now()` is fixed to one time.

An update deletes the old rows from their fragments and writes the new ones to new fragments. The rows of a merge are
first written to a local file; Lance then merges them into the table.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation, blob_array
from lance.fragment import DataFile as LanceDataFile
from lance.fragment import FragmentMetadata, RowIdSequence

from leman._format.value_casts import holds_type
from leman_coordinator.commits.commit_requests import MergeRowsRequest, MergeRules, UpdateRowsRequest
from leman_coordinator.lance_io import table_files
from leman_coordinator.lance_io.row_commits import Matching
from leman_coordinator.lance_io.row_staging import RowFiles, check_takes_rows, is_outlived
from leman_coordinator.lance_io.table_handle import CommitUnclear, TableHandle
from leman_coordinator.tables import schema_casting
from leman_coordinator.tables.arrow_streams import Incoming, read_batches
from leman_coordinator.tables.row_digests import RowsDigest
from leman_coordinator.tables.schema_casting import Fitting, check_not_computed, stored_field
from leman_core.functions import arrow_types, binding
from leman_core.model.plan import StagedFile
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, LemanError, Unavailable, excerpt
from leman_core.model.table import SentRows, TableField, TableSnapshot
from leman_core.process.temp_folders import OwnFolder
from leman_core.sql import expressions, filters, time_values
from leman_core.sql.filters import Token
from leman_core.sql.time_values import pin_relative_times
from leman_core.storage import lance_sql
from leman_core.storage.column_files import digest_of
from leman_core.storage.error_translation import LANCE_ERRORS, file_damage, first_line, is_definite, using_storage
from leman_core.storage.lance_sql import Dialect, clean_message
from leman_core.storage.lance_tables import LanceTables, snapshot_of
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.scan import Chunk, FragmentReader
from leman_core.storage.storage_errors import error_text, refusal_error, storage_unusable, translating_os_errors
from leman_core.storage.view_data_files import remove_staged

#: The prefix of Lance's own columns, which its merge cannot resolve in a delete condition.
_ROW_COLUMNS = "_row"
#: The names in a merge's conditions for the rows that are sent, and for the table's rows that they match.
_SIDES = ("source", "target")


def pinned_condition(uri: str, where: str, now: dt.datetime) -> str:
    """Return a filter in which `now()` and the like are fixed to `now`.

    Raises:
        InvalidArgument: INVALID_FILTER.
        LemanError: raised by `LanceTables.check_filter`.
    """
    pinned = pin_relative_times(where, now)
    LanceTables().check_filter(uri, pinned)
    return pinned


def pinned_values(uri: str, given: Mapping[str, str], now: dt.datetime) -> dict[str, str]:
    """Return the SQL of new values, by column, in which `now()` and the like are fixed to `now`.

    Raises:
        InvalidArgument: INVALID_EXPRESSION.
        FailedPrecondition: INPUT_COLUMN_MISSING.
        LemanError: raised by `LanceTables.expression_type`.
    """
    tables, found = LanceTables(), {}
    schema = tables.dataset(uri).schema
    for column, expression in given.items():
        try:
            filters.check_length(expression, expressions.MAX_BYTES)
            found[column] = pin_relative_times(expression, now)
            expressions.check_expression(found[column], schema.names)
            numbers = filters.tokenize(found[column])
            filters.check_finite_numbers(numbers)
            if column in schema.names and not holds_type(schema.field(column).type, pa.types.is_floating):
                filters.check_exact_numbers(numbers)
            tables.expression_type(uri, found[column], may_be_constant=True)
        except InvalidArgument as error:
            said = f"Invalid SQL expression for '{column}': {error.message.partition(': ')[2]}"
            raise InvalidArgument("INVALID_EXPRESSION", said, field="expressions") from None
    return found


def pinned_rules(uri: str, given: MergeRules, now: dt.datetime) -> MergeRules:
    """Return the rules of a merge, in whose conditions `now()` and the like are fixed to `now`.

    Lance itself checks the columns of `source` and `target` when it merges.

    Raises:
        InvalidArgument: INVALID_FILTER.
        LemanError: raised by `LanceTables.check_filter`.
    """
    update, delete = given.update_where, given.delete_where
    if update:
        with _about("header.update_where"):
            update = pin_relative_times(update, now)
        update_condition(LanceTables().dataset(uri).schema, update)
    with _about("header.delete_where"):
        if delete:
            delete = pinned_condition(uri, delete, now)
            _check_no_row_columns(uri, delete)
    return replace(given, update_where=update, delete_where=delete)


def _check_no_row_columns(uri: str, where: str) -> None:
    columns = LanceTables().dataset(uri).schema.names
    for token in filters.tokenize(where):
        is_name = token.kind in {filters.Kind.WORD, filters.Kind.QUOTED}
        if is_name and token.name.lower().startswith(_ROW_COLUMNS) and token.name not in columns:
            raise filters.invalid_filter(
                f"a merge deletes rows only by the table's columns, and {token.text} is Lance's own: delete by it "
                "with TableService.DeleteRows (`Table.delete`) after the merge"
            )


def update_condition(schema: pa.Schema, where: str) -> str:
    """Return a condition on `source` and `target`, two rows of a table with this schema, in the SQL of Lance's merge.

    That SQL has neither CASE, nor values of a type with a time zone.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    with _about("header.update_where"):
        filters.check_filter(where, schema.names)
        found = filters.tokenize(where)
        if expressions.case_keywords(found):
            raise filters.invalid_filter("CASE cannot be used in it: write its conditions with AND and OR")
        lance_sql.check_patterns(where)
        lance_sql.check_constants(where)
        expressions.check_json_use(_without_sides(where, found), schema)
        expressions.check_packed(_without_sides(where, found), schema)
        if time_values.mentions_times(found):
            where = Dialect(_sides(schema, where)).lance(where)
        if any(call.lower == "arrow_cast" for call in filters.called_functions(filters.tokenize(where))):
            raise filters.invalid_filter(
                "it may have no times but now() and ones like timestamp '2024-06-01', compared by <, <=, =, >= and > "
                "with columns without a time zone. Compare a column with a time zone as a number, in microseconds "
                "since 1970 for timestamp[us, …]: cast(target.at as bigint) < 1717200000000000"
            )
    return where


def _without_sides(where: str, found: Sequence[Token]) -> str:
    """Return a condition in which `source.a` and `target.a` are both written `a`."""
    pieces, at = [], 0
    for index, token in enumerate(found[:-1]):
        begins = index == 0 or found[index - 1].text != "."
        if begins and token.name.lower() in _SIDES and found[index + 1].text == ".":
            pieces.append(where[at : token.start])
            at = found[index + 1].end
    return "".join([*pieces, where[at:]])


def _sides(schema: pa.Schema, where: str) -> lance.LanceDataset:
    """Return an empty dataset in memory with the time columns of `source` and `target`."""
    named = filters.names_in_filter(where)
    row = pa.struct([field for field in schema if field.name.casefold() in named and _has_time(field.type)])
    sides = pa.schema([pa.field(side, row) for side in _SIDES])
    empty = pa.table([pa.nulls(0, row)] * len(_SIDES), schema=sides)
    return lance.write_dataset(empty, "memory://sides.lance", data_storage_version="2.1")


def _has_time(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    return pa.types.is_temporal(kind) or any(_has_time(kind.field(at).type) for at in range(kind.num_fields))


@contextlib.contextmanager
def _about(field: str) -> Iterator[None]:
    """Add the name of a request's field to errors about its SQL."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message, field=field) from None


_ROW_ID = "_rowid"
#: If one value applies to all rows, the maximum bytes of its copies in memory at once. There is at least one copy.
_REPEATED_BYTES = 16 << 20


def check_update(table: TableHandle, request: UpdateRowsRequest) -> None:
    """Check that the columns of the handle's version accept the values of an update.

    Raises:
        FailedPrecondition: IS_A_VIEW, FILE_FORMAT_NOT_SUPPORTED, COLUMN_NOT_FOUND, COLUMN_IS_COMPUTED, TYPE_MISMATCH,
            INPUT_COLUMN_MISSING.
        InvalidArgument: INVALID_EXPRESSION.
        LemanError: raised by `FragmentReader.schema`.
    """
    _Rewriting(table, request)


def update_rows(table: TableHandle, found: Matching, request: UpdateRowsRequest, properties: Mapping[str, str]) -> int:
    """Update rows of the handle's version, and return the version of the table with their new values.

    Args:
        found: The matching rows.

    Raises:
        FailedPrecondition: EXPRESSION_FAILED – an expression has no value for a row; TYPE_MISMATCH, NULL_VALUE – a
            value does not fit its column; else as `check_update`.
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        LemanError: see `storage_unusable`.
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
    """Return the computed columns that depend on any of the changed columns, directly or indirectly.

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
    """Writes the updated rows to new fragments."""

    def __init__(self, table: TableHandle, request: UpdateRowsRequest) -> None:
        self._dataset = dataset = table.dataset
        self._request = request
        known = snapshot_of(request.uri, dataset, ())
        check_takes_rows(known)
        schema_casting.check_not_computed(request.columns, known.fields)
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
        """Write the rows, and return the operation that installs them."""
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
        """Return the schema of the rows before they are cast."""
        expressions = self._request.expressions
        constants = pa.schema([]) if self._request.values is None else self._request.values.schema
        try:
            read = self._reader.schema({_ROW_ID: _ROW_ID, **expressions})
        except Unavailable:
            for expression in expressions.values():  # an input may have been dropped since the check
                LanceTables().expression_type(
                    self._request.uri, expression, int(self._dataset.version), may_be_constant=True
                )
            raise
        own = [
            schema_casting.stored_field(column.arrow)
            for column in self._kept
            if column.name not in self._request.columns
        ]
        return pa.schema([*own, *(read.field(name) for name in expressions), *constants])

    def _columns(self) -> dict[str, str]:
        return {
            _ROW_ID: _ROW_ID,
            **{column.name: _quoted(column) for column in self._kept},
            **self._request.expressions,
        }

    def _rows(self, fragment_id: int) -> Iterator[Chunk]:
        """Yield a fragment's matching rows, without the columns that get the same value in all rows."""
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
                f"An expression has no value for a row: {clean_message(error_text(error))}. Handle such rows in it, "
                "with try_cast(…) or x / nullif(y, 0), or exclude them with the filter",
                uri=self._request.uri,
            ) from None

    def _fails_again(self, fragment_id: int, every: RowRange) -> bool:
        """Return whether the expressions fail again although their inputs are readable, so storage is not the cause.

        Raises the errors of `storage_unusable`.
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
        """Split rows into parts, so that a large value that is repeated for each row takes bounded memory."""
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
        """Yield the fragments of the files.

        `ids`: the stable ids of all their rows, or None if the table has no stable row ids.
        """
        at = 0
        for file in self.files.files:
            with using_storage(self._request.uri):
                layout = LanceDataFile.create(self._dataset, file.file)
            end = at + file.physical_rows
            kept = None if ids is None else RowIdSequence(ids[at:end].tolist()).to_inline_metadata()
            yield FragmentMetadata(0, [layout], file.physical_rows, row_id_meta=kept)
            at = end


def _repeated(value: pa.Array, rows: int) -> pa.Array:
    """Return an array of one value, repeated. Arrow's `take` does not support all types."""
    while len(value) < rows:
        value = pa.concat_arrays([value, value])
    return value.slice(0, rows)


def _quoted(column: TableField) -> str:
    return "`" + column.name.replace("`", "``") + "`"


#: Arrow's Rust code panics on wide numbers with the alignment that they have in a stream.
_ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
_DUPLICATE = "Ambiguous merge insert"
_NOT_EVALUATED = re.compile(
    r"Arrow error: |Divide by zero|Cast error|Error applying filter|too large to store|[Oo]verflow"
)
#: Lance's messages about a condition that it cannot plan.
_REFUSED = re.compile(
    r"Invalid user input|Query Execution error|Not supported|LanceError\((?:InvalidInput|NotSupported)\)"
    r"|Internal error: "
)
_PREFIX = "Failed to parse UpdateIf condition: "
_AMBIGUOUS = re.compile(r"Ambiguous reference to unqualified field (\S+)")
_NO_FIELD = re.compile(r"No field named (\S+?)\.(?: |$)")
_OF_UPDATE, _OF_DELETE = "header.update_where", "header.delete_where"


class StagedMerge:
    """The rows of one merge, in a local file.

    The creator of this object deletes the file. If the process is killed before, the next merge deletes it.
    """

    stays = False

    def __init__(self, uri: str, rules: MergeRules, max_bytes: int) -> None:
        """Open the table.

        Raises:
            NotFound: TABLE_NOT_FOUND.
            FailedPrecondition: IS_A_VIEW, FILE_FORMAT_NOT_SUPPORTED.
            LemanError: raised by `LanceTables.dataset`.
        """
        self._table = snapshot_of(uri, LanceTables().dataset(uri), ())
        check_takes_rows(self._table)
        self._rules = rules
        self._max_bytes = max_bytes
        self._columns: tuple[TableField, ...] = ()
        with translating_os_errors("The rows of a merge", tempfile.gettempdir()):
            self._folder = OwnFolder.make_in(Path(tempfile.gettempdir()), "leman-merge-")

    @property
    def _file(self) -> Path:
        return self._folder.path / "rows.arrow"

    def request(self, request_id: str, body: str) -> MergeRowsRequest:
        """Return the request to commit."""
        return MergeRowsRequest(
            uri=self._table.uri,
            request_id=request_id,
            body=body,
            incarnation=self._table.incarnation,
            columns=self._columns,
            rules=self._rules,
            rows=str(self._file),
        )

    def write(self, incoming: Incoming) -> SentRows:
        """Write all rows to the local file until the stream ends. Return their digest and count.

        Raises:
            InvalidArgument: BAD_STREAM, BATCH_TOO_LARGE; MERGE_TOO_LARGE; BAD_COLUMN – a key is missing.
            FailedPrecondition: COLUMN_IS_COMPUTED; see also `Fitting`.
            LemanError: the error passed to `Incoming.end`; STORAGE_FULL and the like, of this machine.
        """
        schema, coming = read_batches(incoming)
        check_not_computed(schema.names, self._table.fields)
        fitting = Fitting(schema, self._table.fields, whole=self._rules.insert_not_matched)
        self._check_keys(fitting.schema)
        self._columns = fitting.columns
        digest = RowsDigest(schema)
        size = 0
        with (
            translating_os_errors("The rows of a merge", str(self._folder.path)),
            pa.ipc.new_stream(str(self._file), fitting.schema) as sink,
        ):
            for batch in coming:
                for part in fitting.fitted(batch):
                    size += part.nbytes
                    self._check_size(size)
                    sink.write_batch(part)
                digest.add(batch)
        return digest.sent()

    def is_outlived(self) -> bool:
        """Return whether the table was dropped or replaced since the merge began."""
        return is_outlived(self._table)

    def discard(self) -> None:
        self._folder.remove()

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise InvalidArgument(
                "MERGE_TOO_LARGE",
                f"The rows have more than {self._max_bytes} bytes (LEMAN_COMMIT__MAX_MERGE_BYTES): send them "
                "in several calls",
                field="arrow_ipc",
            )

    def _check_keys(self, schema: pa.Schema) -> None:
        for name in self._rules.on:
            if name not in schema.names:
                raise InvalidArgument(
                    "BAD_COLUMN",
                    f"The rows do not have the key '{excerpt(name)}': send it with them. A key is a whole column, and "
                    "no field of a struct",
                    field="header.on",
                )
            if '"' in name or "`" in name:
                raise InvalidArgument(
                    "BAD_COLUMN",
                    f"Rows cannot be matched by '{excerpt(name)}': Lance accepts no quote in a key's name. Rename the "
                    "column",
                    field="header.on",
                )
            kind = schema.field(name).type  # Lance never matches JSON values, and would insert such rows each time
            if pa.types.is_nested(kind) or arrow_types.is_blob(schema.field(name)) or isinstance(kind, pa.JsonType):
                raise InvalidArgument(
                    "BAD_COLUMN",
                    f"Rows cannot be matched by '{excerpt(name)}' of type {excerpt(str(kind))}: "
                    "name a column of numbers, text, bytes or times",
                    field="header.on",
                )


@dataclass(frozen=True, slots=True)
class ReadyMerge:
    """A merge that is ready to commit."""

    operation: LanceOperation.Update
    #: The numbers of rows that are inserted, updated and deleted.
    counts: tuple[int, int, int]
    fragments: int


@contextlib.contextmanager
def prepared_merge(table: TableHandle, request: MergeRowsRequest) -> Iterator[ReadyMerge]:
    """Write the merged rows. The block must commit them; if it does not, the files are removed.

    Raises:
        FailedPrecondition: DUPLICATE_KEY – several sent rows match the same row of the table; FILTER_FAILED – a
            condition cannot be evaluated.
        InvalidArgument: INVALID_FILTER.
        LemanError: see `storage_unusable`.
    """
    rows = _source(table, request)
    dataset, rules = table.dataset, request.rules
    blamed = _OF_UPDATE if rules.update_where else _OF_DELETE
    builder = dataset.merge_insert(list(rules.on)).write_mode("rewrite_rows")
    if rules.update_matched:
        known = dataset.schema
        condition = f"({update_condition(known, rules.update_where)})" if rules.update_where else None
        builder = builder.when_matched_update_all(condition)
    if rules.insert_not_matched:
        builder = builder.when_not_matched_insert_all()
    if rules.delete_not_matched_by_source:
        condition = f"({Dialect(dataset).lance(rules.delete_where)})" if rules.delete_where else None
        with _translated(request, _OF_DELETE):
            builder = builder.when_not_matched_by_source_delete(condition)
    with _translated(request, blamed):
        transaction, counted = builder.execute_uncommitted(rows)
    operation = transaction.operation
    if not isinstance(operation, LanceOperation.Update):
        raise RuntimeError(f"Lance merges rows by {type(operation).__name__}")
    new = [(str(file.path), f.physical_rows) for f in operation.new_fragments for file in f.files]
    try:
        _note(request.uri, new)
        kinds = ("inserted", "updated", "deleted")
        counts = tuple(int(counted[f"num_{kind}_rows"]) for kind in kinds)
        touched = len(new) + len(operation.updated_fragments) + len(operation.removed_fragment_ids)
        yield ReadyMerge(operation, (counts[0], counts[1], counts[2]), touched)
    except CommitUnclear:
        raise
    except BaseException:
        remove_staged(request.uri, [name for name, _ in new])
        raise


def _source(table: TableHandle, request: MergeRowsRequest) -> pa.Table:
    """Return the rows to pass to Lance.

    Computed columns that depend on the sent columns are added as NULL, because their old values become outdated.
    """
    known = snapshot_of(request.uri, table.dataset, ())
    with translating_os_errors("The rows of a merge", request.rows), pa.memory_map(request.rows) as file:
        rows = pa.ipc.open_stream(file, options=_ALIGNED).read_all()
    changed = [name for name in rows.schema.names if name not in request.rules.on]
    for name in resting_on(known, changed):
        column = known.column(name)
        if column is not None:
            field = stored_field(column.arrow)
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    if known.file_format < arrow_types.V2_FORMAT:
        return rows
    for at, field in enumerate(rows.schema):
        if arrow_types.is_blob(field):
            own = table.dataset.schema.field(field.name)
            rows = rows.set_column(at, own, blob_array(rows.column(at).to_pylist()))
    return rows


def _note(uri: str, files: list[tuple[str, int]]) -> None:
    """Write a note of the files before their commit, as for all files that the coordinator commits."""
    staged = []
    for name, rows in files:
        size, digest = digest_of(uri, name)
        staged.append(
            StagedFile(file=name, size_bytes=size, digest=digest, physical_rows=rows, rows_computed=rows, rows_failed=0)
        )
    if staged:
        table_files.write_note(uri, staged)


@contextlib.contextmanager
def _translated(request: MergeRowsRequest, blamed: str) -> Iterator[None]:
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise _failure(error, request, blamed) from error


def _failure(error: Exception, request: MergeRowsRequest, blamed: str) -> LemanError:
    """Return the error for a merge that Lance refuses.

    Args:
        blamed: The field of the condition that may be the cause, or "".
    """
    text = first_line(error)
    if _DUPLICATE in text:
        keys, row = ", ".join(request.rules.on), text.partition("on ")[2].partition(". ")[0]
        return FailedPrecondition(
            "DUPLICATE_KEY",
            f"Several rows have the {keys} of one row of the table: send one of them {row}",
            uri=request.uri,
        )
    known = refusal_error(error, request.uri) or file_damage(request.uri, error)
    if known is not None:
        return known
    given = request.rules.update_where if blamed == _OF_UPDATE else request.rules.delete_where
    if given and _NOT_EVALUATED.search(text):
        return lance_sql.filter_failed("condition", given, text)
    if given and _REFUSED.search(text):
        return InvalidArgument("INVALID_FILTER", f"Invalid filter: {_about_condition(text)}", field=blamed)
    if is_definite(error):
        return FailedPrecondition(
            "COMMIT_REFUSED", f"Lance refuses this merge into {request.uri}, and would again: {text}", uri=request.uri
        )
    return storage_unusable(error, request.uri)


def _about_condition(text: str) -> str:
    if (found := _AMBIGUOUS.search(text)) is not None:
        name = excerpt(found[1])
        return f"{name} is a column of the rows that are sent and of the table: write source.{name} or target.{name}"
    if (found := _NO_FIELD.search(text)) is not None:
        return (
            f"there is no {excerpt(found[1])} in it: source.x is a column of the rows that are sent, and target.x one "
            "of the table"
        )
    return f"Lance cannot use the condition: {clean_message(text).removeprefix(_PREFIX)}"
