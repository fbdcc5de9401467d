"""`leman jobs`, `leman errors`.

Failed rows, counted by what went wrong.

`leman jobs` and `leman errors`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from leman._job_model import Job, JobState
from leman._table_model import RowErrorGroup, RowErrorGroups
from leman.cli._backfill_commands import end, follow_job
from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    EnvOption,
    JobArgument,
    JsonOption,
    LabelOption,
    LimitOption,
    TlsOption,
    TokenOption,
    env_of,
    labels_of,
    open_database,
)
from leman.cli._output import moment, note, print_json, print_line, print_table
from leman.progress import duration, result_line, state_line

if TYPE_CHECKING:
    from leman._jobs import JobFuture


def print_groups(groups: RowErrorGroups, *, as_json: bool) -> None:
    """Failed rows by what went wrong, and how many groups the limit left out."""
    if as_json:
        print_json([_described(group) for group in groups])
        return
    headings = ("rows", "error", "message", "for example")
    print_table(headings, [(f"{g.rows:,}", g.error_type, g.error_message, _place(g)) for g in groups])
    if groups.total > len(groups):
        print_line(f"and {groups.total - len(groups):,} more kinds; --limit shows more")
    if groups.rows_ungrouped:
        print_line(f"and {groups.rows_ungrouped:,} rows of further kinds; --rows lists rows")


def _described(group: RowErrorGroup) -> dict[str, object]:
    shown = {"error_type": group.error_type, "message": group.error_message, "rows": group.rows}
    return {**shown, "example": group.examples[0].row_address}


def _place(group: RowErrorGroup) -> str:
    example = group.examples[0]
    return f"fragment {example.fragment_id}, row {example.offset}"


#: What is said in the place of a result.
_UNFINISHED = {JobState.PENDING: "waits for its turn", JobState.PAUSED: "paused: `leman jobs resume` has it go on"}

app = typer.Typer(help="Lists, shows, watches, pauses, cancels, retries and deletes jobs.", no_args_is_help=True)


@app.command("ls")
def ls(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    *,
    table: Annotated[str | None, typer.Option(help="Only jobs of this table.")] = None,
    state: Annotated[list[str] | None, typer.Option(help="Only in this state; may be given again.")] = None,
    label: LabelOption = None,
    limit: LimitOption = 20,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database, _remarks():
        found = database.jobs(table, limit, states=[word.upper() for word in state or ()], labels=labels_of(label))
    if as_json:
        print_json(found)
        return
    headings = ("job", "state", "column", "rows", "failed", "took", "begun", "plan")
    print_table(headings, [_row(job) for job in found], whole=("job", "state"), cut_last=True)


@app.command("show")
def show(
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one job."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database, _remarks():
        job = database.job(job_id)
    if as_json:
        print_json(job)
        return
    for name, value in _details(job):
        print_line(f"{name:<12}{value}")


@app.command("watch")
def watch(
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a job until its end. Ctrl-C ends the watching, not the job."""
    with open_database(db, endpoint, token, tls_ca) as database:
        future = database.job_future(job_id)
        job = future.job()
        job = follow_job(future, job.target, quiet=as_json, cancel=False)
    end(job, as_json=as_json)


@app.command("cancel")
def cancel(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    job_id: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Id of the job.", show_default=False)] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All jobs that have not ended.")] = False,
    table: Annotated[str | None, typer.Option(help="With --all: only jobs of this table.")] = None,
    label: LabelOption = None,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a job to stop, or with --all many. What they have finished is kept."""
    if every == (job_id is not None) or (not every and (table or label)):
        raise typer.BadParameter("name one job, or say --all, with --table and --label if need be")
    with open_database(db, endpoint, token, tls_ca) as database:
        if job_id is None:
            found = database.cancel_jobs(table, labels=labels_of(label))
            if as_json:
                print_json(found)
            for job in () if as_json else found:
                print_line(f"{job.job_id}: {job.state}")
            return
        future = database.job_future(job_id)
        _tell_state(future, future.cancel(), as_json=as_json)


@app.command("pause")
def pause(
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a job stop until it is resumed. What it has computed is kept; its workers are free for others."""
    with open_database(db, endpoint, token, tls_ca) as database:
        future = database.job_future(job_id)
        _tell_state(future, future.pause(), as_json=as_json)


@app.command("resume")
def resume(
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a paused job go on. It waits for its turn like others, and computes what is left."""
    with open_database(db, endpoint, token, tls_ca) as database:
        future = database.job_future(job_id)
        _tell_state(future, future.resume(), as_json=as_json)


@app.command("delete")
def delete(
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
) -> None:
    """Take a job that has ended out of the history for good, with its failed rows. What it computed stays."""
    with open_database(db, endpoint, token, tls_ca) as database:
        database.job_future(job_id).delete()
    print_line(f"{job_id}: deleted")


@app.command("retry")
def retry(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    udf: Annotated[
        str | None, typer.Option(metavar="NAME[@VERSION]", help="With this registered function, from now on.")
    ] = None,
    keep_others: Annotated[
        bool, typer.Option("--keep-others", help="With --udf: rows that did not fail keep their values.")
    ] = False,
    env: EnvOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the job has begun.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the failed rows of a job's column again. With another function and without --keep-others, all rows."""
    with open_database(db, endpoint, token, tls_ca) as database:
        future = database.retry_job_async(job_id, udf=udf, keep_others=keep_others, env=env_of(env))
        job = future.job()
        if not no_wait:
            job = follow_job(future, job.target, quiet=quiet)
        elif not as_json:
            print_line(job.job_id)
    end(job, as_json=as_json)


def errors(  # noqa: PLR0913 - a command's options, all by name
    db: DatabaseArgument,
    job_id: JobArgument,
    *,
    column: Annotated[str | None, typer.Option(help="Only of this column.")] = None,
    limit: LimitOption = 20,
    rows: Annotated[bool, typer.Option("--rows", help="List the rows instead of counting them.")] = False,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="List them with their tracebacks.")] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Counts the rows of a job for which the function failed, by exception and message, or lists them."""
    listed = rows or tracebacks
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        groups = None if listed else database.error_groups(job_id, column, limit)
        found = database.get_errors(job_id, column, limit) if listed else []
    if groups is not None:
        print_groups(groups, as_json=as_json)
    elif as_json:
        print_json(found)
    elif tracebacks:
        for error in found:
            print_line(f"{error}\n{error.traceback}")
    else:
        headings = ("fragment", "row", "column", "error", "message", "attempt")
        print_table(
            headings,
            [
                (e.fragment_id, e.offset, e.column, e.error_type, e.error_message.split("\n")[0], e.attempt)
                for e in found
            ],
        )


@contextlib.contextmanager
def _remarks() -> Iterator[None]:
    """Tell each warning of a block at its end, also one that was given before."""
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        yield
    for remark in remarks:
        note(str(remark.message))


def _tell_state(future: JobFuture, state: JobState, *, as_json: bool) -> None:
    if as_json:
        print_json(future.job())
    else:
        print_line(f"{future.job_id}: {state}")


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


def _details(job: Job) -> list[tuple[str, object]]:
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
    return details
