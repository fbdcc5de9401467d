"""Commits to views: creation, placeholders, and one version with all changes of a refresh.

Placeholders are the rows of a view before a refresh computes their values.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import DataFile as LanceDataFile
from lance.fragment import DeletionFile, FragmentMetadata
from lance.schema import LanceSchema

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID
from leman_coordinator.lance_io.table_files import InstallableFile, with_files, with_layout_of
from leman_coordinator.lance_io.table_handle import commit_outcomes
from leman_core.model.plan import StagedFile
from leman_core.model.row_ids import Ids
from leman_core.model.row_positions import fragments_of, offsets_of
from leman_core.model.service_errors import FailedPrecondition, NotFound
from leman_core.model.view import PLACEHOLDER_FILE_PREFIX
from leman_core.process.crash_points import crash_point
from leman_core.storage import column_files, transactions
from leman_core.storage.error_translation import using_storage
from leman_core.storage.filesystems import counted_table
from leman_core.storage.lance_tables import INCARNATION_KEY, open_table
from leman_core.storage.table_creation import check_conditional_puts, commit_first, create_empty
from leman_core.storage.view_data_files import ViewFileWriter, storage_version

#: Rows in each of the first fragments, unless the caller chooses. The fragments of a view are written concurrently;
#: with small first fragments, this also speeds up small views.
_FIRST_ROWS = 1 << 16
#: How many fragments have the same size before the size doubles.
_ALIKE = 8
#: The maximum number of rows in a fragment, unless the caller chooses.
_MOST_ROWS = 1 << 18
_BATCH_BYTES = 8 << 20
_SAMPLE = 64


def stage_placeholders(
    uri: str, schema: pa.Schema, ids: Iterable[Ids], max_rows_per_fragment: int, version: str | None
) -> list[StagedFile]:
    """Write placeholders for the row ids of a source, one file for each fragment, and return the files.

    All columns of the view are NULL, except two: the source's row ids, in the given order, and `__is_set`, which is
    false.

    Args:
        max_rows_per_fragment: Rows in each file except the last. With 0, see `fragment_sizes`.
    """
    nulls = _Nulls(schema)
    staged: list[StagedFile] = []
    writer: ViewFileWriter | None = None
    sizes = fragment_sizes(max_rows_per_fragment)
    for piece, ends in _pieces(ids, sizes, nulls.batch_rows):
        if writer is None:
            writer = ViewFileWriter(uri, schema, version, PLACEHOLDER_FILE_PREFIX)
        writer.write(nulls.batch(piece))
        if ends:
            staged.append(writer.close())
            writer = None
    if writer is not None:
        staged.append(writer.close())
    return staged


def fragment_sizes(max_rows_per_fragment: int) -> Iterator[int]:
    """Yield the number of rows for each fragment, endlessly: `max_rows_per_fragment`, or growing sizes if that is 0."""
    if max_rows_per_fragment:
        yield from itertools.repeat(max_rows_per_fragment)
    rows = _FIRST_ROWS
    while rows < _MOST_ROWS:
        yield from itertools.repeat(rows, _ALIKE)
        rows *= 2
    yield from itertools.repeat(_MOST_ROWS)


def _pieces(ids: Iterable[Ids], sizes: Iterator[int], most: int) -> Iterator[tuple[Ids, bool]]:
    """Yield pieces of at most `most` ids within one fragment, and whether each ends its fragment."""
    room = next(sizes)
    for piece in ids:
        at = 0
        while at < len(piece):
            taken = piece[at : at + min(room, most)]
            at += len(taken)
            room -= len(taken)
            yield taken, not room
            room = room or next(sizes)


class _Nulls:
    """Creates batches of placeholders with bounded memory for any number of columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema.remove_metadata()
        width = sum(pa.nulls(_SAMPLE, field.type).nbytes for field in schema) / _SAMPLE
        self.batch_rows = int(min(max(_BATCH_BYTES / max(width, 1), _SAMPLE), 1 << 16))

    def batch(self, ids: Ids) -> pa.RecordBatch:
        return pa.record_batch([self._column(field, ids) for field in self._schema], schema=self._schema)

    @staticmethod
    def _column(field: pa.Field, ids: Ids) -> pa.Array:
        if field.name == SOURCE_ROW_ID:
            return pa.array(np.asarray(ids, np.int64), field.type)
        if field.name == IS_SET:
            return pa.array(np.zeros(len(ids), np.bool_), field.type)
        return pa.nulls(len(ids), field.type)


#: Schema metadata with the id of the last request that changed the view's rows. By it, a repeated request finds that
#: its first call has committed.
LAST_REQUEST = "leman::view::last_request"
_TIMEOUT = timedelta(seconds=300)


