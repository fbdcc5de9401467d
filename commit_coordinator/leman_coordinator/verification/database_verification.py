"""Verify a database: functions with their bundles, job history and failed rows, then each table.

The order is fixed, so that a verification can stop anywhere and resume there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from leman._format import stored_logs
from leman._format.stored_functions import FOLDER
from leman._format.stored_logs import ERRORS
from leman_coordinator.verification import table_verification
from leman_coordinator.verification.verification_report import (
    Finding,
    FindingCounts,
    Flaw,
    Inspection,
    ResumePoint,
    Subject,
)
from leman_core.model.job import Job
from leman_core.model.service_errors import DataLoss, LemanError, NotFound, PermissionDenied
from leman_core.storage import stored_jobs
from leman_core.storage.append_log import AppendLog
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots
from leman_core.storage.lance_tables import LanceTables, database_exists, is_other_table
from leman_core.storage.locations import OWN_FOLDER, TABLE_ENDING, table_uri
from leman_core.storage.opening import has_versions
from leman_core.storage.storage_errors import error_text
from leman_core.storage.stored_jobs import tail_of
from leman_core.storage.udf_registry import StoredFunction, UdfRegistry


def verify_functions(database: str, after: str) -> Iterator[tuple[str, Inspection]]:
    """Check the registry's files whose names sort after `after`, and yield each with its result, ordered by name."""
    registry = UdfRegistry(database)
    for name in registry.names():
        if name > after:
            stored = _stored(registry, name)
            if stored is not None:
                yield name, stored


def _stored(registry: UdfRegistry, name: str) -> Inspection | None:
    path = f"{FOLDER}/{name}"
    try:
        stored = registry.check(name)
    except NotFound:  # deleted since it was listed
        return None
    except DataLoss as error:
        return Inspection(Subject.FUNCTION, 0, True, (Finding(Subject.FUNCTION, Flaw.DAMAGED, path, error.message),))
    except LemanError as error:
        message = f"{error.message}: make {path} readable, or register its function again"
        return Inspection(Subject.FUNCTION, 0, True, (Finding(Subject.FUNCTION, Flaw.UNREADABLE, path, message),))
    return _verify_function(path, stored)


def _verify_function(path: str, stored: StoredFunction) -> Inspection:
    if stored.udf is None:
        if stored.intact:
            return Inspection(Subject.BUNDLE, stored.size_bytes)
        what = f"The bundle {path} was changed after it was stored: register its function again to replace it"
        return Inspection(Subject.BUNDLE, stored.size_bytes, True, (Finding(Subject.BUNDLE, Flaw.DAMAGED, path, what),))
    if stored.intact:
        return Inspection(Subject.FUNCTION, stored.size_bytes)
    udf = stored.udf
    what = (
        f"Function {udf.name}@{udf.version} has no bundle {udf.bundle_sha256} of {udf.bundle_size} bytes: register it "
        "again to store the bundle"
    )
    bundle = f"{FOLDER}/{udf.bundle_sha256}.bundle"
    return Inspection(Subject.FUNCTION, stored.size_bytes, True, (Finding(Subject.BUNDLE, Flaw.MISSING, bundle, what),))


_STORES = (
    ("errors.lance", Subject.ERROR_STORE, "failed rows of earlier jobs cannot all be listed or retried"),
    ("jobs.lance", Subject.JOB_HISTORY, "earlier jobs cannot all be listed or taken over"),
)
#: The column whose values contain their own digests.
_RECORD = "record"


def verify_histories(database: str, after: str) -> Iterator[tuple[str, Inspection]]:
    """Read the tables of jobs and failed rows completely, and yield the results for those that sort after `after`.

    Each record of a job contains its digest. Earlier releases wrote records without digests, which count as not
    verifiable. Failed rows have no digests, so damage to them is found only if it makes them unreadable.
    """
    for name, subject, harm in _STORES:
        if name > after and (looked := _verify_history(database, f"_leman/{name}", subject, harm)) is not None:
            yield name, looked


@dataclass(slots=True)
class _Records:
    """The counts of job records, and for each table the job that committed its highest version."""

    damaged: int = 0
    unsealed: int = 0
    #: Whether any job has failed rows, so that the table of failed rows must exist.
    has_failed_rows: bool = False
    last_commits: dict[tuple[str, str], Job] = field(default_factory=dict)

    def add(self, record: str) -> None:
        self.unsealed += not stored_logs.is_sealed(record)
        try:
            job = stored_jobs.decode_job(record)
        except DataLoss:
            self.damaged += 1
            return
        self.has_failed_rows |= job.progress.rows_failed > 0
        if job.incarnation and job.table_version:
            table = job.request.table, job.incarnation
            known = self.last_commits.get(table)
            if known is None or known.table_version < job.table_version:
                self.last_commits[table] = job


def _verify_history(database: str, path: str, subject: Subject, harm: str) -> Inspection | None:
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
            return Inspection(subject, size, False, tuple(findings)) if findings else None
        for batch in snapshot.scan(snapshot.columns):
            size += batch.nbytes
            if _RECORD in batch.schema.names:
                for record in batch.column(_RECORD).to_pylist():
                    records.add(str(record))
    except LemanError as error:
        why = error_text(error)
        message = (
            f"{path} cannot be read ({why}): {harm}; values are safe. Restore the folder from a copy, or remove it"
        )
        return Inspection(subject, size, True, (Finding(subject, Flaw.UNREADABLE, path, message),))
    jobs = records.last_commits.values()
    findings += [finding for job in jobs if (finding := _rolled_back(database, job)) is not None]
    findings += _missing_errors(database) if records.has_failed_rows else ()
    if records.damaged:
        message = (
            f"{records.damaged} records in {path} are damaged: {harm}; values are safe. Restore the folder from a copy"
        )
        findings.append(Finding(subject, Flaw.DAMAGED, path, message, rows=records.damaged))
    return Inspection(subject, size, subject is Subject.JOB_HISTORY and not records.unsealed, tuple(findings))


