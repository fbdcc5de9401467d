"""Who wrote to a view last, and how many of its rows have values: what names of files do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from leman_core.model.view import IS_SET
from leman_core.storage.commit_history import REQUEST_IDS
from leman_core.storage.opening import open_version
from leman_core.storage.transactions import HOUSEKEEPING, Kind, Transactions, VersionGone

#: How many versions are looked at, at the most.
MOST_VERSIONS = 2000
#: Operations that leave the rows and their values as they are.
_HARMLESS = HOUSEKEEPING | {Kind.REWRITE}


@dataclass(frozen=True, slots=True)
class ExternalWrite:
    """A version of a view that Leman did not make, and the kind of Lance operation that did."""

    version: int
    operation: str
    #: The latest version with Leman's rows.
    before: int


def external_write(uri: str, version: int) -> ExternalWrite | None:
    """Return the newest write of somebody else up to a version, since Leman last wrote rows of a view.

    What was before that, an earlier refresh judged. Compaction, indexes, configuration and a restored version of the
    view itself do not count.

    Returns:
        None where there is no such write, or where the history was cleaned away.

    Raises:
        LemanError: what `storage_errors.unusable` gives.
    """
    transactions = Transactions(uri)
    at = version
    found: ExternalWrite | None = None
    for _ in range(MOST_VERSIONS):
        if at <= 1:
            return found
        try:
            transaction = transactions.read_or_tell(at)
        except VersionGone:
            return found
        ours = REQUEST_IDS in transaction.properties
        if ours and transaction.kind is not Kind.DATA_REPLACEMENT:
            return found
        if transaction.kind is Kind.RESTORE:
            at = int(transaction.operation.version)
        elif ours or transaction.kind in _HARMLESS:
            at -= 1
        else:
            at -= 1
            found = ExternalWrite(at + 1, transaction.kind, at) if found is None else replace(found, before=at)
    return found


def set_rows(uri: str, version: int, fragments: Iterable[int]) -> dict[int, int]:
    """Count the live rows that have values, by fragment id. Reads one column of bits."""
    dataset = open_version(uri, version)
    found = {}
    for fragment_id in fragments:
        fragment = dataset.get_fragment(fragment_id)
        found[fragment_id] = 0 if fragment is None else int(fragment.count_rows(filter=IS_SET))
    return found
