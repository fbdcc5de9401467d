"""Indexes of a table: how much of it they cover."""

from __future__ import annotations

from collections.abc import Collection

import lance

from leman_core.model.table import IndexCoverage
from leman_core.storage.manifest import read_fragments
from leman_core.storage.tables import open_table


def coverage(uri: str, columns: Collection[str] = (), names: Collection[str] = ()) -> tuple[int, list[IndexCoverage]]:
    """Return the latest version, and its indexes by name.

    Reads no rows.

    Args:
        columns: only indexes on one of these; empty: on any.
        names: only these; empty: any.

    Raises:
        LemanError: what `open_table` raises.
    """
    dataset = open_table(uri)
    return int(dataset.version), coverage_of(dataset, columns, names)


def coverage_of(dataset: lance.LanceDataset, columns: Collection[str], names: Collection[str]) -> list[IndexCoverage]:
    """Return the indexes as `coverage` does, of a table that is open."""
    wanted = [
        index
        for index in dataset.describe_indices()
        if (not columns or set(columns) & set(index.field_names)) and (not names or index.name in names)
    ]
    if not wanted:
        return []
    rows = {fragment.fragment_id: fragment.live_rows for fragment in read_fragments(dataset)}
    found = []
    for index in sorted(wanted, key=lambda index: index.name):
        covered = rows.keys() & set().union(*(segment.fragment_ids for segment in index.segments))
        left_out = sum(count for fragment_id, count in rows.items() if fragment_id not in covered)
        found.append(
            IndexCoverage(
                name=index.name,
                kind=index.index_type,
                columns=tuple(index.field_names),
                fragments=len(rows),
                fragments_covered=len(covered),
                rows_left_out=left_out,
            )
        )
    return found
