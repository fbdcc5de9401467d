"""The verification of a database's job history and of its failed rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from leman_coordinator.verification.report import Finding, Flaw, Looked, Subject
from leman_core.model.errors import DataLoss, LemanError
from leman_core.model.job import Job
from leman_core.storage import job_records
from leman_core.storage.append_log import AppendLog
from leman_core.storage.history_tail import tail_of
from leman_core.storage.incarnations import is_another
from leman_core.storage.locations import TABLE_ENDING, table_uri
from leman_core.storage.opening import has_versions
from leman_core.storage.storage_errors import said
from leman_core.storage.tables import LanceTables

_STORES = (
    ("errors.lance", Subject.ERROR_STORE, "failed rows of earlier jobs cannot all be listed or retried"),
    ("jobs.lance", Subject.JOB_HISTORY, "earlier jobs cannot all be listed or taken over"),
)
_ERRORS = "_leman/errors.lance"
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
    """The counts of job records that were read, and the job that made the highest known version of each table."""

    damaged: int = 0
    unsealed: int = 0
    #: Whether a job failed on rows, which the other table then has.
    has_failed_rows: bool = False
    last_commits: dict[tuple[str, str], Job] = field(default_factory=dict)

    def add(self, record: str) -> None:
        self.unsealed += not job_records.is_sealed(record)
        try:
            job = job_records.decode(record)
        except DataLoss:
            self.damaged += 1
            return
        self.has_failed_rows |= job.progress.rows_failed > 0
        if job.incarnation and job.table_version:
            table = job.request.table, job.incarnation
            known = self.last_commits.get(table)
            if known is None or known.table_version < job.table_version:
                self.last_commits[table] = job


def _looked(database: str, path: str, subject: Subject, harm: str) -> Looked | None:
    size, records = 0, _Records()
    log = AppendLog(f"{database}/{path}", pa.schema([]))
    try:
        findings = _set_aside(log, path, harm) if subject is Subject.ERROR_STORE else []
        if subject is Subject.JOB_HISTORY and (tail := tail_of(database)) is not None:
            for entry in tail.since():
                size += entry.size_bytes
                records.damaged += bool(entry.damage)
                for record in entry.records:
                    records.add(record)
        snapshot = log.snapshot()
        if snapshot is None:
            return Looked(subject, size, False, tuple(findings)) if findings else None
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
    jobs = records.last_commits.values()
    findings += [finding for job in jobs if (finding := _rolled_back(database, job)) is not None]
    findings += _missing_errors(database) if records.has_failed_rows else ()
    if records.damaged:
        message = (
            f"{records.damaged} records in {path} are damaged: {harm}; values are safe. Restore the folder from a copy"
        )
        findings.append(Finding(subject, Flaw.DAMAGED, path, message, rows=records.damaged))
    return Looked(subject, size, subject is Subject.JOB_HISTORY and not records.unsealed, tuple(findings))


def _set_aside(log: AppendLog, path: str, harm: str) -> list[Finding]:
    """Return what services set aside when they met damage: what is left can be read."""
    told = f"{harm[0].upper()}{harm[1:]}; values are safe. Restore the folder from a copy, or remove what was set aside"
    return [Finding(Subject.ERROR_STORE, Flaw.DAMAGED, path, f"{note} {told}") for note in log.warnings()]


def _missing_errors(database: str) -> Iterator[Finding]:
    if not has_versions(f"{database}/{_ERRORS}"):
        told = f"{_ERRORS} is gone, and jobs failed on rows: these cannot be listed. Restore the folder from a copy"
        yield Finding(Subject.ERROR_STORE, Flaw.MISSING, _ERRORS, told)


def _rolled_back(database: str, job: Job) -> Finding | None:
    """Return a finding if the table of a job is at an earlier version than the job committed."""
    table, uri = job.request.table, table_uri(database, job.request.table)
    try:
        version = int(LanceTables().dataset(uri).version)
        if version >= job.table_version or is_another(uri, job.incarnation):
            return None
    except LemanError:  # it was dropped, or the check of the table itself reports it
        return None
    message = (
        f"{table}{TABLE_ENDING} is at version {version}, but job {job.job_id} committed version {job.table_version}: "
        "the newest files in _versions are gone, and with them what was committed since. Restore them from a copy "
        "before anything else is written to the table"
    )
    return Finding(Subject.TABLE, Flaw.MISSING, f"{table}{TABLE_ENDING}/_versions", message, table)
