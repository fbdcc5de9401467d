"""`leman databases`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated

import typer

from leman.cli._options import DatabaseLabelOption, JsonOption, TlsOption, TokenOption, connect_registry, labels_of
from leman.cli._output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from leman._databases import DatabaseInfo

_HEADINGS = ("database", "root", "labels", "jobs at once", "jobs waiting", "description")

databases = typer.Typer(help="Registers, lists, shows and unregisters databases by name.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the database.")]
RemoteOption = Annotated[str, typer.Option("--endpoint", help="host:port of running services.")]
DescriptionOption = Annotated[str | None, typer.Option(help="What people should know of it.")]
RunningOption = Annotated[int | None, typer.Option(min=1, help="Jobs of it that an executor runs at once.")]
WaitingOption = Annotated[int | None, typer.Option(min=0, help="Jobs of it that may wait for their turn.")]


@databases.command("ls")
def databases_ls(
    *, endpoint: RemoteOption, token: TokenOption = None, tls_ca: TlsOption = None, as_json: JsonOption = False
) -> None:
    """List the registered databases."""
    with connect_registry(endpoint, token, tls_ca) as registered, warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        found = registered.all()
    for remark in remarks:
        note(str(remark.message))
    if as_json:
        print_json(found)
        return
    print_table(_HEADINGS, [_row(database) for database in found])


@databases.command("show")
def databases_show(
    name: NameArgument,
    *,
    endpoint: RemoteOption,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a name stands for."""
    with connect_registry(endpoint, token, tls_ca) as registered:
        _show(registered.get(name), as_json=as_json)


@databases.command("register")
def databases_register(  # noqa: PLR0913 - a command's options, all by name
    name: NameArgument,
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Path or uri of the database, as the services reach it.")],
    *,
    description: DescriptionOption = None,
    label: DatabaseLabelOption = None,
    max_running_jobs: RunningOption = None,
    max_waiting_jobs: WaitingOption = None,
    endpoint: RemoteOption,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a database a name."""
    from leman._databases import DatabaseLimits  # noqa: PLC0415 - slow to import

    labels, limits = labels_of(label), DatabaseLimits(max_running_jobs, max_waiting_jobs)
    with connect_registry(endpoint, token, tls_ca) as registered:
        found = registered.register(name, root, description=description or "", labels=labels, limits=limits)
    _show(found, as_json=as_json)


@databases.command("update")
def databases_update(  # noqa: PLR0913 - a command's options, all by name
    name: NameArgument,
    *,
    description: DescriptionOption = None,
    label: DatabaseLabelOption = None,
    max_running_jobs: RunningOption = None,
    max_waiting_jobs: WaitingOption = None,
    endpoint: RemoteOption,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the description of a database, its labels or its limits: all labels or limits that it is to have."""
    from leman._databases import DatabaseLimits  # noqa: PLC0415 - slow to import

    labels = labels_of(label) if label is not None else None
    limited = max_running_jobs is not None or max_waiting_jobs is not None
    limits = DatabaseLimits(max_running_jobs, max_waiting_jobs) if limited else None
    with connect_registry(endpoint, token, tls_ca) as registered:
        found = registered.update(name, description=description, labels=labels, limits=limits)
    _show(found, as_json=as_json)


@databases.command("unregister")
def databases_unregister(
    name: NameArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Although jobs of the database have not ended.")] = False,
    endpoint: RemoteOption,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
) -> None:
    """Take the name from a database. All that is in it stays."""
    with connect_registry(endpoint, token, tls_ca) as registered:
        registered.unregister(name, force=force)
    print_line(f"{name} is not registered any more")


def _show(database: DatabaseInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(database)
    else:
        print_table(_HEADINGS, [_row(database)])


def _row(database: DatabaseInfo) -> tuple[object, ...]:
    labels = " ".join(f"{key}={value}" for key, value in sorted(database.labels.items()))
    limits = database.limits
    return database.name, database.root, labels, limits.max_running_jobs, limits.max_waiting_jobs, database.description
