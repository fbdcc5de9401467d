"""Whether what Lance says about rows (`_row_last_updated_at_version`) can be relied on between two versions.

It is moved by updates, by DataReplacement, and by a Merge that gives a fragment other files. It is not moved by what
changes the schema alone (a column that is dropped and added again empty can get the same field id), by an Update that
rewrites columns and does not say of which rows, and perhaps by operations that this Lance does not name.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import lance
from lance import LanceOperation

from core.lance_io.manifest import read_fragments
from core.lance_io.tables import fields_of

#: Versions that are looked at; beyond it nothing is relied on.
MOST_VERSIONS = 5000
_HARMLESS = (
    LanceOperation.Append,
    LanceOperation.Delete,
    LanceOperation.Rewrite,
    LanceOperation.DataReplacement,
    LanceOperation.Merge,
    LanceOperation.Overwrite,
    LanceOperation.CreateIndex,
    LanceOperation.UpdateConfig,
)


def is_silent(dataset: lance.LanceDataset, other: int, columns: Collection[str]) -> bool:
    """Whether a version between `other` and that of `dataset` may have changed values of the columns without moving
    `_row_last_updated_at_version`. True too where the history does not tell."""
    ahead, behind = max(int(dataset.version), other), min(int(dataset.version), other)
    for _ in range(MOST_VERSIONS):
        if ahead == behind:
            return False
        operation = _operation(dataset, ahead)
        if operation is None:
            return True
        if isinstance(operation, LanceOperation.Restore):
            ahead = int(operation.version)
        else:
            if _may_be_silent(dataset, ahead, operation, columns):
                return True
            ahead -= 1
        ahead, behind = max(ahead, behind), min(ahead, behind)
    return True


def _operation(dataset: lance.LanceDataset, version: int) -> Any:
    try:
        transaction = dataset.read_transaction(version)
    except (OSError, ValueError):
        return None
    return None if transaction is None else transaction.operation


def _may_be_silent(dataset: lance.LanceDataset, version: int, operation: Any, columns: Collection[str]) -> bool:
    if isinstance(operation, _HARMLESS):
        return False
    if isinstance(operation, LanceOperation.Update):
        return bool(operation.fields_modified) and operation.updated_fragment_offsets is None
    try:
        before, after = dataset.checkout_version(version - 1), dataset.checkout_version(version)
    except (OSError, ValueError):
        return True
    if isinstance(operation, LanceOperation.Project):
        ids = [{f.name: f.field_ids for f in fields_of(d) if f.name in columns} for d in (before, after)]
        return ids[0] != ids[1]
    return read_fragments(before) != read_fragments(after)
