"""`leman databases`, `leman tables`, `leman udfs`, `leman views`, `leman refresh`.

`leman databases`.

`leman views` and `leman refresh`.

`leman tables` and `leman udfs`.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import TYPE_CHECKING, Annotated, cast

import typer

from leman._locations import database_uri, far_uri
from leman._table_model import ViewInfo, column_tree, columns_read
from leman.cli._backfill_commands import IndexesOption, OnStaleInput, StaleOption, end, follow_job
from leman.cli._options import (
    DatabaseArgument,
    DatabaseLabelOption,
    EndpointOption,
    EnvOption,
    JsonOption,
    LabelOption,
    PriorityOption,
    TableArgument,
    TlsOption,
    TokenOption,
    connect_registry,
    env_of,
    labels_of,
    local_relations,
    open_database,
)
from leman.cli._output import note, plain, print_json, print_line, print_table
from leman.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leman._connect import DatabaseInfo
    from leman._database import Database
    from leman._jobs import JobFuture
    from leman._relation import FunctionColumn
    from leman._table import Table
    from leman._table_model import RefreshPolicy, RowStates, ViewSummary
    from leman._view import View, ViewFunctionColumn


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
    from leman._connect import DatabaseLimits  # noqa: PLC0415 - slow to import

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
    from leman._connect import DatabaseLimits  # noqa: PLC0415 - slow to import

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
        print_line(f"\nA refresh recomputes for every row: {', '.join(view.stale_columns)}")


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
    """Refresh the views that it rests on, and return whether `env` was given to one."""
    from leman._jobs import check_ended  # noqa: PLC0415 - slow to import

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
    """Begin a refresh, with `env` where a function of it can have that, and return whether one can."""
    from leman._jobs import with_usable_env  # noqa: PLC0415 - slow to import

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
    from leman._relation import FunctionColumn  # noqa: PLC0415 - slow to import

    name, equals, rest = text.partition("=")
    function, bracket, inputs = rest.partition("(")
    if not name or not equals or not function or (bracket and not inputs.endswith(")")):
        raise InvalidArgument(f"--column {text}: it is NAME=UDF, NAME=UDF@VERSION or NAME=UDF(COLUMN,…)")
    names = tuple(part.strip() for part in inputs.removesuffix(")").split(",") if part.strip())
    return FunctionColumn(name, function, names)


tables = typer.Typer(help="Lists and shows tables.", no_args_is_help=True)
udfs = typer.Typer(help="Lists and shows registered functions.", no_args_is_help=True)


@tables.command("ls")
def tables_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of a database."""
    found = local_relations(db, endpoint)
    if found is None:
        with open_database(db, endpoint, token, tls_ca) as database:
            found = [database.open_table(name).describe() for name in database.table_names()]
    if as_json:
        print_json(found)
        return
    headings = ("table", "kind", "rows", "fragments", "version", "computed columns")
    kinds = {True: "view", False: "table"}
    rows = [
        (
            t.name,
            kinds[isinstance(t, ViewInfo)],
            f"{t.row_count:,}",
            t.fragment_count,
            t.version,
            ", ".join(c.name for c in t.computed_columns),
        )
        for t in found
    ]
    print_table(headings, rows)


@tables.command("optimize-indices")
def tables_optimize_indices(
    db: DatabaseArgument,
    table: TableArgument,
    *,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only indexes on this column; may be given often.")
    ] = None,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the indexes of a table or view up to date, so that a fast search misses nothing."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found = database.open_table(table).optimize_indices(column)
    if as_json:
        print_json(found)
        return
    headings = ("index", "kind", "columns", "fragments covered", "rows left out")
    rows = [
        (i.name, i.kind, ", ".join(i.columns), f"{i.fragments_covered:,} of {i.fragments:,}", f"{i.rows_left_out:,}")
        for i in found
    ]
    print_table(headings, rows)


@tables.command("show")
def tables_show(
    db: DatabaseArgument,
    table: TableArgument,
    *,
    with_states: Annotated[
        bool, typer.Option("--states", help="Count the rows of computed columns: computed, NULL, failed, not computed.")
    ] = False,
    with_graph: Annotated[
        bool, typer.Option("--graph", help="Show which columns are computed from which, instead of the list.")
    ] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the columns of a table and what computes them."""
    read = None if with_states else local_relations(db, endpoint, table)
    states = {}
    if read is not None:
        found = read[0]
    else:
        with open_database(db, endpoint, token, tls_ca, direct=True) as database:
            opened = database.open_table(table)
            found = opened.describe()
            if with_states and isinstance(found, ViewInfo):
                raise NotSupported(f"'{table}' is a view and keeps no states of its rows: leave --states out")
            states = {c.name: opened.row_states(c.name) for c in found.computed_columns if with_states}
    if with_graph and isinstance(found, ViewInfo):
        raise NotSupported(f"'{table}' is a view, whose columns are computed from its source: leave --graph out")
    if as_json:
        more = {"row_states": states} if with_states else {}
        if with_graph:
            more["graph"] = {c.name: columns_read(c) for c in found.computed_columns}
        print_json({**plain(found), **more} if more else found)
        return
    if isinstance(found, ViewInfo):
        print_view(found)
        return
    ids = "" if found.stable_row_ids else ", no stable row ids"
    print_line(
        f"{found.name}: {found.row_count:,} rows in {found.fragment_count:,} fragments,"
        f" version {found.version}{ids}\n{found.uri}\n"
    )
    if with_graph:
        print_line("\n".join(column_tree(found)) or "no column is computed")
        return
    computed = {c.name: f"{c.udf_name}({', '.join(c.input_columns)})" for c in found.computed_columns}
    versions = {c.name: c.udf_version for c in found.computed_columns}
    print_table(
        ("column", "type", "computed by", "function version"),
        [(f.name, f.type, computed.get(f.name), versions.get(f.name)) for f in found.schema],
    )
    if states:
        print_line("")
        headings = ("column", "computed", "NULL", "kept", "failed", "to compute", "checkpointed", "ready")
        print_table(headings, [(name, *_counts(s)) for name, s in states.items()])


def _counts(states: RowStates) -> list[str]:
    kept = sum(k.rows for k in states.kept)
    counts = (states.computed, states.null, kept, states.failed, states.not_computed, states.checkpointed, states.ready)
    return [f"{n:,}" for n in counts]


@udfs.command("ls")
def udfs_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the registered functions of a database, newest version first."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        found = database.udfs()
    if as_json:
        print_json(found)
        return
    print_table(
        ("function", "version", "kind", "reads", "returns"),
        [
            (u.name, u.version, u.kind + (", class" if u.stateful else ""), ", ".join(u.input_columns), u.data_type)
            for u in found
        ],
    )


@udfs.command("show")
def udfs_show(
    db: DatabaseArgument,
    name: Annotated[str, typer.Argument(help="The function's name, or name@version.", show_default=False)],
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a registered function with its options: one version, or else the newest."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        found = database.udf(name)
    if as_json:
        print_json(found)
        return
    facts = {
        "kind": found.kind + (", class" if found.stateful else ""),
        "reads": ", ".join(found.input_columns),
        "returns": found.data_type,
        **({"expression": found.sql_expression} if found.sql_expression else {}),
        **({"served at": ", ".join(found.addresses)} if found.addresses else {}),
        **found.options,
    }
    print_line(f"{found.name}@{found.version}\n")
    print_table(("", ""), list(facts.items()))
    if found.source:
        print_line(f"\n{found.source}")
