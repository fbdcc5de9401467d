"""The rows that a view has, by the row ids of its source."""

from __future__ import annotations

import lance
import numpy as np

from leman_core.model.sorted_sets import contains
from leman_core.model.view import IS_SET, PLACEHOLDER_FILE_PREFIX, SOURCE_ROW_ID, VIEW_FILE_PREFIX
from leman_core.model.view_metadata import from_metadata
from leman_core.model.view_rows import NO_IDS, Ids, Mask
from leman_core.storage.error_translation import using_storage
from leman_core.storage.opening import open_version

_ROWS = 1 << 16
#: In views of more fragments none is looked at by itself: that would take longer than to scan them.
_MOST_PROBED = 1 << 8


def held(uri: str, version: int, wanted: Ids | None = None) -> tuple[Ids, Ids]:
    """Return the source row ids of a view's rows, sorted, and their addresses: of the `wanted` (sorted), or of all."""
    return _read(uri, version, wanted, "_rowaddr")


def held_with_values(uri: str, version: int, wanted: Ids) -> tuple[Ids, Ids]:
    """Return those of the wanted source row ids (sorted) for which the view has values, and the view's own row ids.

    Both are sorted by source row id.
    """
    return _read(uri, version, wanted, "_rowid", where=IS_SET)


def _read(uri: str, version: int, wanted: Ids | None, place: str, where: str | None = None) -> tuple[Ids, Ids]:
    ids, places = [NO_IDS], [NO_IDS]
    with using_storage(uri):
        dataset = open_version(uri, version)
        fragments = None if wanted is None else _fragments_with(dataset, wanted)
        if fragments is not None and not fragments:
            return NO_IDS, NO_IDS
        scanner = dataset.scanner(
            columns=[SOURCE_ROW_ID],
            filter=where,
            fragments=fragments,
            with_row_address=place == "_rowaddr",
            with_row_id=place == "_rowid",
            batch_size=_ROWS,
            batch_readahead=4,
            fragment_readahead=2,
        )
        for batch in scanner.to_batches():
            found = batch.column(SOURCE_ROW_ID).to_numpy()
            chosen = slice(None) if wanted is None else _positions(wanted, found)
            ids.append(found[chosen])
            places.append(batch.column(place).to_numpy()[chosen].astype(np.int64))
    joined = np.concatenate(ids)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(places)[order]


def _fragments_with(dataset: lance.LanceDataset, wanted: Ids) -> list[lance.LanceFragment] | None:
    """Return the fragments that may have some of the wanted rows; None: all may.

    Leman writes the rows of a view that is not shuffled in the order of their source row ids, file by file: the first
    and the last one of a fragment tell. Of fragments that others wrote, or that were compacted, nothing is known.
    """
    definition = from_metadata(dataset.schema.metadata or {})
    fragments = [fragment for fragment in dataset.get_fragments() if fragment.count_rows()]
    column = dataset.lance_schema.field(SOURCE_ROW_ID)
    if definition is None or definition.query.shuffle or column is None or not 1 < len(fragments) < _MOST_PROBED:
        return None
    ends = [fragment.take([0, fragment.count_rows() - 1], columns=[SOURCE_ROW_ID]) for fragment in fragments]
    taken = np.concatenate([table.column(SOURCE_ROW_ID).to_numpy() for table in ends])
    begins, stops = (np.searchsorted(wanted, taken[i::2] + i) for i in (0, 1))
    return [
        fragment
        for fragment, some in zip(fragments, (begins < stops).tolist(), strict=True)
        if some or not _is_ordered(fragment, column.id())
    ]


def _is_ordered(fragment: lance.LanceFragment, field_id: int) -> bool:
    names = [str(file.path) for file in fragment.metadata.files if field_id in file.fields]
    return bool(names) and all(name.startswith((PLACEHOLDER_FILE_PREFIX, VIEW_FILE_PREFIX)) for name in names)


def _positions(wanted: Ids, found: Ids) -> Ids | Mask:
    """Return which of the ids found are wanted; those come sorted, unless the view is shuffled or was compacted."""
    if len(found) < 2 or not bool((found[1:] > found[:-1]).all()):
        return contains(wanted, found)
    begin, end = np.searchsorted(wanted, [found[0], found[-1] + 1])
    at = np.searchsorted(found, wanted[begin:end])
    return np.asarray(at[found[at] == wanted[begin:end]], np.int64)
