"""Brings the indexes of a table up to date."""

from __future__ import annotations

from collections.abc import Collection

import lance

from leman_coordinator.lance_io.commit_outcomes import commit_outcomes
from leman_core.functions.validation import column_not_found
from leman_core.model.errors import NotFound
from leman_core.model.table import IndexCoverage
from leman_core.storage.indices import coverage, coverage_of
from leman_core.storage.tables import open_table


def optimize(uri: str, columns: Collection[str] = (), names: Collection[str] = ()) -> tuple[int, list[IndexCoverage]]:
    """Make indexes cover the whole table; those that do already are left alone.

    Returns:
        What `coverage` gives afterwards.

    Raises:
        NotFound: INDEX_NOT_FOUND – no index has that name.
        FailedPrecondition: COLUMN_NOT_FOUND – the table has no such column.
        LemanError: what `open_table` and `commit_outcomes` raise.
        CommitConflict: as `commit_outcomes`.
        CommitUnclear: as `commit_outcomes`.
    """
    dataset = open_table(uri)
    _check_columns(uri, dataset, columns)
    found = coverage_of(dataset, columns, names)
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
        raise column_not_found(unknown[0], sorted(known), uri=uri)
