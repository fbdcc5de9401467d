"""The transactions that made a table's versions, read from Lance's protobuf, and Leman's properties in them.

Leman does not use Lance's own call: it raises TypeError for a compaction of a table with an index, and does not return
the name of an operation that has no Python class.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, BinaryIO

import lance
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from leman_core.model.service_errors import NotFound
from leman_core.model.table import DataFile, Fragment
from leman_core.storage import manifest
from leman_core.storage.error_translation import using_storage
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import in_object_store
from leman_core.storage.manifest import FRAGMENTS, Layout, message_class
from leman_core.storage.manifest import Kind as _Kind
from leman_core.storage.opening import open_latest

_ABSENT = (FileNotFoundError, NotADirectoryError)
#: Bytes to read from the end of a manifest's file at once. Only the files of tables with many fragments are larger.
_TAIL = 1 << 16


class Kind(StrEnum):
    """The operation of a transaction, in Lance's words.

    UNKNOWN stands for an operation that is not in this list, an operation with fields that this reader does not know,
    and a transaction that is no longer stored.
    """

    APPEND = "Append"
    DELETE = "Delete"
    OVERWRITE = "Overwrite"
    CREATE_INDEX = "CreateIndex"
    REWRITE = "Rewrite"
    MERGE = "Merge"
    RESTORE = "Restore"
    RESERVE_FRAGMENTS = "ReserveFragments"
    UPDATE = "Update"
    PROJECT = "Project"
    UPDATE_CONFIG = "UpdateConfig"
    DATA_REPLACEMENT = "DataReplacement"
    UPDATE_MEM_WAL_STATE = "UpdateMemWalState"
    CLONE = "Clone"
    UPDATE_BASES = "UpdateBases"
    DATA_OVERLAY = "DataOverlay"
    APPEND_FRAGMENT_REUSE = "AppendFragmentReuseTransitions"
    UNKNOWN = "Unknown"


#: Kinds that change no row, value or data file.
HOUSEKEEPING = frozenset(
    {
        Kind.CREATE_INDEX,
        Kind.RESERVE_FRAGMENTS,
        Kind.UPDATE_CONFIG,
        Kind.UPDATE_MEM_WAL_STATE,
        Kind.UPDATE_BASES,
        Kind.APPEND_FRAGMENT_REUSE,
    }
)
#: A property of Leman's transactions: the operation, where it is not the one that Lance states.
OPERATION = "leman.operation"
#: A commit that replaced the files of several columns, like a DataReplacement of each column. Lance states an Update.
REPLACE_COLUMNS = "ReplaceColumns"
#: Operations by number in Lance's transaction.proto.
_NUMBERS = dict(zip(range(100, 117), (kind for kind in Kind if kind is not Kind.UNKNOWN), strict=True))
_FRAGMENTS = (1, _Kind.TYPE_MESSAGE, "DataFragment")
#: The protobuf fields that this module reads.
_LAYOUT: Layout = {
    **FRAGMENTS,
    "DataFragment": [*FRAGMENTS["DataFragment"], ("inline_row_ids", 5, _Kind.TYPE_BYTES, "")],
    "Append": [("fragments", *_FRAGMENTS)],
    "Overwrite": [("fragments", *_FRAGMENTS)],
    "Restore": [("version", 1, _Kind.TYPE_UINT64, "")],
    "RewriteGroup": [("old_fragments", *_FRAGMENTS), ("new_fragments", 2, _Kind.TYPE_MESSAGE, "DataFragment")],
    "Rewrite": [
        ("old_fragments", *_FRAGMENTS),
        ("new_fragments", 2, _Kind.TYPE_MESSAGE, "DataFragment"),
        ("groups", 3, _Kind.TYPE_MESSAGE, "RewriteGroup"),
        ("rewritten_indices", 4, _Kind.TYPE_BYTES, ""),
    ],
    "Update": [
        ("removed_fragment_ids", 1, _Kind.TYPE_UINT64, ""),
        ("updated_fragments", 2, _Kind.TYPE_MESSAGE, "DataFragment"),
        ("new_fragments", 3, _Kind.TYPE_MESSAGE, "DataFragment"),
        ("fields_modified", 4, _Kind.TYPE_UINT32, ""),
        ("updated_fragment_offsets", 9, _Kind.TYPE_BYTES, ""),
        ("updated_fragment_offset_bitmaps", 10, _Kind.TYPE_BYTES, ""),
    ],
    "DataReplacementGroup": [
        ("fragment_id", 1, _Kind.TYPE_UINT64, ""),
        ("new_file", 2, _Kind.TYPE_MESSAGE, "DataFile"),
    ],
    "DataReplacement": [("replacements", 1, _Kind.TYPE_MESSAGE, "DataReplacementGroup")],
    "Property": [("key", 1, _Kind.TYPE_STRING, ""), ("value", 2, _Kind.TYPE_STRING, "")],
    "Transaction": [
        ("uuid", 2, _Kind.TYPE_STRING, ""),
        ("properties", 4, _Kind.TYPE_MESSAGE, "Property"),
        *((kind.name.lower(), number, _Kind.TYPE_BYTES, "") for number, kind in _NUMBERS.items()),
    ],
    # where a version's transaction is: a file, or a position in the manifest's own file (`older_section`: written by
    # older releases of Lance)
    "Manifest": [
        ("transaction_file", 12, _Kind.TYPE_STRING, ""),
        ("older_section", 21, _Kind.TYPE_UINT64, ""),
        ("section", 23, _Kind.TYPE_UINT64, ""),
    ],
}
_REPEATED = {
    *("fragments", "old_fragments", "new_fragments", "files", "groups", "rewritten_indices", "replacements"),
    *("removed_fragment_ids", "updated_fragments", "fields_modified"),
    *("properties", "updated_fragment_offsets", "updated_fragment_offset_bitmaps"),
}


class VersionGone(LookupError):
    """The version's manifest was cleaned up."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The transaction that made one version."""

    version: int
    kind: Kind
    #: The stored properties. They are known even if the operation is UNKNOWN, unless the transaction is not stored.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: The operation's message with the fields of `_LAYOUT`; None for kinds that have no entry there.
    operation: Any = field(default=None, repr=False)


