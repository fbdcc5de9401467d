"""The Lance side of commits to views: creation, and one version with everything that a refresh changed."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
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

from commit_coordinator.lance_io.table_handle import InstallableFile, commit_outcomes, laid_out_as
from core.crash_points import crash_point
from core.domain.plan import StagedFile
from core.domain.row_address import fragments_of, offsets_of
from core.domain.view import IS_SET, SOURCE_ROW_ID
from core.errors import AlreadyExists, FailedPrecondition, NotFound
from core.lance_io import column_files, commit_history
from core.lance_io.boundary import using_storage
from core.lance_io.tables import INCARNATION_KEY, open_table
from core.lance_io.views.files import storage_version
from core.views.rows import Ids

#: Schema metadata that says which request made a view's rows what they are: a lost answer is found by it.
LAST_REQUEST = "leman::view::last_request"
_TIMEOUT = timedelta(seconds=300)
#: Lance's mark for a field of a file that another file replaces.
_REPLACED = -2


@dataclass(frozen=True, slots=True)
class Swap:
    """A file that takes the place of columns in a fragment."""

    fragment_id: int
    file: InstallableFile


@dataclass(frozen=True, slots=True, eq=False)
class ViewDelta:
    """One version of a view. Files of `appended` with their rows become new fragments, in order; `evicted` are row
    addresses; with `replace_all` nothing of before stays. `metadata`: of the schema, other keys stay."""

    appended: Sequence[tuple[InstallableFile, int]]
    swapped: Sequence[Swap]
    evicted: Ids
    metadata: Mapping[str, str]
    replace_all: bool = False


class ViewFiles:
    """Checks staged files of one view. For many threads at once; raises NotFound (TABLE_NOT_FOUND)."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._dataset = open_table(uri)
        self._types = {field.name: field.type for field in self._dataset.schema}
        self._layouts: dict[tuple[object, ...], LanceDataFile] = {}

    @property
    def data_columns(self) -> frozenset[str]:
        """All but the source's row id: those that are replaced when values change."""
        return frozenset(self._types) - {SOURCE_ROW_ID}

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self._types)

    def prepare(self, staged: StagedFile, columns: Collection[str] | None) -> InstallableFile:
        """The file, after its content was checked: it has exactly these columns; None: some of the data columns.

        Raises what `column_files.verify` raises.
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
        return laid_out_as(layout, staged)


def create_view(uri: str, schema: pa.Schema, files: Sequence[StagedFile], request_id: str, job_id: str) -> int:
    """Makes the table of a view from placeholder files that lie in its data folder; version after it.

    A view that this very request made is completed, not made again. Raises AlreadyExists (TABLE_EXISTS), and
    CommitConflict and CommitUnclear.
    """
    made = with_request(schema, request_id)
    properties = commit_history.view_properties(request_id, job_id, "CreatePlaceholders", len(files))
    with commit_outcomes(uri):
        if files:
            template = _template(made)
            layout = template.get_fragments()[0].metadata.files[0]
            fragments = [FragmentMetadata(0, [laid_out_as(layout, file)], file.physical_rows) for file in files]
            operation = LanceOperation.Overwrite(template.lance_schema, fragments)
            transaction = lance.Transaction(0, operation, str(uuid.uuid4()), properties)
            lance.LanceDataset.commit(uri, transaction, enable_stable_row_ids=True, commit_timeout=_TIMEOUT)
        else:
            lance.write_dataset(
                made.empty_table(),
                uri,
                mode="create",
                enable_stable_row_ids=True,
                data_storage_version=storage_version(made),  # type: ignore[arg-type]
                transaction_properties=properties,
            )
    crash_point("coordinator.view_created")
    return complete_creation(uri)


def find(uri: str) -> lance.LanceDataset | None:
    """The table at a uri, if there is one. Raises what `open_table` raises but for that."""
    try:
        return open_table(uri)
    except NotFound:
        return None


def is_made_by(dataset: lance.LanceDataset, request_id: str) -> bool:
    """Whether the view's rows were laid or changed last by this request."""
    return (dataset.schema.metadata or {}).get(LAST_REQUEST.encode()) == request_id.encode()


