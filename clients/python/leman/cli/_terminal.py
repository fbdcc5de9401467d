"""What all commands share: arguments and options, the connection that they describe, and printing.

Text from callers, tables and functions is printed without its control characters.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from leman._locations import check_database_exists, database_uri, far_uri
from leman.errors import FailedPrecondition, InvalidArgument, StartFailed

if TYPE_CHECKING:
    from leman._connect import Databases
    from leman._database import Database
    from leman._table import Table
    from leman._table_model import TableInfo

DatabaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="DB", help="Path or uri of the database. With --endpoint: an absolute one, or @NAME if registered."
    ),
]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")]
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="Name of the computed column.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
EndpointOption = Annotated[
    str | None, typer.Option(help="host:port of running services, several with commas; by default local services.")
]
RegistryOption = Annotated[str, typer.Option("--endpoint", help="host:port of running services.")]
TokenOption = Annotated[str | None, typer.Option(envvar="LEMAN_TOKEN", help="Token for the services at --endpoint.")]
TlsOption = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        envvar="LEMAN_TLS_CA",
        help="PEM file to check the services' certificates with. LEMAN_TLS_CERT and LEMAN_TLS_KEY name your own"
        " certificate and key; LEMAN_PLAINTEXT=true allows to send the token to other machines without TLS.",
    ),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of jobs; may be repeated.")
]
PriorityOption = Annotated[
    int, typer.Option(min=-100, max=100, help="Waiting jobs with a higher priority start first.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="An environment variable for the function, with its value here; may be repeated. If you write the value"
        " out, other users of this machine can see it, and the shell's history keeps it.",
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, help="At most this many.")]


@dataclass(frozen=True, slots=True)
class Connection:
    """The database that a command names (empty for the registry), and how to reach its services."""

    db: str
    endpoint: str | None
    token: str | None
    tls_ca: str | None

    def open(self, *, direct: bool = False) -> Database:
        """Open the database. Start local services if none run and the database exists.

        `direct` is `leman.connect`'s option, for commands that read tables and make no data frames. Raises NotFound
        (DATABASE_NOT_FOUND).
        """
        if self.endpoint is not None:
            return self.remote()
        if self.db.startswith("@"):
            raise InvalidArgument(
                f"{self.db} is a registered database: give --endpoint host:port of the services that know it"
            )
        uri = database_uri(self.db)
        if "://" not in uri:
            check_database_exists(uri)
        from leman import local  # noqa: PLC0415 - slow to import
        from leman._connect import connect  # noqa: PLC0415 - slow to import

        local.spare_pandas()
        return connect(self.db, direct=None if direct else False)

    def remote(self) -> Database:
        from leman._connect import connect  # noqa: PLC0415 - slow to import

        endpoint, credentials = self.endpoint or "", self._credentials()
        if self.db.startswith("@"):
            return connect(endpoint, database=self.db[1:], **credentials)
        return connect(far_uri(self.db, "@…"), endpoint, **credentials)

    def registry(self) -> Databases:
        from leman._connect import databases  # noqa: PLC0415 - slow to import

        return databases(self.endpoint or "", **self._credentials())

    def _credentials(self) -> dict[str, Any]:
        """Return the arguments of `leman.connect` that belong to the endpoint.

        A client certificate and a protected network are the same for all services. So the environment gives them,
        rather than an option of each command.
        """
        plaintext = os.environ.get("LEMAN_PLAINTEXT", "").lower()
        if plaintext not in ("", "0", "1", "false", "true"):
            raise InvalidArgument(f"LEMAN_PLAINTEXT is true or false, not {plaintext!r}")
        return {
            "token": self.token,
            "tls_ca": self.tls_ca,
            "tls_cert": os.environ.get("LEMAN_TLS_CERT"),
            "tls_key": os.environ.get("LEMAN_TLS_KEY"),
            "plaintext": plaintext in ("1", "true"),
        }

    def local_relations(self, name: str | None = None) -> list[TableInfo] | None:
        """Return the tables and views of a local database, or only the named one, without services or gRPC.

        None means: open the database instead. Raises NotFound (DATABASE_NOT_FOUND).
        """
        if self.endpoint is not None or self.db.startswith("@"):
            return None
        uri = database_uri(self.db)
        if "://" in uri:
            return None
        check_database_exists(uri)
        from leman import local  # noqa: PLC0415 - slow to import
        from leman._local import local_reads  # noqa: PLC0415

        if not local.is_available():
            return None
        local.spare_pandas()
        return local_reads.local_tables_and_views(uri, name)


_WAY = (
    Parameter("endpoint", Parameter.KEYWORD_ONLY, default=None, annotation=EndpointOption),
    Parameter("token", Parameter.KEYWORD_ONLY, default=None, annotation=TokenOption),
    Parameter("tls_ca", Parameter.KEYWORD_ONLY, default=None, annotation=TlsOption),
)
_DATABASE = Parameter("db", Parameter.POSITIONAL_OR_KEYWORD, annotation=DatabaseArgument)


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument DB and the connection options to a command whose first parameter is a Connection."""
    return _with_connection(command, [_DATABASE], _WAY)


def connected_registry(command: Callable[..., None]) -> Callable[..., None]:
    """Add the connection options to a command of the registry whose first parameter is a Connection."""
    endpoint, *others = _WAY
    return _with_connection(
        command, [], (endpoint.replace(default=Parameter.empty, annotation=RegistryOption), *others)
    )


