"""`leman plan`, `backfill`, `preview`, `jobs` and `errors`."""

from __future__ import annotations

import enum
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leman._format.stored_logs import failure_line
from leman._functions.source_code import is_installed
from leman._job_model import Job, JobState
from leman._table_model import RowError, RowErrorGroup, RowErrorGroups
from leman.cli._terminal import (
    ColumnArgument,
    Connection,
    EnvOption,
    JobArgument,
    JsonOption,
    LabelOption,
    LimitOption,
    PriorityOption,
    TableArgument,
    connected,
    env_of,
    labels_of,
    moment,
    note,
    plain_table,
    print_found,
    print_json,
    print_line,
    print_table,
    warnings_as_notes,
)
from leman.errors import InvalidArgument, JobCancelled, JobFailed
from leman.progress import duration, make_display, result_line, state_line

if TYPE_CHECKING:
    from leman._functions.udf_decorator import UDF
    from leman._jobs import JobFuture
    from leman._preview import Preview


class OnStaleInput(enum.StrEnum):
    ERROR = "error"
    WARN = "warn"
    FIRST = "first"


INTERRUPTED = 130
EXIT_CODES = {JobState.DONE_WITH_ERRORS: 3, JobState.FAILED: 1, JobState.CANCELLED: 1}

NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Return when the job is created.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ColumnsArgument = Annotated[list[str] | None, typer.Argument(metavar="[COLUMN]...", help="The columns' names.")]
WhereOption = Annotated[str | None, typer.Option(help="Only rows for which this SQL expression is true.")]
UdfOption = Annotated[str | None, typer.Option(metavar="NAME[@VERSION]", help="Use this registered function instead.")]
VersionOption = Annotated[
    str | None, typer.Option(metavar="NUMBER|TAG", help="Read this version of the table, or the tagged one.")
]
FragmentsOption = Annotated[int | None, typer.Option(min=1, help="At most this many fragments, for a sample run.")]
StaleOption = Annotated[
    OnStaleInput,
    typer.Option(
        "--on-stale-input",
        help="If an input is a computed column that is not current: refuse, warn and use it, or compute it first.",
    ),
]
IndexesOption = Annotated[
    bool, typer.Option("--optimize-indices", help="Afterwards add the new values to the columns' indexes.")
]


@connected
def plan(
    connection: Connection,
    table: TableArgument,
    column: ColumnArgument,
    *,
    where: WhereOption = None,
    udf: UdfOption = None,
    read_version: VersionOption = None,
    num_frags: FragmentsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a backfill would compute and reuse, and why. Changes nothing."""
    with connection.open(direct=True) as database:
        found = plain_table(database, table).plan_backfill(
            column, udf=udf, where=where, read_version=_version(read_version), num_frags=num_frags
        )
    print_found(found, as_json=as_json)


@connected
def backfill(  # noqa: PLR0913 - a command's options, all by name
    connection: Connection,
    table: TableArgument,
    columns: ColumnsArgument = None,
    *,
    where: WhereOption = None,
    udf: UdfOption = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="At most this many worker processes.")] = None,
    intra_applier_concurrency: Annotated[int | None, typer.Option(min=1, help="Threads in each of them.")] = None,
    checkpoint_size: Annotated[int | None, typer.Option(min=1, help="At most this many rows in a checkpoint.")] = None,
    min_checkpoint_size: Annotated[int | None, typer.Option(min=1, help="At least this many.")] = None,
    max_checkpoint_size: Annotated[int | None, typer.Option(min=1, help="At most this many.")] = None,
    task_size: Annotated[int | None, typer.Option(min=1, help="Rows in a unit of work.")] = None,
    task_shuffle_diversity: Annotated[
        int | None, typer.Option(min=1, help="Hand out units of this many fragments in turn.")
    ] = None,
    commit_granularity: Annotated[int | None, typer.Option(min=1, help="Fragments in each commit.")] = None,
    commit_rows: Annotated[int | None, typer.Option(min=1, help="Rows in a commit; it may divide fragments.")] = None,
    read_version: VersionOption = None,
    num_frags: FragmentsOption = None,
    on_stale_input: StaleOption = OnStaleInput.ERROR,
    optimize_indices: IndexesOption = False,
    label: LabelOption = None,
    priority: PriorityOption = 0,
    env: EnvOption = None,
    no_wait: NoWaitOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute the missing and stale values of the named columns, or else of all computed columns."""
    with connection.open() as database:
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
        name = f"{table}.{named[0]}" if len(named) == 1 else f"{table}: {len(named) or 'all'} columns"
        job = future.job() if no_wait else follow_job(future, name, quiet=quiet)
    end(job, as_json=as_json, no_wait=no_wait)


def follow_job(future: JobFuture, name: str, *, quiet: bool, cancel: bool = True) -> Job:
    """Show a job's progress on standard error until it ends. With `cancel`, Ctrl-C cancels the job."""
    from leman._jobs import follow  # noqa: PLC0415 - slow to import

    try:
        return follow(future, make_display(False if quiet else None, name), cancel=cancel)
    except KeyboardInterrupt as error:
        note(str(error))
        raise typer.Exit(INTERRUPTED) from None


def end(job: Job, *, as_json: bool, no_wait: bool = False) -> None:
    """Exit with the code for a job's state. With `as_json` print the job, otherwise with `no_wait` its id.

    Raises JobFailed, JobCancelled.
    """
    from leman._jobs import check_ended  # noqa: PLC0415 - slow to import

    if as_json:
        print_json(job)
    elif no_wait:
        print_line(job.job_id)
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
        help="A computed column, module:function, file.py:function, NAME@VERSION, or a SQL expression.",
    ),
]


