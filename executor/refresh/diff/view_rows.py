"""The rows that a view has, by the row ids of its source."""

from __future__ import annotations

import numpy as np

from core.domain.view import IS_SET, SOURCE_ROW_ID
from core.lance_io.error_translation import using_storage
from core.lance_io.opening import open_version
from core.sorted_sets import contains
from core.views.rows import NO_IDS, Ids

_ROWS = 1 << 16


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
        scanner = open_version(uri, version).scanner(
            columns=[SOURCE_ROW_ID],
            filter=where,
            with_row_address=place == "_rowaddr",
            with_row_id=place == "_rowid",
            batch_size=_ROWS,
            batch_readahead=4,
            fragment_readahead=2,
        )
        for batch in scanner.to_batches():
            found = batch.column(SOURCE_ROW_ID).to_numpy()
            chosen = slice(None) if wanted is None else contains(wanted, found)
            ids.append(found[chosen])
            places.append(batch.column(place).to_numpy().astype(np.int64)[chosen])
    joined = np.concatenate(ids)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(places)[order]
