"""`leman preview`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leman._job_model import JobState
from leman._modules import is_installed
from leman.cli._backfill import EXIT_CODES, UdfOption, VersionOption, _version
from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    EnvOption,
    JsonOption,
    TableArgument,
    TlsOption,
    TokenOption,
    env_of,
    open_database,
    plain_table,
)
from leman.cli._output import print_json, print_line
from leman.errors import InvalidArgument

if TYPE_CHECKING:
    from leman._preview import Preview
    from leman._udf import UDF

FunctionArgument = Annotated[
    str,
    typer.Argument(
        metavar="COLUMN|FUNCTION",
        help="A computed column; or module:function, file.py:function, NAME@VERSION, or a SQL expression.",
    ),
]


def preview(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    table: TableArgument,
    function: FunctionArgument,
    *,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, max=100, help="How many rows.")] = 5,
    where: Annotated[str | None, typer.Option(help="The first rows for which this SQL expression is true.")] = None,
    udf: UdfOption = None,
    read_version: VersionOption = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME", help="Column for the function's next parameter; may be given again."),
    ] = None,
    env: EnvOption = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds that it may take; 30 by itself.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Worker processes of the backfill to come.")] = None,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try a function on a few rows: values, errors and time, and what the whole table would take. Writes nothing."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found: Any = load(function) or function
        made = plain_table(database, table).preview(
            (found, column) if column else found,
            rows,
            where=where,
            udf=udf,
            read_version=_version(read_version),
            timeout=timeout,
            concurrency=concurrency,
            env=env_of(env),
        )
    if as_json:
        print_json(document(made))
    else:
        print_line(str(made))
    if any(row.state != "computed" for row in made.rows) or made.timed_out:
        raise typer.Exit(EXIT_CODES[JobState.DONE_WITH_ERRORS])


def load(named: str) -> UDF | None:
    """The function that `module:function` or `file.py:function` names; None: the text is nothing of that kind.

    Raises InvalidArgument where it names nothing that can be imported.
    """
    module, colon, name = named.rpartition(":")
    dotted = module.replace(".", "_").isidentifier()
    if not colon or not name.replace(".", "_").isidentifier() or not (dotted or module.endswith(".py")):
        return None
    try:
        target: Any = _file(Path(module)) if module.endswith(".py") else _module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except Exception as error:  # noqa: BLE001 - importing runs the caller's code
        raise InvalidArgument(f"{named} cannot be imported: {type(error).__name__}: {error}") from None
    from leman._udf import UDF, udf  # noqa: PLC0415 - slow to import

    return target if isinstance(target, UDF) else udf(target)


def document(made: Preview) -> dict[str, Any]:
    """A preview as JSON can hold it: values are texts."""
    names = [*made.input_columns, "output"]
    return {
        "function": f"{made.udf_name}@{made.udf_version}",
        "table": made.table,
        "input_columns": made.input_columns,
        "data_type": made.data_type,
        "read_version": made.read_version,
        "where": made.where,
        "rows": [
            {
                "state": row.state,
                "row_address": row.row_address,
                "row_id": row.row_id,
                "values": dict(zip(names, row.texts, strict=True)),
                "seconds": row.seconds,
                "error": row.error,
            }
            for row in made.rows
        ],
        "fails": made.fails,
        "timed_out": made.timed_out,
        "rows_to_compute": made.rows_to_compute,
        "workers": made.workers,
        "seconds_per_row": made.seconds_per_row,
        "expected_seconds": made.expected_seconds,
        "set_up_seconds": made.set_up_seconds,
        "printed": made.printed,
        "printed_bytes": made.printed_bytes,
    }


def _module(name: str) -> Any:
    """Import a module; those beside which the command is typed are found too."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _file(path: Path) -> Any:
    name = f"{path.stem}_" if is_installed(path.stem) else path.stem  # an installed module keeps its name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
