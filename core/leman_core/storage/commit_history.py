"""Leman's commits in a table's history: what was committed, for which requests and jobs."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance

from leman_core.model.errors import NotFound
from leman_core.storage.opening import open_latest
from leman_core.storage.transactions import OPERATION, Kind, Transactions

REQUEST_IDS = "leman.request_ids"
JOB_IDS = "leman.job_ids"
FRAGMENTS = "leman.fragments"
ROWS = "leman.rows"
MERGED = "leman.merged"
BODY = "leman.body"
#: How many versions one call looks at: a transaction takes 0.2 ms to read, and more where it was a large one.
SCAN_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """A commit that installed files."""

    version: int
    request_ids: tuple[str, ...]
    job_ids: tuple[str, ...]
    operation: str
    #: The names of files for each fragment id, where the commit replaced files of fragments and did nothing else.
    files: Mapping[int, Sequence[str]] = field(repr=False)
    #: How many got a file, or came.
    fragments: int = 0
    #: How many rows came, went or changed, of a commit that is about rows.
    rows: int = 0
    #: How many rows a merge inserted, updated and deleted.
    merged: tuple[int, ...] = ()
    #: Tells its request from another one under the same id; empty: not known.
    body: str = ""


def properties(request_ids: Iterable[str], job_ids: Iterable[str]) -> dict[str, str]:
    """Return transaction properties that say what a commit is for."""
    return {REQUEST_IDS: json.dumps(list(request_ids)), JOB_IDS: json.dumps(list(job_ids))}


def view_properties(request_id: str, job_id: str, operation: str, fragments: int) -> dict[str, str]:
    """Return the properties of a commit to a view that does more than replace files.

    They say what it did, to how many fragments.
    """
    return {**properties([request_id], [job_id]), OPERATION: operation, FRAGMENTS: str(fragments)}


def row_properties(
    request_id: str, body: str, operation: str, *, fragments: int, rows: int, merged: Sequence[int] = ()
) -> dict[str, str]:
    """Return the properties of a commit that makes a table, or changes rows of it."""
    counts = {MERGED: " ".join(map(str, merged))} if merged else {}
    return {
        **view_properties(request_id, "", operation, fragments),
        ROWS: str(rows),
        BODY: body,
        JOB_IDS: "[]",
        **counts,
    }


class CommitHistory:
    """The transactions of one table. Remembers what it read: a version never changes."""

    def __init__(self) -> None:
        self._read: OrderedDict[int, CommitRecord | None] = OrderedDict()

    def records(self, dataset: lance.LanceDataset, newest: int, after: int, limit: int) -> Iterator[CommitRecord]:
        """Yield records of versions in (after, newest], newest first.

        Looks at `limit` versions at the most, and ends where older versions were cleaned away.
        """
        transactions = Transactions(dataset.uri)
        for version in range(newest, max(after, newest - limit, 0), -1):
            if version not in self._read:
                try:
                    self._read[version] = read_record(transactions, version)
                except LookupError:
                    return
                if len(self._read) > SCAN_LIMIT:
                    self._read.popitem(last=False)
            if (record := self._read[version]) is not None:
                yield record


def find_commit(uri: str, request_id: str, after: int = 0) -> CommitRecord | None:
    """Return the newest commit that a request took part in.

    Looks at the last SCAN_LIMIT versions, and at those after `after`.

    Raises:
        NotFound: TABLE_NOT_FOUND.
    """
    dataset = _open(uri)
    records = CommitHistory().records(dataset, int(dataset.version), after, SCAN_LIMIT)
    return next((record for record in records if request_id in record.request_ids), None)


def list_commits(uri: str, before: int, size: int) -> tuple[list[CommitRecord], int]:
    """Return the records of versions below `before` (0: of all), newest first, and the `before` to go on with.

    There are at most `size` records. The `before` is 0 at the end of the history; otherwise there may be more, even
    where no record was found: one call looks at SCAN_LIMIT versions at the most.

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
            record = read_record(transactions, version)
        except LookupError:
            return found, 0
        if record is not None:
            found.append(record)
        if len(found) == size:
            return found, version if version > 1 else 0
    return found, oldest if oldest > 1 else 0


def read_record(transactions: Transactions, version: int) -> CommitRecord | None:
    """Return the record of a version; None for a commit that is not Leman's, or that installed no file.

    Raises:
        LookupError: the version was cleaned away.
        LemanError: what `storage_errors.unusable` gives.
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
    operation, fragments = stored.get(OPERATION, ""), stored.get(FRAGMENTS, "")
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
    """Return a property that is a list of strings. Anybody can write properties: anything else counts as absent."""
    try:
        values = json.loads(stored or "[]")
    except ValueError:
        return ()
    return tuple(v for v in values if isinstance(v, str)) if isinstance(values, list) else ()
