"""`leman views` and `leman refresh`."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Annotated, cast

import typer

from leman._names import database_uri, far_uri
from leman.cli._backfill import IndexesOption, OnStaleInput, StaleOption, end, follow_job
from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    EnvOption,
    JsonOption,
    LabelOption,
    PriorityOption,
    TlsOption,
    TokenOption,
    env_of,
    labels_of,
    open_database,
)
from leman.cli._output import note, print_json, print_line, print_table
from leman.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leman._database import Database
    from leman._future import JobFuture
    from leman._query import FunctionColumn
    from leman._table import Table
    from leman._view import View, ViewFunctionColumn
    from leman._view_model import RefreshPolicy, ViewInfo, ViewSummary

views = typer.Typer(help="Makes, lists, shows and drops materialized views.", no_args_is_help=True)

ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.")]
RowsOption = Annotated[int | None, typer.Option(min=1, help="Rows in each new fragment.")]


@views.command("ls")
def views_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the views of a database."""
    with (
        open_database(db, endpoint, token, tls_ca, direct=True) as database,
        warnings.catch_warnings(record=True) as remarks,
    ):
        warnings.simplefilter("always")
        found = database.views()
    for remark in remarks:
        note(str(remark.message))
    if as_json:
        print_json(found)
        return
    rows = [
        (v.name, _count(v.row_count), _count(v.rows_unset), v.source_table, v.source_version, v.version, _names(v))
        for v in found
    ]
    print_table(("view", "rows", "waiting", "source", "source version", "version", "stale columns"), rows)


def _count(number: int | None) -> str:
    """A number, or nothing where it is not known."""
    return "" if number is None else f"{number:,}"


def _names(view: ViewSummary) -> str:
    return ", ".join(view.stale_columns)


@views.command("show")
def views_show(
    db: DatabaseArgument,
    view: ViewArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a view holds, and which version of its source it is right for."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        found = database.open_view(view).describe()
    if as_json:
        print_json(found)
    else:
        print_view(found)


def print_view(view: ViewInfo) -> None:
    """A view for people."""
    query = view.query
    waiting = f", {view.rows_unset:,} wait for a refresh" if view.rows_unset else ""
    fixed = "" if view.row_reference == "stable_row_id" else ", can be refreshed to that version only"
    print_line(f"{view.name}: {view.row_count:,} rows{waiting}, version {view.version}\n{view.uri}")
    print_line(f"{query}\nof {query.source_database}, right for source version {view.source_version}{fixed}\n")
    made = {c.name: c.expression for c in query.columns}
    made |= {f.name: f"{f.udf_name}({', '.join(f.input_columns)})" for f in query.functions}
    versions = {f.name: f.udf_version for f in query.functions}
    rows = [(field.name, field.type, made.get(field.name), versions.get(field.name)) for field in view.schema]
    print_table(("column", "type", "is", "function version"), rows)
    if view.stale_columns:
        print_line(f"\nA refresh computes anew for every row: {', '.join(view.stale_columns)}")


@views.command("create")
def views_create(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    view: ViewArgument,
    *,
    source: Annotated[str, typer.Option(metavar="TABLE", help="The table or view that it is made from.")],
    source_db: Annotated[str | None, typer.Option(metavar="DB", help="Database of the source; else this one.")] = None,
    where: Annotated[str | None, typer.Option(help="Only rows for which this SQL expression is true.")] = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=SQL]", help="A column; may be given often. Without: all.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=UDF[@VERSION][(COLUMN,…)]", help="A column computed by a registered function."),
    ] = None,
    shuffle: Annotated[int | None, typer.Option(metavar="SEED", help="Rows in random order.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Leave out so many rows.")] = None,
    max_rows_per_fragment: RowsOption = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Show an existing view with the same query.")] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a view. It has no values before `leman refresh`."""
    with open_database(db, endpoint, token, tls_ca) as database:
        query = _source(database, source, source_db, far=endpoint is not None).search(None)
        query = query.where(where) if where is not None else query
        query = query.select(_selected(select)) if select else query
        query = query.shuffle(shuffle) if shuffle is not None else query
        query = query.limit(limit) if limit is not None else query
        query = query.offset(offset) if offset is not None else query
        query = dataclasses.replace(query, functions=tuple(map(_function, column or [])))
        with warnings.catch_warnings(record=True) as remarks:
            warnings.simplefilter("always")
            found = database.create_materialized_view(view, query, max_rows_per_fragment, exist_ok=exist_ok).describe()
    for remark in remarks:
        note(str(remark.message))
    if as_json:
        print_json(found)
    else:
        print_view(found)


