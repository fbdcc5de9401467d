"""The verification of a database's job history and of its failed rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from commit_coordinator.verification.report import Finding, Flaw, Looked, Subject
from core.errors import DataLoss, LemanError
from core.lance_io import job_records
from core.lance_io.append_log import AppendLog
from core.lance_io.history_tail import tail_of
from core.storage_errors import said

_STORES = (
    ("errors.lance", Subject.ERROR_STORE, "failed rows of earlier jobs cannot all be listed or retried"),
    ("jobs.lance", Subject.JOB_HISTORY, "earlier jobs cannot all be listed or taken over"),
)
#: The column whose values carry digests of their own.
_RECORD = "record"


def things(database: str, after: str) -> Iterator[tuple[str, Looked]]:
    """Read both tables whole, and yield those after a name.

    Records of jobs carry digests, except those of earlier releases: a history that has some of these is not
    verifiable. Damage of failed rows shows only where they cannot be read.
    """
    for name, subject, harm in _STORES:
        if name > after and (looked := _looked(database, f"_leman/{name}", subject, harm)) is not None:
            yield name, looked


@dataclass(slots=True)
class _Records:
    """The counts of job records that were read."""

    damaged: int = 0
    unsealed: int = 0

    def add(self, record: str) -> None:
        self.unsealed += not job_records.is_sealed(record)
        try:
            job_records.decode(record)
        except DataLoss:
            self.damaged += 1


def _looked(database: str, path: str, subject: Subject, harm: str) -> Looked | None:
    size, records = 0, _Records()
    try:
        if subject is Subject.JOB_HISTORY and (tail := tail_of(database)) is not None:
            for entry in tail.since():
                size += entry.size_bytes
                records.damaged += bool(entry.damage)
                for record in entry.records:
                    records.add(record)
        snapshot = AppendLog(f"{database}/{path}", pa.schema([])).snapshot()
        if snapshot is None:
            return None
        for batch in snapshot.scan(snapshot.columns):
            size += batch.nbytes
            if _RECORD in batch.schema.names:
                for record in batch.column(_RECORD).to_pylist():
                    records.add(str(record))
    except LemanError as error:
        why = said(error)
        message = (
            f"{path} cannot be read ({why}): {harm}; values are safe. Restore the folder from a copy, or remove it"
        )
        return Looked(subject, size, True, (Finding(subject, Flaw.UNREADABLE, path, message),))
    findings: tuple[Finding, ...] = ()
    if records.damaged:
        message = (
            f"{records.damaged} records in {path} are damaged: {harm}; values are safe. Restore the folder from a copy"
        )
        findings = (Finding(subject, Flaw.DAMAGED, path, message, rows=records.damaged),)
    return Looked(subject, size, subject is Subject.JOB_HISTORY and not records.unsealed, findings)
