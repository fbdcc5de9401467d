"""Create a table, add and delete rows, and remove rows that two coordinators added for the same request.

A repeated request that the process no longer remembers is answered from the table version that its first call made.
Lance accepts concurrent appends, so if a caller retries, two coordinators may commit the same request at the same time.
Each of them then finds the duplicate among the commits between its read and its own commit. If it crashes before that,
the next change of the table's rows finds the duplicate (decision 46). The first commit counts, and the rows of the
other one are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog
from lance import LanceOperation
from lance.fragment import DataFile as LanceDataFile
from lance.fragment import FragmentMetadata

from leman_coordinator.lance_io.table_handle import TableHandle, commit_outcomes
from leman_core.functions import arrow_types
from leman_core.model.plan import StagedFile
from leman_core.model.row_positions import addresses_of, fragments_of, offsets_of
from leman_core.model.service_errors import Aborted, AlreadyExists, FailedPrecondition, NotFound, Unavailable
from leman_core.model.table import TableField
from leman_core.storage import transactions
from leman_core.storage.error_translation import using_storage
from leman_core.storage.lance_sql import Dialect
from leman_core.storage.lance_tables import INCARNATION_KEY, LanceTables, open_table
from leman_core.storage.scan import checked_batches, may_read_large, offsets_matching
from leman_core.storage.table_creation import check_conditional_puts, create_empty
from leman_core.storage.transactions import CommitRecord, Kind, Transaction, Transactions


def first_version(uri: str, latest: int, is_so: Callable[[lance.LanceDataset], bool]) -> int:
    """Return the first version from which on a table has a property.

    The search reads few versions. It treats a deleted version as one without the property, so it may return the oldest
    existing version.

    Args:
        latest: The table's latest version, which has the property.
        is_so: Whether a version has the property.

    Raises:
        LemanError: see `table_error`, except for a missing version.
    """
    tables = LanceTables()
    before, found = 0, latest
    while found - before > 1:
        middle = (before + found) // 2
        try:
            so = is_so(tables.dataset(uri, middle))
        except NotFound:
            so = False
        before, found = (before, middle) if so else (middle, found)
    return found


#: Config of a table that CreateTable created: md5 of the request id, and the digest of the request.
MADE_BY_KEY = "leman.created_by"
_TIMEOUT = timedelta(seconds=300)
#: The maximum number of row addresses in memory. For fragments beyond it, Lance evaluates the filter again.
_MOST_ADDRESSES = 1 << 24
_SCAN_ROWS = 1 << 16
_MAPS_FORMAT = "2.2"


def made_by(uri: str) -> tuple[str, str] | None:
    """Return the request that created a table, as its id and body, or None if the table does not exist.

    Both are "" if the table was not created by CreateTable.

    Raises the errors of `open_table`.
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
        record = transactions.read_commit_record(Transactions(dataset.uri), 1)
    except LookupError:
        return "", ""
    return ("", "") if record is None else (record.request_ids[0], record.body)


def create_table(uri: str, schema: pa.Schema, properties: Mapping[str, str], *, stable_row_ids: bool) -> None:
    """Create a table without rows.

    Raises:
        CommitConflict: Another writer committed first.
        CommitUnclear: The table may have been created.
        FailedPrecondition: see `commit_outcomes`.
    """
    check_conditional_puts(uri.rpartition("/")[0])
    with commit_outcomes(uri):
        create_empty(uri, schema, stable_row_ids=stable_row_ids, version=format_for(schema), properties=properties)


def complete_creation(uri: str, request_id: str, body: str) -> int:
    """Give a new table its incarnation, record which request created it, and return the version with both.

    Lance cannot do this in the commit that creates the table.

    Raises:
        CommitConflict: Another writer committed first.
        CommitUnclear: The commit may have been made.
        LemanError: raised by `open_table` and `commit_outcomes`.
    """
    dataset = open_table(uri)
    if MADE_BY_KEY not in dataset.config():
        with commit_outcomes(uri):
            dataset.update_config({INCARNATION_KEY: uuid.uuid4().hex, MADE_BY_KEY: f"{request_id} {body}"})
        return int(dataset.version)
    return first_version(uri, int(dataset.version), lambda past: MADE_BY_KEY in past.config())


def table_exists_error(uri: str) -> AlreadyExists:
    """Return the error (TABLE_EXISTS) for a table or view whose name is taken."""
    return AlreadyExists(
        "TABLE_EXISTS", f"There is a table or view at {uri} already: choose another name, or drop it", uri=uri
    )


def format_for(schema: pa.Schema) -> str | None:
    """Return the file format that a table with these columns needs, or None for Lance's default."""
    if any((field.metadata or {}).get(arrow_types.BLOB_KEY) == b"true" for field in schema):
        return "{}.{}".format(*arrow_types.VIEW_FORMAT)
    needs_latest = any(arrow_types.is_blob(field) or _has_map(field.type) for field in schema)
    return _MAPS_FORMAT if needs_latest else None


