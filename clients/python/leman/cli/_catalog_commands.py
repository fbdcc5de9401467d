"""`leman databases`, `tables`, `udfs`, `views`, `refresh`, `checkpoints` and `verify`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, cast

import typer

from leman._locations import check_database_exists, database_uri, far_uri
from leman._table_model import TableInfo, UdfInfo, ViewInfo, column_tree, columns_read
from leman.cli._job_commands import (
    INTERRUPTED,
    IndexesOption,
    NoWaitOption,
    OnStaleInput,
    QuietOption,
    StaleOption,
    WhereOption,
    end,
    follow_job,
)
from leman.cli._terminal import (
    Connection,
    EnvOption,
    JsonOption,
    LabelOption,
    LimitOption,
    PriorityOption,
    TableArgument,
    connected,
    connected_registry,
    env_of,
    labels_of,
    note,
    plain,
    print_found,
    print_json,
    print_line,
    print_table,
    warnings_as_notes,
)
from leman.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    from leman._connect import DatabaseInfo
    from leman._database import Database
    from leman._jobs import JobFuture
    from leman._maintenance import CheckpointCollection, StoredFile, Verification
    from leman._relation import FunctionColumn
    from leman._table import Table
    from leman._table_model import IndexCoverage, RefreshPolicy, RowStates, ViewSummary
    from leman._view import View, ViewFunctionColumn
    from leman._wire.channel import Services


_HEADINGS = ("database", "root", "labels", "jobs at once", "jobs waiting", "description")

databases = typer.Typer(help="Registers, lists, shows and unregisters databases by name.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the database.")]
DatabaseLabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="A label of the database; may be repeated.")
]
DescriptionOption = Annotated[str | None, typer.Option(help="A description for people who look for a database.")]
RunningOption = Annotated[int | None, typer.Option(min=1, help="How many of its jobs an executor runs concurrently.")]
WaitingOption = Annotated[int | None, typer.Option(min=0, help="How many of its jobs may wait to start.")]


@databases.command("ls")
@connected_registry
def databases_ls(connection: Connection, *, as_json: JsonOption = False) -> None:
    """List the registered databases."""
    with connection.registry() as registered, warnings_as_notes():
        found = registered.all()
    print_found(found, as_json=as_json, show=_print_databases)


@databases.command("show")
@connected_registry
def databases_show(connection: Connection, name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Show a registered database."""
    with connection.registry() as registered:
        print_found(registered.get(name), as_json=as_json, show=_print_database)


