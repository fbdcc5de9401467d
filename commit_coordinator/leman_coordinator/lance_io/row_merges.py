"""The Lance side of a merge: rows that were sent, set aside, and brought together with those of a table by Lance."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from lance import LanceOperation, blob_array

from leman_coordinator.lance_io import checked_sql, committed_files
from leman_coordinator.lance_io.commit_outcomes import CommitUnclear
from leman_coordinator.lance_io.row_staging import check_takes_rows, is_outlived
from leman_coordinator.lance_io.row_updates import resting_on
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_coordinator.tables.fitting import Fitting, check_not_computed, taken
from leman_coordinator.tables.incoming import Incoming, batches
from leman_coordinator.tables.requests import MergeRowsRequest, MergeRules
from leman_coordinator.tables.sent_rows import RowsDigest
from leman_core.functions import blobs
from leman_core.model.errors import FailedPrecondition, InvalidArgument, LemanError
from leman_core.model.plan import StagedFile
from leman_core.model.sent_rows import SentRows
from leman_core.model.shown_text import repeated
from leman_core.model.table import TableField
from leman_core.process.temp_folders import OwnFolder
from leman_core.storage.column_files import digest_of
from leman_core.storage.dialect import Dialect
from leman_core.storage.error_translation import LANCE_ERRORS, first_line, is_definite
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import in_use, refusal, unusable
from leman_core.storage.table_errors import lost_file
from leman_core.storage.tables import LanceTables, snapshot_of
from leman_core.storage.views.files import remove_staged

#: Arrow's Rust panics over wide numbers that lie as a stream has them.
_ALIGNED = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
_DUPLICATE = "Ambiguous merge insert"
_NOT_EVALUATED = re.compile(r"Arrow error: |Divide by zero|Cast error|Error applying filter")
_REFUSED = "Invalid user input"


class StagedMerge:
    """The rows of one merge, in a file of this machine. Whoever makes it discards it; after a killed
    process the next merge does.
    """

    stays = False

    def __init__(self, uri: str, rules: MergeRules, max_bytes: int) -> None:
        """Open the table.

        Raises:
            NotFound: TABLE_NOT_FOUND.
            FailedPrecondition: IS_A_VIEW, FILE_FORMAT_NOT_SUPPORTED.
            LemanError: what else `LanceTables.dataset` raises.
        """
        self._table = snapshot_of(uri, LanceTables().dataset(uri), ())
        check_takes_rows(self._table)
        self._rules = rules
        self._max_bytes = max_bytes
        self._columns: tuple[TableField, ...] = ()
        with in_use("The rows of a merge", tempfile.gettempdir()):
            self._folder = OwnFolder.make_in(Path(tempfile.gettempdir()), "leman-merge-")

    @property
    def _file(self) -> Path:
        return self._folder.path / "rows.arrow"

    def request(self, request_id: str, body: str) -> MergeRowsRequest:
        """Return what is to be committed."""
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
        """Set all aside that comes, until the stream ends; return which rows came.

        Raises:
            InvalidArgument: BAD_STREAM, BATCH_TOO_LARGE; MERGE_TOO_LARGE; BAD_COLUMN – a key is not sent.
            FailedPrecondition: COLUMN_IS_COMPUTED; as `Fitting`.
            LemanError: what `Incoming.end` was told; STORAGE_FULL and the like, of this machine.
        """
        schema, coming = batches(incoming)
        check_not_computed(schema.names, self._table.fields)
        fitting = Fitting(schema, self._table.fields, whole=self._rules.insert_not_matched)
        self._check_keys(fitting.schema)
        self._columns = fitting.columns
        digest = RowsDigest(schema)
        size = 0
        with (
            in_use("The rows of a merge", str(self._folder.path)),
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
        """Tell whether the table was dropped, or another one is in its place."""
        return is_outlived(self._table)

    def discard(self) -> None:
        """Remove the rows."""
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
                    f"The rows do not have the key '{repeated(name)}': send it with them. A key is a whole column, and "
                    "no field of a struct",
                    field="header.on",
                )
            if '"' in name or "`" in name:
                raise InvalidArgument(
                    "BAD_COLUMN",
                    f"Rows cannot be matched by '{repeated(name)}': Lance takes no quote in a key's name. Rename the "
                    "column",
                    field="header.on",
                )
            kind = schema.field(name).type  # of JSON Lance matches none, and would insert it again and again
            if pa.types.is_nested(kind) or blobs.is_blob(schema.field(name)) or isinstance(kind, pa.JsonType):
                raise InvalidArgument(
                    "BAD_COLUMN",
                    f"Rows cannot be matched by '{repeated(name)}', which is no plain value but {repeated(str(kind))}: "
                    "name a column of numbers, text, bytes or times",
                    field="header.on",
                )


@dataclass(frozen=True, slots=True)
class ReadyMerge:
    """A merge that is to be committed."""

    operation: LanceOperation.Update
    #: Rows inserted, updated, deleted.
    counts: tuple[int, int, int]
    fragments: int


@contextlib.contextmanager
def merged(table: TableHandle, request: MergeRowsRequest) -> Iterator[ReadyMerge]:
    """Give what makes the version that the handle is at one with the rows; its files go, unless it is committed.

    Raises:
        FailedPrecondition: DUPLICATE_KEY – several rows match one of the table; FILTER_FAILED – a condition cannot be
            evaluated.
        InvalidArgument: INVALID_FILTER.
        LemanError: what `storage_errors.unusable` gives.
    """
    rows = _source(table, request)
    dataset, rules = table.dataset, request.rules
    builder = dataset.merge_insert(list(rules.on)).write_mode("rewrite_rows")
    if rules.update_matched:
        known = dataset.schema
        condition = f"({checked_sql.update_condition(known, rules.update_where)})" if rules.update_where else None
        builder = builder.when_matched_update_all(condition)
    if rules.insert_not_matched:
        builder = builder.when_not_matched_insert_all()
    if rules.delete_not_matched_by_source:
        condition = f"({Dialect(dataset).lance(rules.delete_where)})" if rules.delete_where else None
        builder = builder.when_not_matched_by_source_delete(condition)
    try:
        with panics_as_errors():
            transaction, counted = builder.execute_uncommitted(rows)
    except LANCE_ERRORS as error:
        raise _failure(error, request) from error
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
    """Return the rows as Lance takes them.

    Computed columns that rest on what is sent are among them, without values: what they had is not that of these rows.
    """
    known = snapshot_of(request.uri, table.dataset, ())
    with in_use("The rows of a merge", request.rows), pa.memory_map(request.rows) as file:
        rows = pa.ipc.open_stream(file, options=_ALIGNED).read_all()
    changed = [name for name in rows.schema.names if name not in request.rules.on]
    for name in resting_on(known, changed):
        column = known.column(name)
        if column is not None:
            field = taken(column.arrow)
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    if known.file_format < blobs.V2_FORMAT:
        return rows
    for at, field in enumerate(rows.schema):
        if blobs.is_blob(field):
            own = table.dataset.schema.field(field.name)
            rows = rows.set_column(at, own, blob_array(rows.column(at).to_pylist()))
    return rows


def _note(uri: str, files: list[tuple[str, int]]) -> None:
    """Note what is about to be committed, as all that the coordinator commits."""
    staged = []
    for name, rows in files:
        size, digest = digest_of(uri, name)
        staged.append(
            StagedFile(file=name, size_bytes=size, digest=digest, physical_rows=rows, rows_computed=rows, rows_failed=0)
        )
    if staged:
        committed_files.note(uri, staged)


def _failure(error: Exception, request: MergeRowsRequest) -> LemanError:
    """Return what it means that Lance cannot bring the rows together."""
    text = first_line(error)
    if _DUPLICATE in text:
        keys = ", ".join(request.rules.on)
        return FailedPrecondition(
            "DUPLICATE_KEY",
            f"Several rows have the {keys} of one row of the table: send one of them ({text.partition('on ')[2]})",
            uri=request.uri,
        )
    denied = refusal(error, request.uri)
    if denied is not None:
        return denied
    rules = request.rules
    conditions = [("header.update_where", rules.update_where), ("header.delete_where", rules.delete_where)]
    given = [(field, text) for field, text in conditions if text]
    if given and _REFUSED in text:
        return InvalidArgument(
            "INVALID_FILTER", f"Invalid filter: Lance cannot use the condition: {text}", field=given[0][0]
        )
    if given and _NOT_EVALUATED.search(text):
        return FailedPrecondition(
            "FILTER_FAILED",
            f"The condition {given[0][1]} cannot be evaluated for every row: {text}. Make it hold for all of them, for "
            "example with nullif or try_cast",
        )
    if is_definite(error):
        return FailedPrecondition(
            "COMMIT_REFUSED", f"Lance refuses this merge into {request.uri}, and would again: {text}", uri=request.uri
        )
    return lost_file(request.uri, error) or unusable(error, request.uri)