def _has_map(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_map(kind.storage_type)
    nested = pa.types.is_nested(kind) and any(_has_map(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_map(kind) or nested)


def check_files(uri: str, files: Iterable[StagedFile]) -> None:
    """Check that staged files still exist. A garbage collection with age 0 may have removed them.

    Raises:
        Aborted: FILES_GONE – some are missing.
        LemanError: raised by `LanceTables.existing_data_files`.
    """
    names = {file.file for file in files}
    gone = names - LanceTables().existing_data_files(uri, names)
    if gone:
        raise Aborted("FILES_GONE", f"{len(gone)} files of the new rows were removed meanwhile: send the rows again")


def append_files(
    table: TableHandle, files: Sequence[StagedFile], columns: Sequence[TableField], properties: Mapping[str, str]
) -> int:
    """Add a fragment for each file, and return the version of the table with them.

    Raises:
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        FailedPrecondition: TYPE_MISMATCH – a file lacks the columns; else see `commit_outcomes`.
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
    #: Physical offsets by fragment, or None if there are too many to keep.
    offsets: dict[int, list[npt.NDArray[np.int64]] | None] = field(default_factory=dict)
    _held: int = 0

    @property
    def fragments(self) -> int:
        """Return the number of fragments with such rows."""
        return len(self.offsets)

    def add(self, addresses: npt.NDArray[np.int64]) -> None:
        """Add row addresses."""
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


def matching_rows(dataset: lance.LanceDataset, where: str) -> Matching:
    """Find the live rows that match a filter, which may have been checked on another version.

    Raises:
        FailedPrecondition: FILTER_FAILED – it cannot be evaluated for a row.
        InvalidArgument: INVALID_FILTER – it does not fit this version.
        LemanError: see `storage_unusable`.
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
            if left or not fragments:  # Lance uses indexes only if no fragments are named
                some = left if len(left) < len(fragments) else None
                asked: dict[str, Any] = {"filter": spoken, "with_row_address": True, "batch_size": _SCAN_ROWS}
                scanner = dataset.scanner(columns=[], fragments=some, **asked)
                for batch in checked_batches(iter(scanner.to_batches()), where):
                    found.add(batch.column("_rowaddr").to_numpy().astype(np.int64))
    except Unavailable:
        LanceTables().check_filter(dataset.uri, where, int(dataset.version))
        raise
    return found


def delete_rows(table: TableHandle, found: Matching, where: str, properties: Mapping[str, str]) -> int:
    """Delete rows of the handle's version, and return the version of the table without them.

    Raises:
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        FailedPrecondition: see `commit_outcomes`.
        LemanError: see `storage_unusable`.
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


_log = structlog.get_logger(__name__)

APPEND, MERGE = "AppendRows", "MergeRows"
#: Transaction property of a commit that removes duplicate rows: the number of the version that added them.
TAKES_BACK = "leman.takes_back"


def duplicate_commits(records: Iterable[CommitRecord]) -> list[CommitRecord]:
    """Return the commits in a table's history that added rows for requests that were already committed.

    Only additions can be committed twice. Two commits of any other change would change the same fragments, and conflict
    in Lance.
    """
    first: set[str] = set()
    found = []
    for record in sorted(records, key=lambda record: record.version):
        if record.operation == APPEND or (record.operation == MERGE and not any(record.merged[1:])):
            if first.issuperset(record.request_ids):
                found.append(record)
            first.update(record.request_ids)
    return found


def take_back_all(table: TableHandle, records: Iterable[CommitRecord]) -> frozenset[str]:
    """Remove the rows that duplicate commits added, and return the names of their files.

    A handle examines each version once. Duplicate rows that a compaction has merged with other rows meanwhile stay.

    Raises:
        CommitConflict, CommitUnclear: see `commit_outcomes`.
        FailedPrecondition: see `commit_outcomes`.
        LemanError: see `storage_unusable`.
    """
    files: frozenset[str] = frozenset()
    for twin in duplicate_commits(records):
        if twin.version not in table.twins_settled:
            files |= _take_back(table, twin)
            table.twins_settled.add(twin.version)
    return files


def added_files(table: TableHandle, version: int) -> frozenset[str]:
    """Return the names of the data files with the rows that a version added.

    Raises the errors of `Transactions.read_or_tell`.
    """
    transaction = Transactions(table.dataset.uri).read_or_tell(version)
    return frozenset(file.path for fragment in _new_fragments(transaction) for file in fragment.files)


def _take_back(table: TableHandle, twin: CommitRecord) -> frozenset[str]:
    files = added_files(table, twin.version)
    there = [f.fragment_id for f in table.dataset.get_fragments() if any(d._path in files for d in f.metadata.files)]
    if there:
        operation = LanceOperation.Delete([], there, "false")
        version = table.commit(operation, {TAKES_BACK: str(twin.version)})
        _log.warning(
            "rows that two coordinators added for one request are taken back",
            uri=table.dataset.uri,
            added=twin.version,
            taken_back=version,
        )
    return files


def _new_fragments(transaction: Transaction) -> Iterable[Any]:
    match transaction.kind:
        case Kind.APPEND:
            return transaction.operation.fragments  # type: ignore[no-any-return]
        case Kind.UPDATE:
            return transaction.operation.new_fragments  # type: ignore[no-any-return]
    return ()
