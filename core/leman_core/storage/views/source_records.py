"""What a view keeps of the source version that it is right for: fragments with their files, deleted rows and row ids.

So a refresh can tell what changed since, although that version was cleaned away. See decision 18. A record is one file
in the view's folder `_refresh`, and never changes. Its name has the digest of its content, and the view's metadata has
the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lance
import pyarrow as pa
import xxhash

from leman_core.model import view_metadata
from leman_core.model.errors import NotFound
from leman_core.model.object_columns import made_once
from leman_core.model.table import Fragment, TableSnapshot
from leman_core.model.view import ViewQuery
from leman_core.model.view_rows import NO_IDS, Ids
from leman_core.sql.query_columns import columns_read
from leman_core.storage.deletion_files import deleted_offsets
from leman_core.storage.error_translation import using_storage
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.manifest import collector_paused, manifest_bytes, parse, walk
from leman_core.storage.opening import open_version
from leman_core.storage.row_id_sequences import inline_row_ids
from leman_core.storage.storage_errors import failed
from leman_core.storage.tables import snapshot_of
from leman_core.storage.views.refresh_folder import REFRESH_FOLDER, bytes_beside, write_beside
from leman_core.storage.views.source_record_file import SourceRecord, StoredRows, decode, encode


def write(
    view: str,
    query: ViewQuery,
    source: str,
    version: int,
    before: str = "",
    opened: lance.LanceDataset | None = None,
) -> str:
    """Keep a source version in a view's folder and return the record's name.

    Args:
        before: the name of an earlier record, of which rows are taken that stayed.
        opened: that version of the source, where it is open.

    Returns:
        The name; empty where the source has no stable row ids: such a view stays at its version.

    Raises:
        LemanError: what `storage_errors.unusable` gives where the source cannot be read, or the folder not be written.
    """
    with using_storage(view), collector_paused():
        dataset = open_version(source, version) if opened is None else opened
        if not dataset.has_stable_row_ids:
            return ""
        serialized = manifest_bytes(dataset)
        fragments = made_once(parse(serialized) or walk(dataset))
        snapshot = snapshot_of(source, dataset, fragments)
        known = _earlier(view, before) if any(f.deleted_rows for f in fragments) else None
        rows = _all_rows(dataset, serialized, fragments, known)
        content = encode(snapshot, _read_ids(snapshot, query), rows)
    name = f"{view_metadata.RECORD_PREFIX}{version}-{xxhash.xxh3_128(content).hexdigest()}.arrow"
    write_beside(view, name, content)
    return name


def read(view: str, name: str, source: str) -> SourceRecord | None:
    """Return a record of a view; None where there is none, or it is not what was written.

    Raises:
        LemanError: what `storage_errors.failed` gives where that cannot be told.
    """
    content = content_of(view, name) if name else None
    if content is None or not is_whole(name, content):
        return None
    return decode(source, content)


def content_of(view: str, name: str) -> bytes | None:
    """Return the bytes of a record; None where there is none.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    try:
        return bytes_beside(view, name)
    except OSError as error:
        path = f"{filesystem_of(view)[1]}/{REFRESH_FOLDER}/{name}"
        raise failed(error, f"The record {path} cannot be read now: {error}", path) from None


def is_whole(name: str, content: bytes) -> bool:
    """Tell whether a record is what was written under its name."""
    return name.endswith(f"-{xxhash.xxh3_128(content).hexdigest()}.arrow")


def read_for(view: str, name: str, source: str, version: int) -> SourceRecord:
    """Return the record of a source version that was cleaned away.

    Raises:
        NotFound: SOURCE_VERSION_NOT_FOUND, where `read` finds none.
    """
    found = read(view, name, source)
    if found is None:
        raise NotFound(
            "SOURCE_VERSION_NOT_FOUND",
            f"Version {version} of the source {source} was cleaned up, and the view has no record of it",
            uri=source,
            version=version,
        )
    return found


def _earlier(view: str, name: str) -> SourceRecord | None:
    return read(view, name, "")


def _read_ids(snapshot: TableSnapshot, query: ViewQuery) -> frozenset[int]:
    names = columns_read(query, [field.name for field in snapshot.fields])
    return frozenset(i for field in snapshot.fields if field.name in names for i in field.field_ids)


def _all_rows(
    dataset: lance.LanceDataset, serialized: bytes | None, fragments: Sequence[Fragment], known: SourceRecord | None
) -> list[StoredRows]:
    inline = inline_row_ids(serialized)
    stored = {f.fragment_id: found for f in fragments if known is not None and (found := known.stored(f)) is not None}
    asked = []
    for fragment in fragments:
        if fragment.fragment_id not in stored:
            ids = inline.get(fragment.fragment_id, b"")
            deleted = _deleted(dataset, fragment) if ids else None
            if deleted is None:
                asked.append(fragment)
            else:
                stored[fragment.fragment_id] = StoredRows.of_manifest(fragment, ids, deleted)
    for fragment, scanned in zip(asked, _scanned(dataset, asked), strict=True):
        stored[fragment.fragment_id] = StoredRows.of_ids(inline.get(fragment.fragment_id, b""), scanned)
    return [stored[fragment.fragment_id] for fragment in fragments]


def _deleted(dataset: lance.LanceDataset, fragment: Fragment) -> Ids | None:
    """Return the offsets of a fragment's deleted rows; None: a scan has to tell."""
    if not fragment.deleted_rows:
        return NO_IDS
    opened = dataset.get_fragment(fragment.fragment_id)
    return None if opened is None else deleted_offsets(dataset.uri, opened)


def _scanned(dataset: lance.LanceDataset, fragments: Sequence[Fragment]) -> Iterator[pa.Array]:
    """Yield row ids of the fragments, NULL in deleted rows.

    One scan for all of them: one for each takes ten times as long.
    """
    opened = [dataset.get_fragment(fragment.fragment_id) for fragment in fragments]
    chosen = [fragment for fragment in opened if fragment is not None]
    batches: Iterator[pa.RecordBatch] = iter(())
    if chosen:
        scanner = dataset.scanner(
            columns=[], with_row_id=True, include_deleted_rows=True, fragments=chosen, scan_in_order=True
        )
        batches = scanner.to_batches()
    left = pa.array([], pa.uint64())
    for fragment in fragments:
        parts = [left]
        while sum(map(len, parts)) < fragment.physical_rows:
            parts.append(next(batches).column("_rowid"))
        joined = pa.concat_arrays(parts)
        left = joined.slice(fragment.physical_rows)
        yield joined.slice(0, fragment.physical_rows)
