"""The way through a database in a fixed order, so that a verification can stop anywhere and go on from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from leman_coordinator.verification import functions, histories, tables
from leman_coordinator.verification.report import Finding, FindingCounts, Flaw, Looked, ResumePoint, Subject
from leman_core.model.errors import LemanError, NotFound, PermissionDenied
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots
from leman_core.storage.locations import OWN_FOLDER, TABLE_ENDING
from leman_core.storage.tables import LanceTables, database_exists

#: A report at the latest after so many seconds, so many things, and so many findings: a message stays small.
REPORT_SECONDS, REPORT_THINGS, REPORT_FINDINGS = 0.5, 5000, 100

#: No name comes after it.
_AFTER_ALL = "\U0010ffff"
#: Things by name, in order; those up to the given name are left out.
Things = Iterable[tuple[str, Looked]]


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at since the report before."""

    counts: FindingCounts
    #: None in the last report.
    place: ResumePoint | None


def verify(
    database: str,
    after: ResumePoint | None,
    clock: Callable[[], float] = time.monotonic,
    roots: DatabaseRoots = EVERYWHERE,
) -> Iterator[Report]:
    """Look at everything in a database, and yield reports until all is looked at.

    Args:
        database: Canonical.
        after: The place to go on from; None: from the beginning.
        roots: Of a table that is a link out of these nothing is read.

    Raises:
        NotFound: DATABASE_NOT_FOUND – there is no such database.
        LemanError: what `storage_errors.failed` gives, where the storage cannot be used.
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


def _all(database: str, after: ResumePoint | None, roots: DatabaseRoots) -> Iterator[tuple[ResumePoint, Looked]]:
    yield from _of("", (functions.things, histories.things), database, after)
    for name in LanceTables().list_tables(database):
        allowed = roots.allows_table(database, name)
        parts = _parts(tables.TableCheck(database, name)) if allowed else [partial(_refuse, name)]
        yield from _of(name, parts, database, after)


def _refuse(table: str, _database: str, _after: str) -> Things:
    raise PermissionDenied(
        "DATABASE_NOT_ALLOWED", f"{table}{TABLE_ENDING} is a link to where this service may not work: remove the link"
    )


def _parts(table: tables.TableCheck) -> list[Callable[[str, str], Things]]:
    """Return the parts of a table's verification, in the order of `ResumePoint.part`."""
    return [table.metadata, table.notes, table.files, table.checkpoints, table.source_records]


def _of(
    table: str, parts: Iterable[Callable[[str, str], Things]], database: str, after: ResumePoint | None
) -> Iterator[tuple[ResumePoint, Looked]]:
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
        except LemanError as error:  # a folder, of which nothing else can be said
            yield ResumePoint(table, part, _AFTER_ALL), _unreadable(table, error)


def _unreadable(table: str, error: LemanError) -> Looked:
    folder = f"{table}{TABLE_ENDING}" if table else OWN_FOLDER
    subject = Subject.TABLE if table else Subject.FUNCTION
    return Looked(subject, 0, True, (Finding(subject, Flaw.UNREADABLE, folder, error.message, table),))
