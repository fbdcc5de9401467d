"""Indexes of a table: how much of it they cover, and bringing them up to date."""

from __future__ import annotations

from collections.abc import Collection

import lance

from core.domain.table import IndexCoverage
from core.errors import FailedPrecondition, NotFound
from core.lance_io.commits import commit_outcomes, open_table
from core.lance_io.manifest import read_fragments

_LISTED = 40


def coverage(uri: str, columns: Collection[str] = (), names: Collection[str] = ()) -> tuple[int, list[IndexCoverage]]:
    """The latest version, and its indexes by name: those on one of `columns`, with one of `names`; empty: any.

    Reads no rows. Raises what `open_table` raises.
    """
    dataset = open_table(uri)
    return int(dataset.version), _coverage(dataset, columns, names)


def optimize(uri: str, columns: Collection[str] = (), names: Collection[str] = ()) -> tuple[int, list[IndexCoverage]]:
    """Has indexes cover the whole table; as `coverage` after it. Those that do already are left alone.

    Raises what `open_table` and `commit_outcomes` raise, NotFound (INDEX_NOT_FOUND) for a name that no index has, and
    FailedPrecondition (COLUMN_NOT_FOUND).
    """
    dataset = open_table(uri)
    _check_columns(uri, dataset, columns)
    found = _coverage(dataset, columns, names)
    missing = sorted(set(names) - {index.name for index in found})
    if missing:
        raise NotFound("INDEX_NOT_FOUND", f"Table {uri} has no index {', '.join(missing)}", uri=uri)
    behind = [index.name for index in found if index.is_stale]
    if behind:
        with commit_outcomes(uri):
            dataset.optimize.optimize_indices(index_names=behind)
    return coverage(uri, columns, names)


def _check_columns(uri: str, dataset: lance.LanceDataset, columns: Collection[str]) -> None:
    known = set(dataset.schema.names)
    indexed = {name for index in dataset.describe_indices() for name in index.field_names}
    unknown = sorted(set(columns) - known - indexed)  # an index may be on a field of a struct
    if unknown:
        raise FailedPrecondition(
            "COLUMN_NOT_FOUND",
            f"Table {uri} has no column {', '.join(unknown)}. Its columns are: {', '.join(sorted(known)[:_LISTED])}",
            uri=uri,
            column=unknown[0],
        )


def _coverage(dataset: lance.LanceDataset, columns: Collection[str], names: Collection[str]) -> list[IndexCoverage]:
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
            IndexCoverage(index.name, index.index_type, tuple(index.field_names), len(rows), len(covered), left_out)
        )
    return found
