"""All commands."""

from __future__ import annotations

import sys

import typer

from leman.cli import _backfill, _catalog, _checkpoints, _databases, _jobs, _programs, _verify, _views

app = typer.Typer(
    name="leman",
    help="Keeps computed columns of Lance tables up to date.",
    epilog="Try `leman demo` first; then `leman tables ls PATH`. Exit codes: 0 ok, 1 failed, 2 usage,"
    " 3 finished with failed rows, or with findings.",
    invoke_without_command=True,
    rich_markup_mode="rich" if sys.stderr.isatty() else None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def overview(context: typer.Context) -> None:
    """Without a command: help, and what to try first."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("up")(_programs.up)
app.command("demo")(_programs.demo)
app.command("pack-env")(_programs.pack_env)
app.command("plan")(_backfill.plan)
app.command("backfill")(_backfill.backfill)
app.command("errors")(_jobs.errors)
app.command("refresh")(_views.refresh)
app.command("verify")(_verify.verify)
app.add_typer(_jobs.app, name="jobs")
app.add_typer(_databases.databases, name="databases")
app.add_typer(_catalog.tables, name="tables")
app.add_typer(_catalog.udfs, name="udfs")
app.add_typer(_views.views, name="views")
app.add_typer(_checkpoints.checkpoints, name="checkpoints")
app.add_typer(_programs.config, name="config")