def _with_connection(
    command: Callable[..., None], leading: Sequence[Parameter], options: Sequence[Parameter]
) -> Callable[..., None]:
    @functools.wraps(command)
    def run(**given: Any) -> None:
        way = {name: given.pop(name) for name in ("endpoint", "token", "tls_ca")}
        command(Connection(given.pop("db", ""), **way), **given)

    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    last = [each for each in own if each.name == "as_json"]  # the help lists --json last
    named = [each for each in own if each.kind is Parameter.KEYWORD_ONLY and each not in last]
    placed = [each for each in own if each.kind is not Parameter.KEYWORD_ONLY]
    parameters = [*leading, *placed, *named, *options, *last]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def labels_of(given: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or ()]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise typer.BadParameter(f"--label takes KEY=VALUE, not {key!r}")
    return {key: value for key, _, value in pairs}


def env_of(given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not name:
            raise typer.BadParameter("--env takes NAME, or NAME=VALUE")
        if not sign and name not in os.environ:
            raise typer.BadParameter(f"--env {name}: this environment variable is not set here: write NAME=VALUE")
        found[name] = value if sign else os.environ[name]
    return found


def plain_table(database: Database, name: str) -> Table:
    """Open a table that is not a view. Raises FailedPrecondition (IS_A_VIEW)."""
    from leman._table import Table  # noqa: PLC0415 - slow to import

    opened = database.open_table(name)
    if isinstance(opened, Table):
        return opened
    raise FailedPrecondition(f"'{name}' is a view: `leman refresh` computes its columns", reason="IS_A_VIEW")


_GAP = 2  # characters between columns
_LEAST = 12  # characters of a column that is cut
#: Control characters but line feeds and tabs, and those that change the direction of text, which disguise a name.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
#: Invisible characters. Joiners and variation selectors match only between ASCII characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e001f]"
    "|(?<![^\0-\x7f])[\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e01ef](?![^\0-\x7f])"
)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_Found = TypeVar("_Found")


def moment(when: datetime.datetime) -> str:
    """Return a local time. Leave out the date if it is today, and the year if it is this year."""
    here, now = when.astimezone(), datetime.datetime.now().astimezone()
    if here.date() == now.date():
        return f"{here:%H:%M:%S}"
    return f"{here:%m-%d %H:%M}" if here.year == now.year else f"{here:%Y-%m-%d %H:%M}"


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    for hidden in (_CONTROL, _INVISIBLE):
        text = hidden.sub(_in_json, text)
    sys.stdout.write(text + "\n")


def _in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def print_line(text: str) -> None:
    sys.stdout.write(_clean(text) + "\n")


def print_found(found: _Found, *, as_json: bool, show: Callable[[_Found], None] | None = None) -> None:
    """Print a command's result: as JSON, with `show`, or else as `str()`."""
    if as_json:
        print_json(found)
    elif show is not None:
        show(found)
    else:
        print_line(str(found))


def note(text: str) -> None:
    sys.stderr.write(f"leman: {_clean(text)}\n")
    sys.stderr.flush()


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print the warnings of a block at its end, including repeated ones."""
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        yield
    for remark in remarks:
        note(str(remark.message))


def fail(reason: str, message: str, facts: Mapping[str, str], *, code: int) -> int:
    """Print an error on standard error, and with --json also as a document on standard output. Return `code`."""
    first, *rest = message.strip().splitlines() or ["no message"]
    note(f"{first} [{reason}]")
    if rest:
        separator = "\n" if reason == StartFailed.default_reason else " "  # StartFailed quotes lines of a log
        sys.stderr.write(f"  {_clean(separator.join(rest).strip())}\n")
    if "--json" in sys.argv:
        print_json({"error": {"reason": reason, "message": message, "facts": facts}})
    return code


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], whole: Sequence[str] = (), *, cut_last: bool = False
) -> None:
    """Print rows in columns. Without rows, print only the headings. Piped output is never cut.

    Args:
        whole: Columns that a terminal never folds.
        cut_last: On a terminal, cut the last column so that each row takes one line.
    """
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    console = Console(width=None if sys.stdout.isatty() else 100_000)
    cells = [["" if value is None else _clean(str(value)) for value in row] for row in rows]
    if cut_last and sys.stdout.isatty():
        headings, cells = _with_last_cut(headings, cells, console.width)
    for index, heading in enumerate(headings):
        numeric = all(row[index].replace(",", "").isdigit() for row in cells) and bool(cells)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
        is_whole = heading in whole or not sys.stdout.isatty()
        table.columns[-1].no_wrap = is_whole
        table.columns[-1].min_width = max(map(len, [heading, *(row[index] for row in cells)])) if is_whole else None
    for row in cells:
        table.add_row(*map(escape, row))
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")  # `line` may contain colours


def _clean(text: str) -> str:
    shown = _CONTROL.sub("\ufffd", _COLOUR.sub("", text))
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), shown)


def _with_last_cut(
    headings: Sequence[str], cells: list[list[str]], width: int
) -> tuple[Sequence[str], list[list[str]]]:
    """Cut the last column to the remaining width. Leave it out if only a word or two would fit."""
    others = headings[:-1]
    taken = sum(max(len(name), *(len(row[i]) for row in cells), 0) + _GAP for i, name in enumerate(others))
    room = width - taken
    if room < _LEAST:
        return others, [row[:-1] for row in cells]
    return headings, [[*row, text if len(text) <= room else f"{text[: room - 1]}…"] for *row, text in cells]


def plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    pa = sys.modules.get("pyarrow")  # if it is not imported, no value is an Arrow value
    if pa is not None and isinstance(value, pa.Schema):
        return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in value]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(value) if pa is not None and isinstance(value, pa.DataType) else value
