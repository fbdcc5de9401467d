"""Job history and failed rows of a database."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from core import seal
from core.domain.verification import Finding, Flaw, Looked, Subject
from core.lance_io.append_log import AppendLog
from core.lance_io.panics import panics_as_errors

_STORES = (
    ("errors.lance", Subject.ERROR_STORE, "failed rows of earlier jobs cannot all be listed or retried"),
    ("jobs.lance", Subject.JOB_HISTORY, "earlier jobs cannot all be listed or taken over"),
)
#: What carries a digest of its own.
_RECORD = "record"


def things(database: str, after: str) -> Iterator[tuple[str, Looked]]:
    """Both tables, read whole. Records of jobs carry digests; of failed rows, damage shows where it cannot be read."""
    for name, subject, harm in _STORES:
        if name > after and (looked := _looked(database, f"_leman/{name}", subject, harm)) is not None:
            yield name, looked


def _looked(database: str, path: str, subject: Subject, harm: str) -> Looked | None:
    size, damaged = 0, 0
    try:
        with panics_as_errors():
            snapshot = AppendLog(f"{database}/{path}", pa.schema([])).snapshot()
            if snapshot is None:
                return None
            for batch in snapshot.scan(snapshot.columns):
                size += batch.nbytes
                damaged += _damaged(batch)
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        message = (
            f"{path} cannot be read ({error}): {harm}; values are safe. Restore the folder from a copy, or remove it"
        )
        return Looked(subject, size, True, (Finding(subject, Flaw.UNREADABLE, path, message),))
    findings: tuple[Finding, ...] = ()
    if damaged:
        message = f"{damaged} records in {path} are damaged: {harm}; values are safe. Restore the folder from a copy"
        findings = (Finding(subject, Flaw.DAMAGED, path, message, rows=damaged),)
    return Looked(subject, size, subject is Subject.JOB_HISTORY, findings)


def _damaged(batch: pa.RecordBatch) -> int:
    if _RECORD not in batch.schema.names:
        return 0
    return sum(not seal.is_whole(str(text)) for text in batch.column(_RECORD).to_pylist())
