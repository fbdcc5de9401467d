"""The Lance side of making a table, and of adding and deleting rows: what is there, and one commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation
from lance.fragment import DataFile as LanceDataFile
from lance.fragment import FragmentMetadata

from leman_coordinator.lance_io.commit_outcomes import commit_outcomes
from leman_coordinator.lance_io.first_version import first_version
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions import blobs
from leman_core.model.errors import Aborted, AlreadyExists, FailedPrecondition, NotFound, Unavailable
from leman_core.model.plan import StagedFile
from leman_core.model.row_address import addresses_of, fragments_of, offsets_of
from leman_core.model.table import TableField
from leman_core.storage import commit_history
from leman_core.storage.conditional_puts import check_store
from leman_core.storage.dialect import Dialect
from leman_core.storage.error_translation import using_storage
from leman_core.storage.scan import judged, may_read_large, offsets_matching
from leman_core.storage.table_creation import create_empty
from leman_core.storage.tables import INCARNATION_KEY, LanceTables, open_table
from leman_core.storage.transactions import Transactions

#: Config of a table that was made by CreateTable: by which request, as md5 of its id and what tells its body apart.
MADE_BY_KEY = "leman.created_by"
_TIMEOUT = timedelta(seconds=300)
#: Row addresses that are held at once; of more fragments Lance evaluates the filter once more.
_MOST_ADDRESSES = 1 << 24
_SCAN_ROWS = 1 << 16
_MAPS_FORMAT = "2.2"


def made_by(uri: str) -> tuple[str, str] | None:
    """Return by which request a table was made: its id and body; empty texts: not by CreateTable.

    None where there is no table.

    Raises:
        LemanError: what else `open_table` raises.
    """
    try:
        dataset = open_table(uri)
    except NotFound:
        return None
    stored = str(dataset.config().get(MADE_BY_KEY, ""))
    if stored:
        request_id, _, body = stored.rpartition(" ")
        return request_id, body
    try:
        record = commit_history.read_record(Transactions(dataset.uri), 1)
    except LookupError:
        return "", ""
    return ("", "") if record is None else (record.request_ids[0], record.body)


def create_table(uri: str, schema: pa.Schema, properties: Mapping[str, str], *, stable_row_ids: bool) -> None:
    """Make a table without rows.

    Raises:
        CommitConflict: Another writer came between.
        CommitUnclear: The table may have been made.
        FailedPrecondition: as `commit_outcomes`.
    """
    check_store(uri.rpartition("/")[0])
    with commit_outcomes(uri):
        create_empty(uri, schema, stable_row_ids=stable_row_ids, version=format_for(schema), properties=properties)


def complete_creation(uri: str, request_id: str, body: str) -> int:
    """Give a new table its incarnation, and note which request made it; return the version that says so.

    Lance cannot do that in one commit with the table.

    Raises:
        CommitConflict: Another writer came between.
        CommitUnclear: It may have been done.
        LemanError: what `open_table` and `commit_outcomes` raise.
    """
    dataset = open_table(uri)
    if MADE_BY_KEY not in dataset.config():
        with commit_outcomes(uri):
            dataset.update_config({INCARNATION_KEY: uuid.uuid4().hex, MADE_BY_KEY: f"{request_id} {body}"})
        return int(dataset.version)
    return first_version(uri, int(dataset.version), lambda past: MADE_BY_KEY in past.config())


def exists(uri: str) -> AlreadyExists:
    """Return the error (TABLE_EXISTS) where a table or view cannot be created."""
    return AlreadyExists(
        "TABLE_EXISTS", f"There is a table or view at {uri} already: choose another name, or drop it", uri=uri
    )


def format_for(schema: pa.Schema) -> str | None:
    """Return the file format that a table with these columns needs; None: Lance's own choice."""
    if any((field.metadata or {}).get(blobs.BLOB_KEY) == b"true" for field in schema):
        return "{}.{}".format(*blobs.VIEW_FORMAT)
    needs_latest = any(blobs.is_blob(field) or _has_map(field.type) for field in schema)
    return _MAPS_FORMAT if needs_latest else None