@dataclass(frozen=True, slots=True)
class Swap:
    """A file that replaces columns of a fragment."""

    fragment_id: int
    file: InstallableFile


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ViewDelta:
    """All changes of one version of a view."""

    #: Files, each with its number of rows, that become new fragments, in this order.
    appended: Sequence[tuple[InstallableFile, int]]
    swapped: Sequence[Swap]
    #: Addresses of rows to delete.
    evicted: Ids
    #: Entries to set in the schema's metadata. Other entries stay.
    metadata: Mapping[str, str]
    #: Whether all earlier rows are deleted.
    replace_all: bool = False


class ViewFiles:
    """Checks the staged files of one view, in many threads.

    Args:
        opened: The open view, if any.

    Raises:
        NotFound: TABLE_NOT_FOUND – the view does not exist.
    """

    def __init__(self, uri: str, opened: lance.LanceDataset | None = None) -> None:
        self._uri = uri
        self._dataset = open_table(uri) if opened is None else opened
        self._types = {field.name: field.type for field in self._dataset.schema}
        self._layouts: dict[tuple[object, ...], LanceDataFile] = {}

    @property
    def data_columns(self) -> frozenset[str]:
        """All columns except the source's row id. A change of values replaces these columns."""
        return frozenset(self._types) - {SOURCE_ROW_ID}

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self._types)

    def prepare(self, staged: StagedFile, columns: Collection[str] | None) -> InstallableFile:
        """Check the content of a staged file and return it as an installable one.

        Args:
            columns: The columns that the file must have, or None to allow any of the data columns.

        Raises:
            FailedPrecondition: TYPE_MISMATCH – the file has other columns, or one of another type than the view.
            LemanError: raised by `column_files.read_verified`.
        """
        content = column_files.read_verified(self._uri, staged)
        names = content.schema.names
        fits = bool(names) and set(names) <= self.data_columns if columns is None else set(names) == set(columns)
        if not fits or len(set(names)) < len(names):
            raise FailedPrecondition(
                "TYPE_MISMATCH", f"{staged.file} holds columns {', '.join(names)}, which do not fit"
            )
        for field in content.schema:
            if field.type != column_files.type_in_file(self._types[field.name]):
                raise FailedPrecondition(
                    "TYPE_MISMATCH",
                    f"Type mismatch for column {field.name}: {staged.file} holds {field.type}, "
                    f"the view has {self._types[field.name]}",
                )
        return InstallableFile(staged.file, self._data_file(staged, tuple(names), content.format))

    def _data_file(self, staged: StagedFile, names: tuple[str, ...], version: tuple[int, int]) -> LanceDataFile:
        layout = self._layouts.get((names, version))
        if layout is None:
            with using_storage(self._uri):
                layout = self._layouts[names, version] = LanceDataFile.create(self._dataset, staged.file)
        return with_layout_of(layout, staged)


def create_view(uri: str, schema: pa.Schema, files: Sequence[StagedFile], request_id: str, job_id: str) -> int:
    """Create a view's table from placeholder files in its data folder, and return its version.

    If an earlier call of this request created the table, call only `complete_creation`.

    Raises:
        CommitConflict: Another writer committed first.
        CommitUnclear: The view may have been created.
        FailedPrecondition: see `commit_outcomes`.
    """
    check_conditional_puts(uri.rpartition("/")[0])
    made = with_request(schema, request_id)
    properties = transactions.view_properties(request_id, job_id, "CreatePlaceholders", len(files))
    with commit_outcomes(uri):
        if files:
            template = _template(made)
            layout = template.get_fragments()[0].metadata.files[0]
            fragments = [FragmentMetadata(0, [with_layout_of(layout, file)], file.physical_rows) for file in files]
            operation = LanceOperation.Overwrite(template.lance_schema, fragments)
            transaction = lance.Transaction(0, operation, str(uuid.uuid4()), properties)
            commit_first(uri, transaction, stable_row_ids=True, timeout=_TIMEOUT)
        else:
            create_empty(uri, made, stable_row_ids=True, version=storage_version(made), properties=properties)
    crash_point("coordinator.view_created")
    return complete_creation(uri)


def find_view(uri: str) -> lance.LanceDataset | None:
    """Return the table at a uri, or None.

    Raises the errors of `open_table`.
    """
    try:
        return open_table(uri)
    except NotFound:
        return None


def is_made_by(dataset: lance.LanceDataset, request_id: str) -> bool:
    """Return whether this request made the latest change of the view's rows, or created the view."""
    return (dataset.schema.metadata or {}).get(LAST_REQUEST.encode()) == request_id.encode()


def complete_creation(uri: str) -> int:
    """Give a view an incarnation if it has none, and return its version.

    Lance cannot do that in one commit with the rows.
    """
    dataset = open_table(uri)
    if not dataset.config().get(INCARNATION_KEY):
        with commit_outcomes(uri):
            dataset.update_config({INCARNATION_KEY: uuid.uuid4().hex})
    return int(dataset.version)