@databases.command("register")
@connected_registry
def databases_register(
    connection: Connection,
    name: NameArgument,
    root: Annotated[str, typer.Argument(metavar="ROOT", help="Path or uri of the database, as the services reach it.")],
    *,
    description: DescriptionOption = None,
    label: DatabaseLabelOption = None,
    max_running_jobs: RunningOption = None,
    max_waiting_jobs: WaitingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a database under a name."""
    from leman._connect import DatabaseLimits  # noqa: PLC0415 - slow to import

    labels, limits = labels_of(label), DatabaseLimits(max_running_jobs, max_waiting_jobs)
    with connection.registry() as registered:
        found = registered.register(name, root, description=description or "", labels=labels, limits=limits)
    print_found(found, as_json=as_json, show=_print_database)


@databases.command("update")
@connected_registry
def databases_update(
    connection: Connection,
    name: NameArgument,
    *,
    description: DescriptionOption = None,
    label: DatabaseLabelOption = None,
    max_running_jobs: RunningOption = None,
    max_waiting_jobs: WaitingOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a database's description, labels or limits. Labels and limits replace all that are set now."""
    from leman._connect import DatabaseLimits  # noqa: PLC0415 - slow to import

    labels = labels_of(label) if label is not None else None
    limited = max_running_jobs is not None or max_waiting_jobs is not None
    limits = DatabaseLimits(max_running_jobs, max_waiting_jobs) if limited else None
    with connection.registry() as registered:
        found = registered.update(name, description=description, labels=labels, limits=limits)
    print_found(found, as_json=as_json, show=_print_database)


@databases.command("unregister")
@connected_registry
def databases_unregister(
    connection: Connection,
    name: NameArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if jobs of the database have not ended.")] = False,
) -> None:
    """Remove the name of a database. The database and its data stay."""
    with connection.registry() as registered:
        registered.unregister(name, force=force)
    print_line(f"{name} is not registered any more")


def _print_database(database: DatabaseInfo) -> None:
    _print_databases([database])


def _print_databases(found: list[DatabaseInfo]) -> None:
    rows = []
    for each in found:
        labels = " ".join(f"{key}={value}" for key, value in sorted(each.labels.items()))
        limits = each.limits
        rows.append((each.name, each.root, labels, limits.max_running_jobs, limits.max_waiting_jobs, each.description))
    print_table(_HEADINGS, rows)


views = typer.Typer(help="Makes, lists, shows and drops materialized views.", no_args_is_help=True)

ViewArgument = Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.")]
RowsOption = Annotated[int | None, typer.Option(min=1, help="Rows in each new fragment.")]
_FUNCTION_FORM = "NAME=UDF[@VERSION][(COLUMN,…)]"


@views.command("ls")
@connected
def views_ls(connection: Connection, *, as_json: JsonOption = False) -> None:
    """List the views of a database."""
    with connection.open(direct=True) as database, warnings_as_notes():
        found = database.views()
    print_found(found, as_json=as_json, show=_print_views)


def _print_views(found: list[ViewSummary]) -> None:
    rows = []
    for v in found:
        counts = ["" if number is None else f"{number:,}" for number in (v.row_count, v.rows_unset)]
        rows.append((v.name, *counts, v.source_table, v.source_version, v.version, ", ".join(v.stale_columns)))
    print_table(("view", "rows", "waiting", "source", "source version", "version", "stale columns"), rows)


@views.command("show")
@connected
def views_show(connection: Connection, view: ViewArgument, *, as_json: JsonOption = False) -> None:
    """Show a view's query and columns, and the source version that it matches."""
    with connection.open(direct=True) as database:
        found = database.open_view(view).describe()
    print_found(found, as_json=as_json, show=_print_view)


def _print_view(view: ViewInfo) -> None:
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
@connected
def views_create(  # noqa: PLR0913 - a command's options, all by name
    connection: Connection,
    view: ViewArgument,
    *,
    source: Annotated[str, typer.Option(metavar="TABLE", help="The table or view that it reads.")],
    source_db: Annotated[str | None, typer.Option(metavar="DB", help="Database of the source, by default DB.")] = None,
    where: WhereOption = None,
    select: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=SQL]", help="A column; may be repeated. By default all.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(metavar=_FUNCTION_FORM, help="A column computed by a registered function.")
    ] = None,
    shuffle: Annotated[int | None, typer.Option(metavar="SEED", help="Rows in random order.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="The maximum number of rows.")] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="The number of rows to skip.")] = None,
    max_rows_per_fragment: RowsOption = None,
    exist_ok: Annotated[bool, typer.Option("--exist-ok", help="Show an existing view with the same query.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Create a view. Its columns are empty until `leman refresh`."""
    with connection.open() as database:
        query = _source(database, source, source_db, far=connection.endpoint is not None).search(None)
        query = query.where(where) if where is not None else query
        query = query.select(_selected(select)) if select else query
        query = query.shuffle(shuffle) if shuffle is not None else query
        query = query.limit(limit) if limit is not None else query
        query = query.offset(offset) if offset is not None else query
        query = dataclasses.replace(query, functions=tuple(map(_function, column or [])))
        with warnings_as_notes():
            found = database.create_materialized_view(view, query, max_rows_per_fragment, exist_ok=exist_ok).describe()
    print_found(found, as_json=as_json, show=_print_view)


@views.command("alter")
@connected
def views_alter(
    connection: Connection,
    view: ViewArgument,
    *,
    column: Annotated[list[str], typer.Option(metavar=_FUNCTION_FORM, help="A column of the view, and its function.")],
    as_json: JsonOption = False,
) -> None:
    """Replace the registered functions of a view's columns. `leman refresh` then recomputes only these columns."""
    wanted: dict[str, ViewFunctionColumn] = {c.name: (c.function, c.inputs) for c in map(_function, column)}
    with connection.open() as database:
        opened = database.open_view(view)
        opened.alter_columns(wanted)
        found = opened.describe()
    print_found(found, as_json=as_json, show=_print_view)


@views.command("drop")
@connected
def views_drop(
    connection: Connection,
    view: ViewArgument,
    *,
    force: Annotated[bool, typer.Option("--force", help="Even if other views of the database read it.")] = False,
) -> None:
    """Remove a view. Its source and its functions stay."""
    with connection.open() as database:
        database.drop_view(view, force=force)
    print_line(f"{view} is dropped")


@connected
def refresh(  # noqa: PLR0913 - a command's options, all by name
    connection: Connection,
    view: ViewArgument,
    *,
    src_version: Annotated[int | None, typer.Option(min=1, help="Refresh to this version of its source.")] = None,
    max_rows_per_fragment: RowsOption = None,
    policy: Annotated[str, typer.Option(metavar="auto|incremental|full", help="Which refreshes are allowed.")] = "auto",
    concurrency: Annotated[int | None, typer.Option(min=1, help="At most this many worker processes.")] = None,
    cascade: Annotated[bool, typer.Option("--cascade", help="First refresh the views that it reads.")] = False,
    on_stale_input: StaleOption = OnStaleInput.ERROR,
    optimize_indices: IndexesOption = False,
    label: LabelOption = None,
    priority: PriorityOption = 0,
    env: EnvOption = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what a refresh would do, and why.")] = False,
    no_wait: NoWaitOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Refresh a view to the latest version of its source."""
    if plan and optimize_indices:
        raise InvalidArgument("--plan cannot be combined with --optimize-indices: leave one out")
    if cascade and (src_version is not None or plan or no_wait):
        raise InvalidArgument("--cascade cannot be combined with --src-version, --plan or --no-wait: leave one out")
    ways = cast("RefreshPolicy", policy)  # `refresh_spec` checks it
    given = env_of(env)
    with connection.open(direct=plan) as database:
        found = database.open_view(view)
        if plan:
            planned = found.plan_refresh(src_version, max_rows_per_fragment, ways, on_stale_input=on_stale_input.value)
            return print_found(planned, as_json=as_json)
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
                note(f"env has no effect: no Python function computes {view} or a view that it reads")
        else:
            future = begin(env=given)
        job = future.job() if no_wait else follow_job(future, view, quiet=quiet)
    return end(job, as_json=as_json, no_wait=no_wait)


def _refresh_sources(
    view: View,
    policy: RefreshPolicy,
    concurrency: int | None,
    on_stale_input: OnStaleInput,
    env: Mapping[str, str] | None,
    *,
    quiet: bool,
) -> bool:
    """Refresh the views that `view` reads, also indirectly. Return whether a function of one of them received `env`."""
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
    """Begin a refresh, with `env` if one of its functions can receive it. Return the job, and whether one can."""
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
        raise InvalidArgument(f"--column {text}: write NAME=UDF, NAME=UDF@VERSION or NAME=UDF(COLUMN,…)")
    names = tuple(part.strip() for part in inputs.removesuffix(")").split(",") if part.strip())
    return FunctionColumn(name, function, names)


tables = typer.Typer(help="Lists and shows tables.", no_args_is_help=True)
udfs = typer.Typer(help="Lists and shows registered functions.", no_args_is_help=True)


@tables.command("ls")
@connected
def tables_ls(connection: Connection, *, as_json: JsonOption = False) -> None:
    """List the tables of a database."""
    found = connection.local_relations()
    if found is None:
        with connection.open() as database:
            found = [database.open_table(name).describe() for name in database.table_names()]
    print_found(found, as_json=as_json, show=_print_tables)


def _print_tables(found: list[TableInfo]) -> None:
    rows = []
    for t in found:
        kind, columns = "view" if isinstance(t, ViewInfo) else "table", ", ".join(c.name for c in t.computed_columns)
        rows.append((t.name, kind, f"{t.row_count:,}", t.fragment_count, t.version, columns))
    print_table(("table", "kind", "rows", "fragments", "version", "computed columns"), rows)


@tables.command("optimize-indices")
@connected
def tables_optimize_indices(
    connection: Connection,
    table: TableArgument,
    *,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only indexes on this column; may be repeated.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add new rows to the indexes of a table or view, so that a search that reads only indexes finds all rows."""
    with connection.open() as database:
        found = database.open_table(table).optimize_indices(column)
    print_found(found, as_json=as_json, show=_print_indices)


def _print_indices(found: tuple[IndexCoverage, ...]) -> None:
    headings = ("index", "kind", "columns", "fragments covered", "rows left out")
    rows = [
        (i.name, i.kind, ", ".join(i.columns), f"{i.fragments_covered:,} of {i.fragments:,}", f"{i.rows_left_out:,}")
        for i in found
    ]
    print_table(headings, rows)


@tables.command("show")
@connected
def tables_show(
    connection: Connection,
    table: TableArgument,
    *,
    with_states: Annotated[
        bool, typer.Option("--states", help="Count the rows of computed columns: computed, NULL, failed, not computed.")
    ] = False,
    with_graph: Annotated[
        bool, typer.Option("--graph", help="Show which columns are computed from which, instead of the list.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the columns of a table and what computes them."""
    read = None if with_states else connection.local_relations(table)
    states = {}
    if read is not None:
        found = read[0]
    else:
        with connection.open(direct=True) as database:
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
    elif isinstance(found, ViewInfo):
        _print_view(found)
    else:
        _print_columns(found, states, with_graph=with_graph)


def _print_columns(found: TableInfo, states: Mapping[str, RowStates], *, with_graph: bool) -> None:
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
@connected
def udfs_ls(connection: Connection, *, as_json: JsonOption = False) -> None:
    """List the registered functions of a database, newest version first."""
    with connection.open(direct=True) as database:
        found = database.udfs()
    print_found(found, as_json=as_json, show=_print_udfs)


def _print_udfs(found: list[UdfInfo]) -> None:
    rows = [(u.name, u.version, _kind(u), ", ".join(u.input_columns), u.data_type) for u in found]
    print_table(("function", "version", "kind", "reads", "returns"), rows)


def _kind(udf: UdfInfo) -> str:
    return udf.kind + (", class" if udf.stateful else "")


@udfs.command("show")
@connected
def udfs_show(
    connection: Connection,
    name: Annotated[str, typer.Argument(help="The function's name, or name@version.", show_default=False)],
    *,
    as_json: JsonOption = False,
) -> None:
    """Show a registered function with its options: the given version, or the newest."""
    with connection.open(direct=True) as database:
        found = database.udf(name)
    print_found(found, as_json=as_json, show=_print_udf)


def _print_udf(udf: UdfInfo) -> None:
    facts = {
        "kind": _kind(udf),
        "reads": ", ".join(udf.input_columns),
        "returns": udf.data_type,
        **({"expression": udf.sql_expression} if udf.sql_expression else {}),
        **({"served at": ", ".join(udf.addresses)} if udf.addresses else {}),
        **udf.options,
    }
    print_line(f"{udf.name}@{udf.version}\n")
    print_table(("", ""), list(facts.items()))
    if udf.source:
        print_line(f"\n{udf.source}")


checkpoints = typer.Typer(help="Lists checkpoints and removes those that are no longer needed.", no_args_is_help=True)

AgeOption = Annotated[str, typer.Option(help="Keep garbage that is younger than this: 7d, 12h, 30m.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")]


@checkpoints.command("ls")
@connected
def checkpoints_ls(
    connection: Connection, table: TableArgument, *, limit: LimitOption = 1000, as_json: JsonOption = False
) -> None:
    """List checkpoints, fragment records and staged column files: what each is for, and whether it is still needed."""
    with connection.open(direct=True) as database:
        found = database.open_table(table).checkpoints(limit=limit)
    print_found(found, as_json=as_json, show=_print_files)


@checkpoints.command("gc")
@connected
def checkpoints_gc(
    connection: Connection,
    table: TableArgument,
    *,
    older_than: AgeOption = "7d",
    dry_run: DryRunOption = False,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """Delete checkpoints and staged files of a table that are no longer needed."""
    with connection.open() as database:
        found = database.open_table(table).collect_checkpoints(older_than=older_than, dry_run=dry_run, limit=limit)
    print_found(found, as_json=as_json, show=_print_collection)


def _print_collection(found: CheckpointCollection) -> None:
    if found.files:
        _print_files(found.files)
        if found.files_removed > len(found.files):
            note(f"{found.files_removed - len(found.files):,} more files are not listed: raise --limit to see them")
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


_WITH_FINDINGS = 3

ResumeOption = Annotated[str, typer.Option(help="Continue an interrupted run. It printed this token.")]


@connected
def verify(connection: Connection, *, resume: ResumeOption = "", as_json: JsonOption = False) -> None:
    """Check all data that Leman stored in a database against its digests. Changes nothing. Exit code 3: findings."""
    from leman import _maintenance  # noqa: PLC0415 - slow to import

    seen = [_maintenance.Verification(resume_token=resume)]
    interrupted = False
    try:
        with _coordinator(connection) as (services, uri), _progress(quiet=as_json) as show:

            def progress(found: Verification) -> None:
                seen[0] = found
                show(found)

            _maintenance.verify(services, uri, resume, progress)
    except KeyboardInterrupt:
        interrupted = True
        if seen[0].resume_token:
            note(f"interrupted; continue with --resume {seen[0].resume_token}")
    found = seen[0]
    document = {name: getattr(found, name) for name in ("sound", "complete", "resume_token", "checked", "findings")}
    print_json(document) if as_json else _print_verification(found)
    if interrupted or found.findings:
        raise typer.Exit(INTERRUPTED if interrupted else _WITH_FINDINGS)


@contextlib.contextmanager
def _coordinator(connection: Connection) -> Iterator[tuple[Services, str]]:
    """Yield a running coordinator. If none runs, start only a coordinator, which writes nothing to the database."""
    from leman._connect import connect  # noqa: PLC0415 - slow to import
    from leman._local.embedded_services import Embedded, ephemeral_service  # noqa: PLC0415 - likewise

    uri = database_uri(connection.db)
    if connection.endpoint is None and "://" not in uri:
        check_database_exists(uri)
        if not Embedded(uri).is_running():
            with ephemeral_service("commit_coordinator") as services:
                yield services, uri
            return
    with connect(connection.db) if connection.endpoint is None else connection.remote() as database:
        yield database._services, database.uri


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Verification], object]]:
    """Yield a function that shows progress on one line of a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _found: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import

    with Console(stderr=True).status("verifying") as line:
        yield lambda found: line.update(f"{found}{f'; at {found.table}' if found.table else ''}")


def _print_verification(found: Verification) -> None:
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
