"""`leman checkpoints` and `leman verify`; what verifying needs is imported when it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from leman._locations import check_database_exists, database_uri
from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    JsonOption,
    LimitOption,
    TableArgument,
    TlsOption,
    TokenOption,
    connect_remote,
    open_database,
)
from leman.cli._output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from leman._maintenance import CheckpointCollection, StoredFile, Verification
    from leman._wire.channel import Services


checkpoints = typer.Typer(help="Lists checkpoints and removes those that nothing needs.", no_args_is_help=True)

AgeOption = Annotated[str, typer.Option(help="Garbage younger than this stays: 7d, 12h, 30m.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")]


@checkpoints.command("ls")
def checkpoints_ls(
    db: DatabaseArgument,
    table: TableArgument,
    *,
    limit: LimitOption = 1000,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List checkpoints, fragment records and staged column files: what each is for, and whether it is needed."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        found = database.open_table(table).checkpoints(limit=limit)
    if as_json:
        print_json(found)
        return
    _print_files(found)


@checkpoints.command("gc")
def checkpoints_gc(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    table: TableArgument,
    *,
    older_than: AgeOption = "7d",
    dry_run: DryRunOption = False,
    limit: LimitOption = 100,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete checkpoints and staged files of a table that nothing can need any more."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found = database.open_table(table).collect_checkpoints(older_than=older_than, dry_run=dry_run, limit=limit)
    if as_json:
        print_json(found)
        return
    _print_gc(found)


def _print_gc(found: CheckpointCollection) -> None:
    if found.files:
        _print_files(found.files)
        if found.files_removed > len(found.files):
            note(f"{found.files_removed - len(found.files):,} more are not listed: see --limit")
    print_line(str(found))


def _print_files(files: tuple[StoredFile, ...]) -> None:
    print_table(
        ("kind", "column", "function", "fragment", "rows", "bytes", "written", "why"),
        [
            (
                f.kind.replace("_", " "),
                f.column or f.path,
                f"{f.udf_name}@{f.udf_version}" if f.udf_name else None,
                f.fragment_id,
                f"{f.start}-{f.end}" if f.start is not None else None,
                f"{f.size_bytes:,}",
                f"{f.modify_time:%Y-%m-%d %H:%M:%S}",
                f.why,
            )
            for f in files
        ],
    )


_INTERRUPTED = 130
_WITH_FINDINGS = 3

ResumeOption = Annotated[str, typer.Option(help="Continue where an interrupted run stopped, which told this token.")]


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
    from leman import _maintenance  # noqa: PLC0415 - slow to import

    seen = [_maintenance.Verification(resume_token=resume)]
    try:
        with _services(db, endpoint, token, tls_ca) as (services, uri), _shown(quiet=as_json) as show:

            def progress(found: Verification) -> None:
                seen.append(found)
                del seen[0]
                show(found)

            _maintenance.verify(services, uri, resume, progress)
    except KeyboardInterrupt:
        if seen[0].resume_token:
            note(f"interrupted; continue with --resume {seen[0].resume_token}")
        _print(seen[0], as_json=as_json)
        raise typer.Exit(_INTERRUPTED) from None
    _print(seen[0], as_json=as_json)
    if seen[0].findings:
        raise typer.Exit(_WITH_FINDINGS)


@contextlib.contextmanager
def _services(db: str, endpoint: str | None, token: str | None, tls_ca: str | None) -> Iterator[tuple[Services, str]]:
    """Services that are there; else a coordinator of our own, as starting those of the database would write to it."""
    from leman._connect import connect  # noqa: PLC0415 - slow to import
    from leman._local.embedded_services import Embedded, ephemeral_service  # noqa: PLC0415 - likewise

    uri = database_uri(db)
    if endpoint is None and "://" not in uri:
        check_database_exists(uri)
        if not Embedded(uri).is_running():
            with ephemeral_service("commit_coordinator") as services:
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
    from rich.console import Console  # noqa: PLC0415 - slow to import

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
