"""`leman verify`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console

from leman._channel import Services
from leman._connect import connect
from leman._embedded import Embedded
from leman._local_database import check_there
from leman._names import database_uri
from leman._own_service import own_service
from leman._verify import Verification
from leman._verify import verify as verify_database
from leman.cli._options import DatabaseArgument, EndpointOption, JsonOption, TlsOption, TokenOption, connect_remote
from leman.cli._output import note, print_json, print_line, print_table

_INTERRUPTED = 130
_WITH_FINDINGS = 3

ResumeOption = Annotated[str, typer.Option(help="Go on where an interrupted run stopped, which told this token.")]


def verify(
    db: DatabaseArgument,
    *,
    resume: ResumeOption = "",
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare all that a database keeps with what was written. Changes nothing. Exit code 3: there are findings."""
    seen = [Verification(resume_token=resume)]
    try:
        with _services(db, endpoint, token, tls_ca) as (services, uri), _shown(quiet=as_json) as show:

            def progress(found: Verification) -> None:
                seen.append(found)
                del seen[0]
                show(found)

            verify_database(services, uri, resume, progress)
    except KeyboardInterrupt:
        if seen[0].resume_token:
            note(f"interrupted; go on with --resume {seen[0].resume_token}")
        _print(seen[0], as_json=as_json)
        raise typer.Exit(_INTERRUPTED) from None
    _print(seen[0], as_json=as_json)
    if seen[0].findings:
        raise typer.Exit(_WITH_FINDINGS)


@contextlib.contextmanager
def _services(db: str, endpoint: str | None, token: str | None, tls_ca: str | None) -> Iterator[tuple[Services, str]]:
    """Services that are there; else a coordinator of our own, as starting those of the database would write to it."""
    uri = database_uri(db)
    if endpoint is None and "://" not in uri:
        check_there(uri)
        if not Embedded(uri).is_running():
            with own_service("commit_coordinator") as services:
                yield services, uri
            return
    opened = connect(db) if endpoint is None else connect_remote(db, endpoint, token, tls_ca)
    with opened as database:
        yield database._services, database.uri


@contextlib.contextmanager
def _shown(*, quiet: bool) -> Iterator[Callable[[Verification], object]]:
    """What shows the progress on a terminal, in one line."""
    if quiet or not sys.stderr.isatty():
        yield lambda _found: None
        return
    with Console(stderr=True).status("verifying") as line:
        yield lambda found: line.update(f"{found}{f'; at {found.table}' if found.table else ''}")


def _print(found: Verification, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "sound": found.sound,
                "complete": found.complete,
                "resume_token": found.resume_token,
                "checked": found.checked,
                "findings": found.findings,
            }
        )
        return
    print_table(
        ("looked at", "number", "not verifiable", "with findings", "bytes"),
        [
            (c.subject.replace("_", " "), f"{c.looked:,}", f"{c.unverifiable:,}", f"{c.flawed:,}", f"{c.bytes:,}")
            for c in found.checked
        ],
    )
    for finding in found.findings:
        place = f" ({', '.join(finding.columns)}; fragment {finding.fragment_id}, {finding.rows:,} rows)"
        about = place if finding.fragment_id is not None else ""
        print_line(f"{finding.flaw} {finding.subject.replace('_', ' ')}{about}: {finding.message}")
    print_line(str(found))
