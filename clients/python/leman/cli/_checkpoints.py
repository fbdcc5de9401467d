"""`leman checkpoints`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    JsonOption,
    LimitOption,
    TableArgument,
    TlsOption,
    TokenOption,
    open_database,
)
from leman.cli._output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from leman._garbage import CheckpointCollection, StoredFile

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
