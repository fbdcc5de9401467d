"""`leman plan`, `leman backfill`, `leman preview`.

`leman plan` and `leman backfill`.

`leman preview`.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leman._installed import is_installed
from leman._job_model import Job, JobState
from leman.cli._options import (
    ColumnArgument,
    DatabaseArgument,
    EndpointOption,
    EnvOption,
    JsonOption,
    LabelOption,
    PriorityOption,
    TableArgument,
    TlsOption,
    TokenOption,
    env_of,
    labels_of,
    open_database,
    plain_table,
)
from leman.cli._output import note, print_json, print_line
from leman.errors import InvalidArgument, JobCancelled, JobFailed
from leman.progress import make_display

if TYPE_CHECKING:
    from leman._functions.udf_decorator import UDF
    from leman._jobs import JobFuture
    from leman._preview import Preview


class OnStaleInput(enum.StrEnum):
    """The words of `BackfillParameters.on_stale_input`."""

    ERROR = "error"
    WARN = "warn"
    FIRST = "first"


INTERRUPTED = 130
EXIT_CODES = {JobState.DONE_WITH_ERRORS: 3, JobState.FAILED: 1, JobState.CANCELLED: 1}

ColumnsArgument = Annotated[list[str] | None, typer.Argument(metavar="[COLUMN]...", help="The columns' names.")]
WhereOption = Annotated[str | None, typer.Option(help="Only rows for which this SQL expression is true.")]
UdfOption = Annotated[str | None, typer.Option(metavar="NAME[@VERSION]", help="Use this registered function instead.")]
VersionOption = Annotated[
    str | None, typer.Option(metavar="NUMBER|TAG", help="Compute from this version of the table, or that of a tag.")
]
FragmentsOption = Annotated[int | None, typer.Option(min=1, help="At most this many fragments, for a sample run.")]
StaleOption = Annotated[
    OnStaleInput,
    typer.Option(
        "--on-stale-input",
        help="If it reads computed columns that are not current: refuse, use them with a warning, or compute them.",
    ),
]
IndexesOption = Annotated[
    bool, typer.Option("--optimize-indices", help="Then bring the indexes on what was written up to date.")
]


def plan(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    table: TableArgument,
    column: ColumnArgument,
    *,
    where: WhereOption = None,
    udf: UdfOption = None,
    read_version: VersionOption = None,
    num_frags: FragmentsOption = None,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a backfill would compute, what it would reuse, and why. Changes nothing."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        found = plain_table(database, table).plan_backfill(
            column, udf=udf, where=where, read_version=_version(read_version), num_frags=num_frags
        )
    if as_json:
        print_json(found)
    else:
        print_line(str(found))


def backfill(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    table: TableArgument,
    columns: ColumnsArgument = None,
    *,
    where: WhereOption = None,
    udf: UdfOption = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Worker processes at the most.")] = None,
    intra_applier_concurrency: Annotated[int | None, typer.Option(min=1, help="Threads in each of them.")] = None,
    checkpoint_size: Annotated[int | None, typer.Option(min=1, help="Rows between checkpoints at the most.")] = None,
    min_checkpoint_size: Annotated[int | None, typer.Option(min=1, help="… at the least.")] = None,
    max_checkpoint_size: Annotated[int | None, typer.Option(min=1, help="… at the most.")] = None,
    task_size: Annotated[int | None, typer.Option(min=1, help="Rows in a unit of work.")] = None,
    task_shuffle_diversity: Annotated[
        int | None, typer.Option(min=1, help="Fragments whose units are handed out in turn.")
    ] = None,
    commit_granularity: Annotated[int | None, typer.Option(min=1, help="Fragments between commits.")] = None,
    commit_rows: Annotated[int | None, typer.Option(min=1, help="Rows between commits, inside fragments too.")] = None,
    read_version: VersionOption = None,
    num_frags: FragmentsOption = None,
    on_stale_input: StaleOption = OnStaleInput.ERROR,
    optimize_indices: IndexesOption = False,
    label: LabelOption = None,
    priority: PriorityOption = 0,
    env: EnvOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the job has begun.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the missing and stale values of a column, or of several: of all computed ones where none is named."""
    with open_database(db, endpoint, token, tls_ca) as database:
        named = columns or []
        future = plain_table(database, table).backfill_async(
            named[0] if len(named) == 1 else named or None,
            udf=udf,
            labels=labels_of(label),
            priority=priority,
            env=env_of(env),
            where=where,
            concurrency=concurrency,
            intra_applier_concurrency=intra_applier_concurrency,
            checkpoint_size=checkpoint_size,
            min_checkpoint_size=min_checkpoint_size,
            max_checkpoint_size=max_checkpoint_size,
            task_size=task_size,
            task_shuffle_diversity=task_shuffle_diversity,
            commit_granularity=commit_granularity,
            commit_rows=commit_rows,
            read_version=_version(read_version),
            num_frags=num_frags,
            on_stale_input=on_stale_input.value,
            optimize_indices=optimize_indices,
        )
        if no_wait:
            job = future.job()
            if not as_json:
                print_line(job.job_id)
        else:
            job = follow_job(
                future,
                f"{table}.{named[0]}" if len(named) == 1 else f"{table}: {len(named) or 'all'} columns",
                quiet=quiet,
            )
    end(job, as_json=as_json)


def follow_job(future: JobFuture, name: str, *, quiet: bool, cancel: bool = True) -> Job:
    """Show a job on standard error until its end; `cancel`: whether Ctrl-C cancels it."""
    from leman._jobs import follow  # noqa: PLC0415 - slow to import

    try:
        return follow(future, make_display(False if quiet else None, name), cancel=cancel)
    except KeyboardInterrupt as error:
        note(str(error))
        raise typer.Exit(INTERRUPTED) from None


def end(job: Job, *, as_json: bool) -> None:
    """Tell how a job stands as the exit code, and with `as_json` as a document. Raises JobFailed, JobCancelled."""
    from leman._jobs import check_ended  # noqa: PLC0415 - slow to import

    if as_json:
        print_json(job)
    try:
        check_ended(job)
    except (JobFailed, JobCancelled) as error:
        if not as_json:
            raise
        note(f"{error.message.splitlines()[0]} [{error.reason}]")
    raise typer.Exit(EXIT_CODES.get(job.state, 0))


def _version(given: str | None) -> int | str | None:
    return int(given) if given is not None and given.isdecimal() else given


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
    from leman._functions.udf_decorator import UDF, udf  # noqa: PLC0415 - slow to import

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