class Transactions:
    """A reader of one table's transactions that does not use Lance. Not thread-safe."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def read(self, version: int) -> Transaction:
        """Return the transaction that made a version.

        Raises:
            VersionGone: The version's manifest was cleaned up.
            OSError: The storage cannot be used.
        """
        with self._manifest(version) as file:
            try:
                return self._beside(version, file) or self._named(version, file)
            except (ValueError, DecodeError):
                return Transaction(version, Kind.UNKNOWN)

    def read_or_tell(self, version: int) -> Transaction:
        """Return what `read` does, but raise errors of the storage as LemanError.

        Raises:
            VersionGone: The version's manifest was cleaned up.
            LemanError: What `storage_unusable` gives.
        """
        with using_storage(self._uri):
            return self.read(version)

    def _beside(self, version: int, file: BinaryIO) -> Transaction | None:
        """Return the transaction that precedes the manifest in the manifest's own file; None if there is none.

        Lance writes it there, so usually the end of a large manifest file is all that must be read.
        """
        begin = max(0, file.seek(0, os.SEEK_END) - _TAIL)
        file.seek(begin)
        content = file.read()
        position = manifest.position_in(content)
        if begin:
            file.seek(0)
            content = file.read(position)
        return _decoded(version, manifest.last_block(content[:position]), "")

    def _named(self, version: int, file: BinaryIO) -> Transaction:
        """Return the transaction at the file or position that the manifest states; UNKNOWN if there is none."""
        file.seek(0)
        content = file.read()
        where = _message("Manifest").FromString(manifest.message_in(content))
        name = where.transaction_file
        for place in ("section", "older_section"):
            if where.HasField(place):
                found = _decoded(version, manifest.block_at(content, getattr(where, place)), name)
                if found is not None:
                    return found
        found = _decoded(version, self._stored(name), name) if name else None
        return found or Transaction(version, Kind.UNKNOWN)

    def _manifest(self, version: int) -> BinaryIO:
        for name in (manifest.manifest_file_name(version), f"{version}.manifest"):
            try:
                return self._open(f"_versions/{name}")
            except _ABSENT:
                continue
        raise VersionGone(version)

    def _stored(self, name: str) -> bytes:
        try:
            with self._open(f"_transactions/{name}") as file:
                return file.read()
        except _ABSENT:
            return b""

    def _open(self, path: str) -> BinaryIO:
        if not in_object_store(self._uri):
            return Path(self._uri, path).open("rb")
        filesystem, root = self._remote
        opened: BinaryIO = filesystem.open_input_file(f"{root}/{path}")
        return opened

    @cached_property
    def _remote(self) -> Any:
        return filesystem_of(self._uri)


def fragments_of(messages: Iterable[Any]) -> tuple[Fragment, ...]:
    """Convert the fragments in a transaction's message."""
    columns = manifest.FieldIds()
    return tuple(
        Fragment(
            raw.id,
            raw.physical_rows,
            raw.deletion_file.num_deleted_rows,
            tuple([DataFile(file.path, columns[file.fields]) for file in raw.files]),
            f"{raw.deletion_file.id}-{raw.deletion_file.read_version}" if raw.HasField("deletion_file") else "",
        )
        for raw in messages
    )


