"""Arguments and options that commands share, and the connection that they describe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leman._locations import check_database_exists, database_uri, far_uri
from leman.errors import FailedPrecondition, InvalidArgument

if TYPE_CHECKING:
    from leman._connect import Databases
    from leman._database import Database
    from leman._table import Table
    from leman._table_model import TableInfo

DatabaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="DB", help="Path or uri of the database; with --endpoint an absolute one, or @NAME of a registered one."
    ),
]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")]
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="Name of the computed column.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
EndpointOption = Annotated[
    str | None,
    typer.Option(help="host:port of running services, or several with commas; else this machine's own."),
]
TokenOption = Annotated[str | None, typer.Option(envvar="LEMAN_TOKEN", help="What the services at --endpoint ask for.")]
TlsOption = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        envvar="LEMAN_TLS_CA",
        help="PEM file to check the services' certificates with. LEMAN_TLS_CERT and LEMAN_TLS_KEY name one of yours;"
        " LEMAN_PLAINTEXT=true has the token sent to other machines without TLS.",
    ),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of jobs; may be given again.")
]
DatabaseLabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of the database; may be given again.")
]
PriorityOption = Annotated[
    int, typer.Option(min=-100, max=100, help="Of jobs that wait, those with a higher one have their turn first.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="An environment variable of the function, with the value that it has here; may be given again. A value"
        " that is written out can be seen by other users of this machine, and stays in the shell's history.",
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, help="At most this many.")]


def labels_of(given: list[str] | None) -> dict[str, str]:
    """The labels that `--label` names."""
    pairs = [text.partition("=") for text in given or ()]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise typer.BadParameter(f"--label takes KEY=VALUE, not {key!r}")
    return {key: value for key, _, value in pairs}


def env_of(given: list[str] | None) -> dict[str, str] | None:
    """The environment variables that `--env` names."""
    if not given:
        return None
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not name:
            raise typer.BadParameter("--env takes NAME, or NAME=VALUE")
        if not sign and name not in os.environ:
            raise typer.BadParameter(f"--env {name}: there is no such environment variable here")
        found[name] = value if sign else os.environ[name]
    return found


def plain_table(database: Database, name: str) -> Table:
    """Open what is a table and no view. Raises FailedPrecondition (IS_A_VIEW)."""
    from leman._table import Table  # noqa: PLC0415 - slow to import

    opened = database.open_table(name)
    if isinstance(opened, Table):
        return opened
    raise FailedPrecondition(f"'{name}' is a view: `leman refresh` computes its columns", reason="IS_A_VIEW")


def connect_remote(db: str, endpoint: str, token: str | None, tls_ca: str | None) -> Database:
    """The database by way of the services at an endpoint, with the caller's certificate if the environment names one.

    Anyone who has one has it for all services: so it is no option of each command, nor is a network that is protected.
    """
    from leman._connect import connect  # noqa: PLC0415 - slow to import

    shown = _shown_to_services(token, tls_ca)
    if db.startswith("@"):
        return connect(endpoint, database=db[1:], **shown)
    return connect(far_uri(db, "@…"), endpoint, **shown)


def connect_registry(endpoint: str, token: str | None, tls_ca: str | None) -> Databases:
    """The registered databases of the services at an endpoint; certificates as for `connect_remote`."""
    from leman._connect import databases  # noqa: PLC0415 - slow to import

    return databases(endpoint, **_shown_to_services(token, tls_ca))


def _shown_to_services(token: str | None, tls_ca: str | None) -> dict[str, Any]:
    """What `leman.connect` takes beside the endpoint, also by the environment."""
    plaintext = os.environ.get("LEMAN_PLAINTEXT", "").lower()
    if plaintext not in ("", "0", "1", "false", "true"):
        raise InvalidArgument(f"LEMAN_PLAINTEXT is true or false, not {plaintext!r}")
    return {
        "token": token,
        "tls_ca": tls_ca,
        "tls_cert": os.environ.get("LEMAN_TLS_CERT"),
        "tls_key": os.environ.get("LEMAN_TLS_KEY"),
        "plaintext": plaintext in ("1", "true"),
    }


def local_relations(db: str, endpoint: str | None, name: str | None = None) -> list[TableInfo] | None:
    """The tables and views of a local database, or one of them, as this process reads them, which needs neither
    services nor what calls them; None: a database is to be opened for that. Raises NotFound (DATABASE_NOT_FOUND)."""
    if endpoint is not None or db.startswith("@"):
        return None
    uri = database_uri(db)
    if "://" in uri:
        return None
    check_database_exists(uri)
    from leman import local  # noqa: PLC0415 - slow to import
    from leman._local import local_reads  # noqa: PLC0415

    if not local.is_available():
        return None
    local.spare_pandas()
    return local_reads.local_tables_and_views(uri, name)


def open_database(
    db: str, endpoint: str | None, token: str | None, tls_ca: str | None, *, direct: bool = False
) -> Database:
    """The database that the options name. Local services are started where there are none and the database is there.
    `direct`: as for `leman.connect`, where pylance is installed, for commands that look into tables and make no data
    frames.

    Raises NotFound (DATABASE_NOT_FOUND) where there is none.
    """
    if endpoint is not None:
        return connect_remote(db, endpoint, token, tls_ca)
    if db.startswith("@"):
        raise InvalidArgument(f"{db} is a registered database: say --endpoint host:port of the services that know it")
    uri = database_uri(db)
    if "://" not in uri:
        check_database_exists(uri)
    from leman import local  # noqa: PLC0415 - slow to import
    from leman._connect import connect  # noqa: PLC0415 - slow to import

    local.spare_pandas()
    return connect(db, direct=None if direct else False)