def _set_aside(log: AppendLog, path: str, harm: str) -> list[Finding]:
    """Return a finding for each damaged part that a service moved aside. The other parts are readable."""
    told = f"{harm[0].upper()}{harm[1:]}; values are safe. Restore the folder from a copy, or remove what was set aside"
    return [Finding(Subject.ERROR_STORE, Flaw.DAMAGED, path, f"{note} {told}") for note in log.warnings()]


def _missing_errors(database: str) -> Iterator[Finding]:
    if not has_versions(f"{database}/{ERRORS}"):
        told = f"{ERRORS} is gone, and jobs failed on rows: these cannot be listed. Restore the folder from a copy"
        yield Finding(Subject.ERROR_STORE, Flaw.MISSING, ERRORS, told)


def _rolled_back(database: str, job: Job) -> Finding | None:
    """Return a finding if a job's table is now at an earlier version than the one that the job committed."""
    table, uri = job.request.table, table_uri(database, job.request.table)
    try:
        version = int(LanceTables().dataset(uri).version)
        if version >= job.table_version or is_other_table(uri, job.incarnation):
            return None
    except LemanError:  # dropped, or reported by the check of the table itself
        return None
    message = (
        f"{table}{TABLE_ENDING} is at version {version}, but job {job.job_id} committed version {job.table_version}: "
        "the newest files in _versions are gone, and with them what was committed since. Restore them from a copy "
        "before anything else is written to the table"
    )
    return Finding(Subject.TABLE, Flaw.MISSING, f"{table}{TABLE_ENDING}/_versions", message, table)


#: A report is due after this many seconds, checked things or findings, so that messages stay small.
REPORT_SECONDS, REPORT_THINGS, REPORT_FINDINGS = 0.5, 5000, 100

#: A name that sorts after all others.
_AFTER_ALL = "\U0010ffff"
#: Checked things, ordered by name: each one's name and result.
Things = Iterable[tuple[str, Inspection]]


@dataclass(frozen=True, slots=True)
class Report:
    """The things verified since the last report."""

    counts: FindingCounts
    #: The point to resume from after this report; None in the last report of the verification.
    place: ResumePoint | None


def verify(
    database: str,
    after: ResumePoint | None,
    clock: Callable[[], float] = time.monotonic,
    roots: DatabaseRoots = EVERYWHERE,
) -> Iterator[Report]:
    """Verify everything in a database, and yield reports.

    Args:
        database: The canonical location of the database.
        after: The point to resume from, or None for the beginning.
        roots: Allowed locations. A table that is a link to another location is not read.

    Raises:
        NotFound: DATABASE_NOT_FOUND – the database does not exist.
        LemanError: see `storage_failed`.
    """
    if not database_exists(database):
        raise NotFound("DATABASE_NOT_FOUND", f"There is no database at {database}", database=database)
    counts, things, told, place = FindingCounts(), 0, clock(), after
    for place, looked in _all(database, after, roots):
        counts.add(looked)
        things += 1
        full = things >= REPORT_THINGS or len(counts.findings) >= REPORT_FINDINGS
        if full or clock() - told >= REPORT_SECONDS:
            yield Report(counts, place)
            counts, things, told = FindingCounts(), 0, clock()
    yield Report(counts, None)


def _all(database: str, after: ResumePoint | None, roots: DatabaseRoots) -> Iterator[tuple[ResumePoint, Inspection]]:
    yield from _verify_parts("", (verify_functions, verify_histories), database, after)
    for name in LanceTables().list_tables(database):
        allowed = roots.allows_table(database, name)
        parts = _parts(table_verification.TableCheck(database, name)) if allowed else [partial(_refuse, name)]
        yield from _verify_parts(name, parts, database, after)


def _refuse(table: str, _database: str, _after: str) -> Things:
    raise PermissionDenied(
        "DATABASE_NOT_ALLOWED", f"{table}{TABLE_ENDING} is a link to where this service may not work: remove the link"
    )


def _parts(table: table_verification.TableCheck) -> list[Callable[[str, str], Things]]:
    """Return the parts of a table's verification, in the order of `ResumePoint.part`."""
    return [table.metadata, table.notes, table.files, table.checkpoints, table.source_records]


def _verify_parts(
    table: str, parts: Iterable[Callable[[str, str], Things]], database: str, after: ResumePoint | None
) -> Iterator[tuple[ResumePoint, Inspection]]:
    for part, things in enumerate(parts):
        here = (table, part)
        if after is not None and here < (after.table, after.part):
            continue
        name_after = after.name if after is not None and here == (after.table, after.part) else ""
        if name_after == _AFTER_ALL:
            continue
        try:
            for name, looked in things(database, name_after):
                yield ResumePoint(table, part, name), looked
        except LemanError as error:  # a folder that cannot be examined further
            yield ResumePoint(table, part, _AFTER_ALL), _unreadable(table, error)


def _unreadable(table: str, error: LemanError) -> Inspection:
    folder = f"{table}{TABLE_ENDING}" if table else OWN_FOLDER
    subject = Subject.TABLE if table else Subject.FUNCTION
    return Inspection(subject, 0, True, (Finding(subject, Flaw.UNREADABLE, folder, error.message, table),))
