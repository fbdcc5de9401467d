"""Rows that two coordinators added for one request: the first commit counts, and the other one is taken back.

Lance lets what adds rows pass beside each other. So two coordinators that are given one request at the same moment, by
a caller who asks again where the first one is still at work, may both commit it. Each finds that out when it looks at
what came between its look and its commit; where it died before, whoever changes rows of the table next finds it
(decision 46).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import structlog
from lance import LanceOperation

from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.storage.commit_history import CommitRecord
from leman_core.storage.transactions import Kind, Transaction, Transactions

_log = structlog.get_logger(__name__)

APPEND, MERGE = "AppendRows", "MergeRows"
#: Which version a commit takes back.
TAKES_BACK = "leman.takes_back"


def twins(records: Iterable[CommitRecord]) -> list[CommitRecord]:
    """Return the commits of a table's history that added rows for requests which had been committed before.

    What changed rows beside is never one: two such commits are about the same fragments, and conflict in Lance.
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
    """Take rows back that twins among a table's commits added; return the names of their files.

    What was looked at once with this handle is not looked at again. Rows that a compaction has brought together with
    others meanwhile stay.

    Raises:
        CommitConflict: Another writer came between.
        CommitUnclear: The commit may have been made.
        FailedPrecondition: as `commit_outcomes`.
        LemanError: what `storage_errors.unusable` gives.
    """
    files: frozenset[str] = frozenset()
    for twin in twins(records):
        if twin.version not in table.twins_settled:
            files |= _take_back(table, twin)
            table.twins_settled.add(twin.version)
    return files


def added_files(table: TableHandle, version: int) -> frozenset[str]:
    """Return the names of the data files with the rows that a version added.

    Raises:
        LemanError: what `Transactions.read_or_tell` raises.
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