@views.command("alter")
def views_alter(
    db: DatabaseArgument,
    view: ViewArgument,
    *,
    column: Annotated[
        list[str],
        typer.Option(metavar="NAME=UDF[@VERSION][(COLUMN,…)]", help="A column of the view, and its function now."),
    ],
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give columns of a view other registered functions. `leman refresh` then computes these columns, and no others."""
    wanted: dict[str, ViewFunctionColumn] = {c.name: (c.function, c.inputs) for c in map(_function, column)}
    with open_database(db, endpoint, token, tls_ca) as database:
        opened = database.open_view(view)
        opened.alter_columns(wanted)
        found = opened.describe()
    if as_json:
        print_json(found)
    else:
        print_view(found)


@views.command("drop")
def views_drop(
    db: DatabaseArgument,
    view: ViewArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Although other views of the database rest on it.")] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
) -> None:
    """Remove a view. Its source and its functions stay."""
    with open_database(db, endpoint, token, tls_ca) as database:
        database.drop_view(view, force=force)
    print_line(f"{view} is dropped")


def refresh(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    view: ViewArgument,
    *,
    src_version: Annotated[int | None, typer.Option(min=1, help="Bring it to this version of its source.")] = None,
    max_rows_per_fragment: RowsOption = None,
    policy: Annotated[str, typer.Option(metavar="auto|incremental|full", help="Which ways are allowed.")] = "auto",
    concurrency: Annotated[int | None, typer.Option(min=1, help="Worker processes at the most.")] = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="Refresh the views that it rests on first.")] = False,
    on_stale_input: StaleOption = OnStaleInput.ERROR,
    optimize_indices: IndexesOption = False,
    label: LabelOption = None,
    priority: PriorityOption = 0,
    env: EnvOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be done, and why.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the job has begun.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a view to the latest version of its source."""
    if plan and optimize_indices:
        raise InvalidArgument("--plan goes without --optimize-indices")
    if cascade and (src_version is not None or plan or no_wait):
        raise InvalidArgument("--cascade goes without --src-version, --plan and --no-wait")
    ways = cast("RefreshPolicy", policy)  # checked by what takes it
    given = env_of(env)
    with open_database(db, endpoint, token, tls_ca, direct=plan) as database:
        found = database.open_view(view)
        if plan:
            planned = found.plan_refresh(src_version, max_rows_per_fragment, ways, on_stale_input=on_stale_input.value)
            return print_json(planned) if as_json else print_line(str(planned))
        begin = functools.partial(
            found.refresh_async,
            src_version,
            max_rows_per_fragment,
            ways,
            concurrency=concurrency,
            on_stale_input=on_stale_input.value,
            optimize_indices=optimize_indices,
            labels=labels_of(label),
            priority=priority,
        )
        if cascade:
            had_env = _refresh_sources(found, ways, concurrency, on_stale_input, given, quiet=quiet)
            future, has_env = _begin(begin, given)
            if given and not (had_env or has_env):
                note(f"env is not used: no Python function computes {view} or a view that it reads")
        else:
            future = begin(env=given)
        job = future.job() if no_wait else follow_job(future, view, quiet=quiet)
    if no_wait and not as_json:
        print_line(job.job_id)
    return end(job, as_json=as_json)


def _refresh_sources(
    view: View,
    policy: RefreshPolicy,
    concurrency: int | None,
    on_stale_input: OnStaleInput,
    env: Mapping[str, str] | None,
    *,
    quiet: bool,
) -> bool:
    """Refresh the views that it rests on, and tell whether `env` was given to one."""
    from leman._future import check_ended  # noqa: PLC0415 - slow to import

    had_env = False
    for source in reversed(view.sources()):
        begin = functools.partial(
            source.refresh_async, policy=policy, concurrency=concurrency, on_stale_input=on_stale_input.value
        )
        future, has_env = _begin(begin, env)
        check_ended(follow_job(future, source.name, quiet=quiet))
        had_env |= has_env
    return had_env


def _begin(begin: Callable[..., JobFuture], env: Mapping[str, str] | None) -> tuple[JobFuture, bool]:
    """Begin a refresh, with `env` where a function of it can have that, and tell whether one can."""
    from leman._job_attributes import with_usable_env  # noqa: PLC0415 - slow to import

    return with_usable_env(lambda usable: (begin(env=usable), usable is not None), env)


def _source(database: Database, table: str, source_db: str | None, *, far: bool) -> Table:
    if source_db is None:
        return database.open_table(table)
    from leman._database import Database  # noqa: PLC0415 - slow to import

    uri = far_uri(source_db) if far else database_uri(source_db)
    return Database(uri, database._services).open_table(table)


def _selected(columns: list[str]) -> dict[str, str] | list[str]:
    if not any("=" in column for column in columns):
        return columns
    pairs = [column.partition("=") for column in columns]
    return {name: expression or f"`{name}`" for name, _, expression in pairs}


def _function(text: str) -> FunctionColumn:
    from leman._query import FunctionColumn  # noqa: PLC0415 - slow to import

    name, equals, rest = text.partition("=")
    function, bracket, inputs = rest.partition("(")
    if not name or not equals or not function or (bracket and not inputs.endswith(")")):
        raise InvalidArgument(f"--column {text}: it is NAME=UDF, NAME=UDF@VERSION or NAME=UDF(COLUMN,…)")
    names = tuple(part.strip() for part in inputs.removesuffix(")").split(",") if part.strip())
    return FunctionColumn(name, function, names)