def _decoded(version: int, stored: bytes, file: str) -> Transaction | None:
    """Decode a transaction. Return None if the bytes are not one, or not the one whose file name the manifest has."""
    try:
        transaction = _message("Transaction").FromString(stored)
    except DecodeError:
        return None
    if not transaction.uuid or (file and transaction.uuid not in file):
        return None
    properties = {entry.key: entry.value for entry in transaction.properties}
    name = next((declared.name for declared, _ in transaction.ListFields() if declared.number in _NUMBERS), "")
    kind = Kind[name.upper()] if name else Kind.UNKNOWN
    if kind is Kind.UNKNOWN or kind.value not in _LAYOUT:
        return Transaction(version, kind, properties)
    try:
        operation = _message(kind.value).FromString(getattr(transaction, name))
    except DecodeError:
        return Transaction(version, Kind.UNKNOWN, properties)
    if kind is Kind.REWRITE and not _is_understood(operation):
        return Transaction(version, Kind.UNKNOWN, properties)
    if kind is Kind.UPDATE and properties.get(OPERATION) == REPLACE_COLUMNS:
        return Transaction(version, Kind.DATA_REPLACEMENT, properties, _replacements(operation))
    return Transaction(version, kind, properties, operation)


def _replacements(update: Any) -> Any:
    """Convert an update of several columns to the equivalent message of data replacements."""
    written, ids = set(update.fields_modified), manifest.FieldIds()
    found = _message("DataReplacement")()
    for fragment in update.updated_fragments:
        for file in fragment.files:
            if written.issuperset(ids[file.fields]):
                new = found.replacements.add(fragment_id=fragment.id).new_file
                new.path, new.fields = file.path, file.fields
    return found


def _is_understood(rewrite: Any) -> bool:
    """Return whether this reader knows every field of a rewrite. An unknown field may mean another order of rows."""
    return not any(len(UnknownFieldSet(message)) for message in (rewrite, *rewrite.groups))


@cache
def _message(name: str) -> Any:
    return message_class(f"leman.transactions.{name.lower()}", _LAYOUT, root=name, repeated=_REPEATED)


REQUEST_IDS = "leman.request_ids"
JOB_IDS = "leman.job_ids"
COMMITTED_FRAGMENTS = "leman.fragments"
ROWS = "leman.rows"
MERGED = "leman.merged"
BODY = "leman.body"
#: The most versions that one call reads. Reading a transaction takes 0.2 ms, and longer if it is large.
SCAN_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """A commit that installed files."""

    version: int
    request_ids: tuple[str, ...]
    job_ids: tuple[str, ...]
    operation: str
    #: Fragment id → names of its new files, if the commit only replaced files of fragments.
    files: Mapping[int, Sequence[str]] = field(repr=False)
    #: The number of fragments that got a file or were added.
    fragments: int = 0
    #: The number of rows that were added, removed or changed, if the commit changed rows.
    rows: int = 0
    #: The numbers of rows that were inserted, updated and deleted, if the commit was a merge.
    merged: tuple[int, ...] = ()
    #: Distinguishes its request from another one with the same id; empty: unknown.
    body: str = ""


def commit_properties(request_ids: Iterable[str], job_ids: Iterable[str]) -> dict[str, str]:
    """Return transaction properties that name the requests and jobs of a commit."""
    return {REQUEST_IDS: json.dumps(list(request_ids)), JOB_IDS: json.dumps(list(job_ids))}


def view_properties(request_id: str, job_id: str, operation: str, fragments: int) -> dict[str, str]:
    """Return the properties of a commit to a view: its operation, and the number of fragments."""
    return {**commit_properties([request_id], [job_id]), OPERATION: operation, COMMITTED_FRAGMENTS: str(fragments)}


def row_properties(
    request_id: str, body: str, operation: str, *, fragments: int, rows: int, merged: Sequence[int] = ()
) -> dict[str, str]:
    """Return the properties of a commit that creates a table, or changes its rows."""
    counts = {MERGED: " ".join(map(str, merged))} if merged else {}
    return {
        **view_properties(request_id, "", operation, fragments),
        ROWS: str(rows),
        BODY: body,
        JOB_IDS: "[]",
        **counts,
    }


