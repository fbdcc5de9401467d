"""All commands. A command's module is imported when the command is named: all of them take half a second."""

from __future__ import annotations

import importlib
import sys
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from leman.cli import _light_values

#: Where each command is, in the order in which they are shown.
COMMANDS = {
    "up": "_services:up",
    "ps": "_services:ps",
    "status": "_services:status",
    "logs": "_services:logs",
    "down": "_services:down",
    "demo": "_programs:demo",
    "pack-env": "_programs:pack_env",
    "plan": "_backfill:plan",
    "preview": "_preview:preview",
    "backfill": "_backfill:backfill",
    "errors": "_jobs:errors",
    "refresh": "_views:refresh",
    "verify": "_verify:verify",
    "jobs": "_jobs:app",
    "databases": "_databases:databases",
    "tables": "_catalog:tables",
    "udfs": "_catalog:udfs",
    "views": "_views:views",
    "checkpoints": "_checkpoints:checkpoints",
    "config": "_programs:config",
}
_light_values.use()
_MARKUP: Literal["rich"] | None = "rich" if sys.stderr is not None and sys.stderr.isatty() else None


class Commands(TyperGroup):
    """The commands of `COMMANDS`."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as in click
        """Name all of them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as in click
        """Import one of them; None: there is no such command."""
        module, _, name = COMMANDS.get(cmd_name, "").partition(":")
        if not module:
            return None
        found = getattr(importlib.import_module(f"leman.cli.{module}"), name)
        if not isinstance(found, typer.Typer):
            found, command = typer.Typer(), found
            found.command(cmd_name)(command)
        found.rich_markup_mode, found._add_completion = _MARKUP, False
        made = typer.main.get_command(found)
        made.name = cmd_name
        return made


app = typer.Typer(
    cls=Commands,
    name="leman",
    help="Keeps computed columns of Lance tables up to date.",
    epilog="Try `leman demo` first; then `leman tables ls PATH`. Exit codes: 0 ok, 1 failed, 2 usage,"
    " 3 finished with failed rows, or with findings.",
    invoke_without_command=True,
    rich_markup_mode=_MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:  # noqa: FBT001 - typer gives it so
    if not wanted:
        return
    from importlib import metadata  # noqa: PLC0415 - only where it is asked for

    typer.echo(f"leman {metadata.version('leman')}")
    raise typer.Exit


@app.callback()
def overview(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - its callback tells it
        bool, typer.Option("--version", help="Show the version.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Without a command: help, and what to try first."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
