"""`leman databases`."""

from __future__ import annotations

import warnings
from typing import Annotated

import typer

from leman._databases import DatabaseInfo
from leman.cli._options import JsonOption, LabelOption, TlsOption, TokenOption, connect_registry, labels_of
from leman.cli._output import note, print_json, print_line, print_table

databases = typer.Typer(help="Registers, lists, shows and unregisters databases by name.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the database.")]
RemoteOption = Annotated[str, typer.Option("--endpoint", help="host:port of running services.")]
DescriptionOption = Annotated[str | None, typer.Option(help="What people should know of it.")]


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
    print_table(("database", "root", "labels", "description"), [_row(database) for database in found])


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
def databases_register(
    name: NameArgument,
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Path or uri of the database, as the services reach it.")],
    *,
    description: DescriptionOption = None,
    label: LabelOption = None,
    endpoint: RemoteOption,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a database a name."""
    labels = labels_of(label)
    with connect_registry(endpoint, token, tls_ca) as registered:
        found = registered.register(name, root, description=description or "", labels=labels)
    _show(found, as_json=as_json)


@databases.command("update")
def databases_update(
    name: NameArgument,
    *,
    description: DescriptionOption = None,
    label: LabelOption = None,
    endpoint: RemoteOption,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the description of a database, or its labels: all that it is to have."""
    labels = labels_of(label) if label is not None else None
    with connect_registry(endpoint, token, tls_ca) as registered:
        found = registered.update(name, description=description, labels=labels)
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
        print_table(("database", "root", "labels", "description"), [_row(database)])


def _row(database: DatabaseInfo) -> tuple[str, str, str, str]:
    labels = " ".join(f"{key}={value}" for key, value in sorted(database.labels.items()))
    return database.name, database.root, labels, database.description
