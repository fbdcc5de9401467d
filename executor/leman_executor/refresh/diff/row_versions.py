"""Tells whether Lance's `_row_last_updated_at_version` of rows can be relied on between two versions.

It is moved by updates, by DataReplacement, and by a Merge that gives a fragment other files. It is not moved by what
changes the schema alone (a column that is dropped and added again empty can get the same field id), by an Update that
rewrites columns and does not say of which rows, and perhaps by operations that are not known here.
"""

from __future__ import annotations

from collections.abc import Collection

import lance

from leman_core.storage.manifest import read_fragments
from leman_core.storage.tables import fields_of
from leman_core.storage.transactions import HOUSEKEEPING, Kind, Transaction, Transactions, VersionGone

#: How many versions are looked at; where there are more, the column is not relied on.
MOST_VERSIONS = 5000
_HARMLESS = HOUSEKEEPING | {
    Kind.APPEND,
    Kind.DELETE,
    Kind.REWRITE,
    Kind.DATA_REPLACEMENT,
    Kind.MERGE,
    Kind.OVERWRITE,
}


def is_silent(dataset: lance.LanceDataset, other: int, columns: Collection[str]) -> bool:
    """Tell whether values of the columns may have changed without moving `_row_last_updated_at_version`.

    Looks at the versions between `other` and that of `dataset`; True also where the history does not tell.
    """
    ahead, behind = max(int(dataset.version), other), min(int(dataset.version), other)
    transactions = Transactions(dataset.uri)
    for _ in range(MOST_VERSIONS):
        if ahead == behind:
            return False
        try:
            transaction = transactions.read(ahead)
        except (VersionGone, OSError):
            return True
        if transaction.kind is Kind.RESTORE:
            ahead = int(transaction.operation.version)
        else:
            if _may_be_silent(dataset, transaction, columns):
                return True
            ahead -= 1
        ahead, behind = max(ahead, behind), min(ahead, behind)
    return True


def _may_be_silent(dataset: lance.LanceDataset, transaction: Transaction, columns: Collection[str]) -> bool:
    if transaction.kind in _HARMLESS:
        return False
    if transaction.kind is Kind.UPDATE:
        update = transaction.operation
        says_which = update.updated_fragment_offset_bitmaps or update.updated_fragment_offsets
        return bool(update.fields_modified) and not says_which
    try:
        before, after = (dataset.checkout_version(v) for v in (transaction.version - 1, transaction.version))
    except (OSError, ValueError):
        return True
    ids = [{f.name: f.field_ids for f in fields_of(d) if f.name in columns} for d in (before, after)]
    if ids[0] != ids[1]:
        return True
    return transaction.kind is not Kind.PROJECT and read_fragments(before) != read_fragments(after)