@connected
def preview(  # noqa: PLR0913 - a command's options, all by name
    connection: Connection,
    table: TableArgument,
    function: FunctionArgument,
    *,
    rows: Annotated[int, typer.Option("-n", "--rows", min=1, max=100, help="The number of rows.")] = 5,
    where: Annotated[str | None, typer.Option(help="The first rows for which this SQL expression is true.")] = None,
    udf: UdfOption = None,
    read_version: VersionOption = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME", help="Column for the function's next parameter; may be repeated."),
    ] = None,
    env: EnvOption = None,
    timeout: Annotated[float | None, typer.Option(help="At most this many seconds, by default 30.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Estimate the time of a backfill with this many worker processes.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Try a function on a few rows. Show values, errors and times, and estimate a whole backfill. Writes nothing."""
    with connection.open() as database:
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
    print_found(document(made) if as_json else made, as_json=as_json)
    if any(row.state != "computed" for row in made.rows) or made.timed_out:
        raise typer.Exit(EXIT_CODES[JobState.DONE_WITH_ERRORS])


def load(named: str) -> UDF | None:
    """Return the function at `module:function` or `file.py:function`, or None if `named` has neither form.

    Raises InvalidArgument if it cannot be imported.
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
    """Return a preview for JSON, with its values as text."""
    names = [*made.input_columns, "output"]
    rows = [
        {
            **{name: getattr(row, name) for name in ("state", "row_address", "row_id")},
            "values": dict(zip(names, row.texts, strict=True)),
            **{name: getattr(row, name) for name in ("seconds", "error")},
        }
        for row in made.rows
    ]
    before = ("table", "input_columns", "data_type", "read_version", "where")
    after = ["fails", "timed_out", "rows_to_compute", "workers", "seconds_per_row", "expected_seconds"]
    after += ["set_up_seconds", "printed", "printed_bytes"]
    return {
        "function": f"{made.udf_name}@{made.udf_version}",
        **{name: getattr(made, name) for name in before},
        "rows": rows,
        **{name: getattr(made, name) for name in after},
    }


def _module(name: str) -> Any:
    """Import a module, also from the current folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _file(path: Path) -> Any:
    name = f"{path.stem}_" if is_installed(path.stem) else path.stem  # an installed module keeps its name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _print_groups(groups: RowErrorGroups) -> None:
    headings = ("rows", "error", "message", "for example")
    print_table(headings, [(f"{g.rows:,}", g.error_type, g.error_message, _place(g.examples[0])) for g in groups])
    if groups.total > len(groups):
        print_line(f"and {groups.total - len(groups):,} more kinds of errors; --limit shows more")
    if groups.rows_ungrouped:
        print_line(f"and {groups.rows_ungrouped:,} rows with other errors; --rows lists rows")


def _described(group: RowErrorGroup) -> dict[str, object]:
    shown = {"error_type": group.error_type, "message": group.error_message, "rows": group.rows}
    return {**shown, "example": group.examples[0].row_address}


def _place(row: RowError) -> str:
    return f"fragment {row.fragment_id}, row {row.offset}"


#: Shown instead of a result for a job that has not ended.
_UNFINISHED = {JobState.PENDING: "waits for its turn", JobState.PAUSED: "paused: `leman jobs resume` continues it"}

app = typer.Typer(help="Lists, shows, watches, pauses, cancels, retries and deletes jobs.", no_args_is_help=True)


@app.command("ls")
@connected
def ls(
    connection: Connection,
    *,
    table: Annotated[str | None, typer.Option(help="Only jobs of this table.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; may be repeated.")] = None,
    label: LabelOption = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    with connection.open(direct=True) as database, warnings_as_notes():
        found = database.jobs(table, limit, states=[word.upper() for word in state or ()], labels=labels_of(label))
    print_found(found, as_json=as_json, show=_print_jobs)


@app.command("show")
@connected
def show(connection: Connection, job_id: JobArgument, *, as_json: JsonOption = False) -> None:
    """Show one job."""
    with connection.open(direct=True) as database, warnings_as_notes():
        job = database.job(job_id)
    print_found(job, as_json=as_json, show=_print_job)


@app.command("watch")
@connected
def watch(connection: Connection, job_id: JobArgument, *, as_json: JsonOption = False) -> None:
    """Show a job's progress until it ends. Ctrl-C stops watching; the job continues."""
    with connection.open() as database:
        future = database.job_future(job_id)
        job = future.job()
        job = follow_job(future, job.target, quiet=as_json, cancel=False)
    end(job, as_json=as_json)


@app.command("cancel")
@connected
def cancel(
    connection: Connection,
    job_id: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Id of the job.", show_default=False)] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
    table: Annotated[str | None, typer.Option(help="With --all: only jobs of this table.")] = None,
    label: LabelOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a job, or with --all many. Finished work is kept."""
    if every == (job_id is not None) or (not every and (table or label)):
        raise typer.BadParameter("give one job, or --all, which --table and --label narrow down")
    with connection.open() as database:
        if job_id is None:
            found = database.cancel_jobs(table, labels=labels_of(label))
            print_found(found, as_json=as_json, show=_print_states)
        else:
            future = database.job_future(job_id)
            _print_state(future, future.cancel(), as_json=as_json)


@app.command("pause")
@connected
def pause(connection: Connection, job_id: JobArgument, *, as_json: JsonOption = False) -> None:
    """Pause a job until it is resumed. Finished work is kept, and its workers become free for other jobs."""
    with connection.open() as database:
        future = database.job_future(job_id)
        _print_state(future, future.pause(), as_json=as_json)


@app.command("resume")
@connected
def resume(connection: Connection, job_id: JobArgument, *, as_json: JsonOption = False) -> None:
    """Resume a paused job. It queues like other jobs, and then computes what is left."""
    with connection.open() as database:
        future = database.job_future(job_id)
        _print_state(future, future.resume(), as_json=as_json)


@app.command("delete")
@connected
def delete(connection: Connection, job_id: JobArgument) -> None:
    """Delete an ended job and its failed rows from the history. Its computed values stay."""
    with connection.open() as database:
        database.job_future(job_id).delete()
    print_line(f"{job_id}: deleted")


@app.command("retry")
@connected
def retry(
    connection: Connection,
    job_id: JobArgument,
    *,
    udf: Annotated[
        str | None, typer.Option(metavar="NAME[@VERSION]", help="Replace the column's function by this registered one.")
    ] = None,
    keep_others: Annotated[
        bool, typer.Option("--keep-others", help="With --udf: rows that did not fail keep their values.")
    ] = False,
    env: EnvOption = None,
    no_wait: NoWaitOption = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compute a job's failed rows again. With --udf and without --keep-others, compute all rows of the column."""
    with connection.open() as database:
        future = database.retry_job_async(job_id, udf=udf, keep_others=keep_others, env=env_of(env))
        job = future.job()
        if not no_wait:
            job = follow_job(future, job.target, quiet=quiet)
    end(job, as_json=as_json, no_wait=no_wait)


@connected
def errors(
    connection: Connection,
    job_id: JobArgument,
    *,
    column: Annotated[str | None, typer.Option(help="Only errors of this column.")] = None,
    limit: LimitOption = 20,
    rows: Annotated[bool, typer.Option("--rows", help="List the rows instead of counting them.")] = False,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="List the rows with their tracebacks.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Count the failed rows of a job by exception and message, or list them."""
    with connection.open(direct=True) as database:
        if not rows and not tracebacks:
            groups = database.error_groups(job_id, column, limit)
            found: Any = [_described(group) for group in groups] if as_json else groups
            return print_found(found, as_json=as_json, show=_print_groups)
        failed = database.get_errors(job_id, column, limit)
    return print_found(failed, as_json=as_json, show=_print_tracebacks if tracebacks else _print_failed)


def _print_tracebacks(failed: list[RowError]) -> None:
    for error in failed:
        print_line(f"{error}\n{error.traceback}")


def _print_failed(failed: list[RowError]) -> None:
    rows = [(e.fragment_id, e.offset, e.column, e.error_type, failure_line(e.error_message), e.attempt) for e in failed]
    print_table(("fragment", "row", "column", "error", "message", "attempt"), rows)


def _print_states(jobs: list[Job]) -> None:
    for job in jobs:
        print_line(f"{job.job_id}: {job.state}")


def _print_state(future: JobFuture, state: JobState, *, as_json: bool) -> None:
    if as_json:
        print_json(future.job())
    else:
        print_line(f"{future.job_id}: {state}")


def _print_jobs(jobs: list[Job]) -> None:
    headings = ("job", "state", "column", "rows", "failed", "took", "begun", "plan")
    print_table(headings, [_row(job) for job in jobs], whole=("job", "state"), cut_last=True)


def _row(job: Job) -> tuple[object, ...]:
    progress = job.progress
    return (
        job.job_id,
        state_line(job),
        job.target,
        f"{progress.rows_computed:,}",
        f"{progress.rows_failed:,}",
        duration(progress.elapsed_seconds),
        moment(job.create_time),
        job.plan_summary,
    )


def _print_job(job: Job) -> None:
    progress = job.progress
    rows = (
        f"{progress.rows_total:,} in all, {progress.rows_reused:,} reused, {progress.rows_planned:,} planned,"
        f" {progress.rows_computed:,} computed, {progress.rows_committed:,} committed,"
        f" {progress.rows_skipped:,} left out by the filter, {progress.rows_failed:,} failed,"
        f" {progress.rows_failed_before:,} failed before"
    )
    seconds = (
        f"{progress.udf_seconds:.1f} function, {progress.read_seconds:.1f} read,"
        f" {progress.checkpoint_seconds:.1f} checkpoint, {progress.write_seconds:.1f} write,"
        + (f" {progress.load_seconds:.1f} setting up," if progress.load_seconds else "")
        + f" {progress.commit_seconds:.1f} commit (summed over workers)"
    )
    details: list[tuple[str, object]] = [
        ("job", job.job_id),
        ("state", state_line(job)),
        ("result", result_line(job) if job.state.terminal else _UNFINISHED.get(job.state, "still running")),
        ("columns" if job.columns else "column" if job.column else "view", job.target),
        *([("function", f"{job.udf_name}@{job.udf_version}")] if job.udf_name else []),
        ("plan", job.plan_summary),
        *([("retry of", job.retry_of)] if job.retry_of else []),
        *([("environment", ", ".join(job.env_names))] if job.env_names else []),
        *([("trace", job.trace_id)] if job.trace_id else []),
        ("rows", rows),
        ("fragments", f"{progress.fragments_committed:,} of {progress.fragments_planned:,} committed"),
        ("seconds", seconds),
        ("bound by", progress.bottleneck),
        ("commits", f"{progress.commits:,}"),
        ("attempt", job.attempt),
        ("begun", f"{job.create_time.astimezone():%Y-%m-%d %H:%M:%S}"),
        ("changed", f"{job.update_time.astimezone():%Y-%m-%d %H:%M:%S}"),
    ]
    details.extend(("waits for", stall) for stall in job.stalls)
    if job.where:
        details.insert(4, ("where", job.where))
    if job.error is not None:
        details.append(("error", f"{job.error.message} [{job.error.reason}]"))
    for name, value in details:
        print_line(f"{name:<12}{value}")