def complete_creation(uri: str) -> int:
    """Gives a view its incarnation where it has none yet: Lance cannot do that together with the rows."""
    dataset = open_table(uri)
    if not dataset.config().get(INCARNATION_KEY):
        with commit_outcomes(uri):
            dataset.update_config({INCARNATION_KEY: uuid.uuid4().hex})
    return int(dataset.version)


def exists(uri: str) -> AlreadyExists:
    """The error of a view that cannot be made."""
    return AlreadyExists("TABLE_EXISTS", f"There is a table at {uri} already: choose another name, or drop it", uri=uri)


def apply_delta(dataset: lance.LanceDataset, change: ViewDelta, operation: str, request_id: str, job_id: str) -> int:
    """The view's version with the change, on top of that of `dataset`. Nobody else may have committed since, but for
    settings and indexes. Raises CommitConflict and CommitUnclear."""
    fragments = {f.fragment_id: f.metadata for f in dataset.get_fragments()}
    highest = max(fragments, default=-1)
    if change.replace_all:
        fragments = {i: _emptied(m, int(dataset.version)) for i, m in fragments.items()}
    else:
        _evict(dataset, fragments, change.evicted)
        for swap in change.swapped:
            fragments[swap.fragment_id] = _swapped(fragments[swap.fragment_id], swap.file.data_file)
    for i, (file, rows) in enumerate(change.appended, start=highest + 1):
        fragments[i] = FragmentMetadata(i, [file.data_file], rows)
    schema = _lance_schema(dataset, {**change.metadata, LAST_REQUEST: request_id})
    merge = LanceOperation.Merge(list(fragments.values()), schema)
    transaction = lance.Transaction(
        int(dataset.version),
        merge,
        str(uuid.uuid4()),
        commit_history.view_properties(request_id, job_id, operation, len(change.appended) + len(change.swapped)),
    )
    with commit_outcomes(dataset.uri):
        return int(lance.LanceDataset.commit(dataset, transaction, commit_timeout=_TIMEOUT).version)


def with_request(schema: pa.Schema, request_id: str) -> pa.Schema:
    """The schema with the note by which a lost answer is found."""
    return _with_metadata(schema, {LAST_REQUEST: request_id})


def _with_metadata(schema: pa.Schema, updates: Mapping[str, str]) -> pa.Schema:
    changed = {key.encode(): value.encode() for key, value in updates.items()}
    return schema.with_metadata({**(schema.metadata or {}), **changed})


def _lance_schema(dataset: lance.LanceDataset, updates: Mapping[str, str]) -> LanceSchema:
    """The table's own schema with other metadata, made as pickle would: an Arrow schema says less of dictionaries than
    Lance has to hear about fragments that stay."""
    metadata = _with_metadata(dataset.schema, updates).metadata
    parts: Any = dataset.lance_schema.__reduce__()
    restore, (_, *fields) = parts
    made: LanceSchema = restore(json.dumps({key.decode(): list(value) for key, value in metadata.items()}), *fields)
    return made


def _template(schema: pa.Schema) -> lance.LanceDataset:
    """A view of one row in memory: its field ids and file layout are those of the real one."""
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
    """Deletes rows in the metadata of their fragments."""
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
    """The fragment with all its rows deleted. A Merge must name every fragment, and drops such ones without ever
    reading their deletion file: there is none."""
    nothing_left = {
        "read_version": version,
        "id": 0,
        "file_type": "bitmap",
        "num_deleted_rows": metadata.physical_rows,
        "base_id": None,
    }
    deletions: DeletionFile = DeletionFile.from_json(json.dumps(nothing_left))  # type: ignore[misc,call-arg]
    return dataclasses.replace(metadata, deletion_file=deletions)


def _swapped(metadata: FragmentMetadata, new: LanceDataFile) -> FragmentMetadata:
    """The fragment with the new file's fields taken out of its other files; a file with no field left goes."""
    files = []
    for file in metadata.files:
        fields = [_REPLACED if i in new.fields else i for i in file.fields]
        if any(i != _REPLACED for i in fields):
            files.append(
                LanceDataFile(
                    str(file.path),
                    fields,
                    file.column_indices,
                    file.file_major_version,
                    file.file_minor_version,
                    file.file_size_bytes,
                )
            )
    return dataclasses.replace(metadata, files=[*files, new])