class CommitHistory:
    """A cache of one table's commit records. The record of a version never changes."""

    def __init__(self) -> None:
        self._read: OrderedDict[int, CommitRecord | None] = OrderedDict()

    def records(self, dataset: lance.LanceDataset, newest: int, after: int, limit: int) -> Iterator[CommitRecord]:
        """Yield records of versions in (after, newest], newest first.

        Read at most `limit` versions, and end at the first version that was cleaned up.
        """
        transactions = Transactions(dataset.uri)
        for version in range(newest, max(after, newest - limit, 0), -1):
            if version not in self._read:
                try:
                    self._read[version] = read_commit_record(transactions, version)
                except LookupError:
                    return
                if len(self._read) > SCAN_LIMIT:
                    self._read.popitem(last=False)
            if (record := self._read[version]) is not None:
                yield record


def find_commit(uri: str, request_id: str, after: int = 0) -> CommitRecord | None:
    """Return the newest commit that contains a request's change; None if there is none among the searched versions.

    Search the last SCAN_LIMIT versions, but none up to `after`.

    Raises:
        NotFound: TABLE_NOT_FOUND.
    """
    dataset = _open(uri)
    records = CommitHistory().records(dataset, int(dataset.version), after, SCAN_LIMIT)
    return next((record for record in records if request_id in record.request_ids), None)


def list_commits(uri: str, before: int, size: int) -> tuple[list[CommitRecord], int]:
    """Return at most `size` records of versions below `before` (0: of all), newest first, and the next `before`.

    If the next `before` is 0, the history ends there. Otherwise call again with it, even if this call returned no
    record: one call reads at most SCAN_LIMIT versions.

    Raises:
        NotFound: TABLE_NOT_FOUND.
    """
    dataset = _open(uri)
    transactions = Transactions(dataset.uri)
    newest = min(before - 1, int(dataset.version)) if before else int(dataset.version)
    oldest = max(newest - SCAN_LIMIT, 0) + 1
    found: list[CommitRecord] = []
    for version in range(newest, oldest - 1, -1):
        try:
            record = read_commit_record(transactions, version)
        except LookupError:
            return found, 0
        if record is not None:
            found.append(record)
        if len(found) == size:
            return found, version if version > 1 else 0
    return found, oldest if oldest > 1 else 0


def read_commit_record(transactions: Transactions, version: int) -> CommitRecord | None:
    """Return the record of a version; None if the commit is not Leman's, or installed no file.

    Raises:
        LookupError: The version was cleaned up.
        LemanError: What `storage_unusable` gives.
    """
    transaction = transactions.read_or_tell(version)
    stored = transaction.properties
    request_ids, job_ids = _strings(stored.get(REQUEST_IDS)), _strings(stored.get(JOB_IDS))
    if not request_ids:
        return None
    if transaction.kind is Kind.DATA_REPLACEMENT:
        files: dict[int, list[str]] = {}
        for group in transaction.operation.replacements:
            files.setdefault(group.fragment_id, []).append(group.new_file.path)
        return CommitRecord(
            version=version,
            request_ids=request_ids,
            job_ids=job_ids,
            operation=transaction.kind,
            files=files,
            fragments=len(files),
        )
    operation, fragments = stored.get(OPERATION, ""), stored.get(COMMITTED_FRAGMENTS, "")
    if not operation or not fragments.isdecimal():
        return None
    rows = stored.get(ROWS, "")
    return CommitRecord(
        version=version,
        request_ids=request_ids,
        job_ids=job_ids,
        operation=operation,
        files={},
        fragments=int(fragments),
        rows=int(rows) if rows.isdecimal() else 0,
        merged=tuple(int(count) for count in stored.get(MERGED, "").split() if count.isdecimal()),
        body=stored.get(BODY, ""),
    )


def _open(uri: str) -> lance.LanceDataset:
    try:
        return open_latest(uri)
    except (OSError, ValueError) as error:
        raise NotFound("TABLE_NOT_FOUND", f"Table {uri} cannot be opened: {error}", uri=uri) from None


def _strings(stored: Any) -> tuple[str, ...]:
    """Return a property that is a list of strings, or nothing for any other content, as anyone can write properties."""
    try:
        values = json.loads(stored or "[]")
    except ValueError:
        return ()
    return tuple(v for v in values if isinstance(v, str)) if isinstance(values, list) else ()