def apply_delta(
    dataset: lance.LanceDataset, change: ViewDelta, operation: str, request_id: str, job_id: str
) -> lance.LanceDataset:
    """Commit a change on top of the version of `dataset`, and return the view with it.

    Raises:
        CommitConflict: Another writer has since committed a change other than one of settings or indexes.
        CommitUnclear: The commit may have been made.
        FailedPrecondition: FRAGMENT_GONE – rows are to be evicted from a missing fragment; else see `commit_outcomes`.
    """
    fragments = {f.fragment_id: f.metadata for f in dataset.get_fragments()}
    highest = max(fragments, default=-1)
    if change.replace_all:
        fragments = {i: _emptied(m, int(dataset.version)) for i, m in fragments.items()}
    else:
        _evict(dataset, fragments, change.evicted)
        for swap in change.swapped:
            fragments[swap.fragment_id] = with_files(fragments[swap.fragment_id], [swap.file.data_file])
    for i, (file, rows) in enumerate(change.appended, start=highest + 1):
        fragments[i] = FragmentMetadata(i, [file.data_file], rows)
    schema = _lance_schema(dataset, {**change.metadata, LAST_REQUEST: request_id})
    merge = LanceOperation.Merge(list(fragments.values()), schema)
    transaction = lance.Transaction(
        int(dataset.version),
        merge,
        str(uuid.uuid4()),
        transactions.view_properties(request_id, job_id, operation, len(change.appended) + len(change.swapped)),
    )
    with commit_outcomes(dataset.uri):
        return counted_table(lance.LanceDataset.commit(dataset, transaction, commit_timeout=_TIMEOUT))


def with_request(schema: pa.Schema, request_id: str) -> pa.Schema:
    """Return the schema with the request id in its metadata, by which a repeated request finds its commit."""
    return _with_metadata(schema, {LAST_REQUEST: request_id})


def _with_metadata(schema: pa.Schema, updates: Mapping[str, str]) -> pa.Schema:
    changed = {key.encode(): value.encode() for key, value in updates.items()}
    return schema.with_metadata({**(schema.metadata or {}), **changed})


def _lance_schema(dataset: lance.LanceDataset, updates: Mapping[str, str]) -> LanceSchema:
    """Return the table's own schema with updated metadata.

    It is built as unpickling would build it, because an Arrow schema lacks details of dictionaries that Lance needs for
    unchanged fragments.
    """
    metadata = _with_metadata(dataset.schema, updates).metadata
    parts: Any = dataset.lance_schema.__reduce__()
    restore, (_, *fields) = parts
    made: LanceSchema = restore(json.dumps({key.decode(): list(value) for key, value in metadata.items()}), *fields)
    return made


def _template(schema: pa.Schema) -> lance.LanceDataset:
    """Create a view of one row in memory, with the field ids and file layout of the real one."""
    row = {
        field.name: pa.array([0 if field.name == SOURCE_ROW_ID else False], field.type)
        if field.name in {SOURCE_ROW_ID, IS_SET}
        else pa.nulls(1, field.type)
        for field in schema
    }
    return lance.write_dataset(
        pa.table(row, schema=schema),
        f"memory://{uuid.uuid4().hex}",
        enable_stable_row_ids=True,
        data_storage_version=storage_version(schema),  # type: ignore[arg-type]
    )


def _evict(dataset: lance.LanceDataset, fragments: dict[int, FragmentMetadata], addresses: Ids) -> None:
    """Delete rows in the metadata of their fragments."""
    if not len(addresses):
        return
    ordered = np.sort(addresses)
    ids, starts = np.unique(fragments_of(ordered), return_index=True)
    for fragment_id, offsets in zip(ids.tolist(), np.split(offsets_of(ordered), starts[1:]), strict=True):
        fragment = dataset.get_fragment(fragment_id)
        if fragment is None:
            raise FailedPrecondition("FRAGMENT_GONE", f"Fragment {fragment_id} has rows to be evicted and is not there")
        left = fragment.delete_rows(offsets.tolist())
        fragments[fragment_id] = _emptied(fragment.metadata, int(dataset.version)) if left is None else left


def _emptied(metadata: FragmentMetadata, version: int) -> FragmentMetadata:
    """Return the fragment with all its rows deleted.

    Lance's operation Merge must list every fragment. It drops fragments whose rows are all deleted without reading
    their deletion file, which does not exist here.
    """
    nothing_left = {
        "read_version": version,
        "id": 0,
        "file_type": "bitmap",
        "num_deleted_rows": metadata.physical_rows,
        "base_id": None,
    }
    deletions: DeletionFile = DeletionFile.from_json(json.dumps(nothing_left))  # type: ignore[misc,call-arg]
    return dataclasses.replace(metadata, deletion_file=deletions)