def _has_map(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_map(kind.storage_type)
    nested = pa.types.is_nested(kind) and any(_has_map(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_map(kind) or nested)


def check_files(uri: str, files: Iterable[StagedFile]) -> None:
    """Check that staged files are still there: a garbage collection that was told that nobody writes removes them.

    Raises:
        Aborted: FILES_GONE – some are not.
        LemanError: what `LanceTables.existing_data_files` raises.
    """
    names = {file.file for file in files}
    gone = names - LanceTables().existing_data_files(uri, names)
    if gone:
        raise Aborted("FILES_GONE", f"{len(gone)} files of the new rows were removed meanwhile: send the rows again")


def append(
    table: TableHandle, files: Sequence[StagedFile], columns: Sequence[TableField], properties: Mapping[str, str]
) -> int:
    """Add a fragment for each file, and return the version of the table with them.

    Raises:
        CommitConflict: Another writer came between.
        CommitUnclear: The commit may have been made.
        FailedPrecondition: TYPE_MISMATCH – a file does not hold the columns; else as `commit_outcomes`.
    """
    dataset = table.dataset
    fields = {i for column in columns for i in column.field_ids}
    fragments = []
    for file in files:
        with using_storage(dataset.uri):
            layout = LanceDataFile.create(dataset, file.file)
        if not layout.fields or not set(layout.fields) <= fields:
            raise FailedPrecondition("TYPE_MISMATCH", f"{file.file} does not hold the columns of {dataset.uri}")
        fragments.append(FragmentMetadata(0, [layout], file.physical_rows))
    return table.commit(LanceOperation.Append(fragments), properties)


@dataclass(slots=True, eq=False)
class Matching:
    """The live rows of one version of a table that a filter matches."""

    rows: int = 0
    #: Physical offsets by fragment; None: too many to be held.
    offsets: dict[int, list[npt.NDArray[np.int64]] | None] = field(default_factory=dict)
    _held: int = 0

    @property
    def fragments(self) -> int:
        """Count the fragments that have such rows."""
        return len(self.offsets)

    def add(self, addresses: npt.NDArray[np.int64]) -> None:
        """Note more row addresses."""
        self.rows += len(addresses)
        fragments, offsets = fragments_of(addresses), offsets_of(addresses)
        for fragment_id in np.unique(fragments).tolist():
            part = offsets[fragments == fragment_id]
            known = self.offsets.setdefault(fragment_id, [])
            self._held += len(part)
            if known is None or self._held > _MOST_ADDRESSES:
                self.offsets[fragment_id] = None
            else:
                known.append(part)


def matching(dataset: lance.LanceDataset, where: str) -> Matching:
    """Find the live rows for which a filter is true that was checked, maybe on another version.

    Raises:
        FailedPrecondition: FILTER_FAILED – it cannot be evaluated for a row.
        InvalidArgument: INVALID_FILTER – it does not fit this version.
        LemanError: what `storage_errors.unusable` gives.
    """
    found = Matching()
    try:
        with using_storage(dataset.uri):
            spoken = Dialect(dataset).lance(where)
            fragments = dataset.get_fragments() if may_read_large(dataset, spoken) else []
            large = {f.fragment_id: offsets_matching(dataset, f, spoken) for f in fragments}
            left = [fragment for fragment in fragments if large[fragment.fragment_id] is None]
            for fragment_id, offsets in large.items():
                if offsets is not None and len(offsets):
                    found.add(addresses_of(fragment_id, offsets))
            if left or not fragments:  # an index is used only where no fragments are named
                some = left if len(left) < len(fragments) else None
                asked: dict[str, Any] = {"filter": spoken, "with_row_address": True, "batch_size": _SCAN_ROWS}
                scanner = dataset.scanner(columns=[], fragments=some, **asked)
                for batch in judged(iter(scanner.to_batches()), where):
                    found.add(batch.column("_rowaddr").to_numpy().astype(np.int64))
    except Unavailable:
        LanceTables().check_filter(dataset.uri, where, int(dataset.version))
        raise
    return found


def delete(table: TableHandle, found: Matching, where: str, properties: Mapping[str, str]) -> int:
    """Delete rows of the version that the handle is at, and return the version of the table without them.

    Raises:
        CommitConflict: Another writer came between.
        CommitUnclear: The commit may have been made.
        FailedPrecondition: as `commit_outcomes`.
        LemanError: what `storage_errors.unusable` gives.
    """
    dataset = table.dataset
    changed, emptied = [], []
    with using_storage(dataset.uri):
        spoken = Dialect(dataset).lance(where)
        for fragment_id, offsets in found.offsets.items():
            fragment = dataset.get_fragment(fragment_id)
            if fragment is None:
                raise RuntimeError(f"fragment {fragment_id} is not in the version that was scanned")
            left = fragment.delete(spoken) if offsets is None else fragment.delete_rows(np.concatenate(offsets))
            if left is None:
                emptied.append(fragment_id)
            else:
                changed.append(left)
    return table.commit(LanceOperation.Delete(changed, emptied, spoken), properties)
