"""The command line `leman`.

Each command's module is imported only when the command runs: importing all of them takes half a second.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperGroup

from leman._message_text import for_command_line
from leman._program import OutputFailed
from leman.cli._terminal import fail, note
from leman.errors import InvalidArgument, LemanError, UdfDefinitionError

OK, FAILED, USAGE, WITH_ERRORS = 0, 1, 2, 3
"""Exit codes: success, failure, wrong usage, finished with failed rows."""

_MOST_DIGITS = 18
_LEFT = object()


class _Light:
    """Converts the value of one parameter without pydantic where no check is needed.

    typer has pydantic check each value, but importing pydantic takes longer than some commands. A string for `str`, a
    flag for `bool` and a decimal number for `int` need no check. For all other values, `make` returns typer's own
    converter.
    """

    def __init__(self, descriptor: Any, make: Callable[[Any], Any]) -> None:
        self._kind, self._rules = descriptor.annotation, descriptor.parameter_info
        self._descriptor, self._make = descriptor, make

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value for the command. Raises the errors that typer raises."""
        found = self._taken(value, many=param.multiple or param.nargs == -1)
        return found if found is not _LEFT else self._make(self._descriptor).coerce(value, param=param, ctx=ctx)

    def _taken(self, value: Any, *, many: bool) -> Any:
        if value is None:
            return () if many else None
        if get_origin(self._kind) is not list:
            return _LEFT if many else self._one(value, self._kind)
        if not many or not isinstance(value, list | tuple):
            return _LEFT
        taken = [self._one(each, *get_args(self._kind)) for each in value]
        return _LEFT if any(each is _LEFT for each in taken) else taken

    def _one(self, value: Any, kind: Any) -> Any:
        if kind is int:
            return self._number(value)
        return value if kind in (str, bool) and type(value) is kind else _LEFT

    def _number(self, value: Any) -> Any:
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS:
            value = int(value)
        least, most = self._rules.min, self._rules.max
        is_fine = type(value) is int and (least is None or value >= least) and (most is None or value <= most)
        return value if is_fine else _LEFT


def use_light_values() -> None:
    """Have typer convert parameters with `_Light`. Does nothing if this release of typer works differently."""
    with contextlib.suppress(ImportError, AttributeError):
        core: Any = importlib.import_module("typer.core")
        whole = core.build_runtime_param

        def build(descriptor: Any) -> Any:
            return whole(descriptor) if descriptor.parameter_info.parser is not None else _Light(descriptor, whole)

        core.build_runtime_param = build


#: The module and function of each command, in the order of the help.
COMMANDS = {
    "up": "_service_commands:up",
    "ps": "_service_commands:ps",
    "status": "_service_commands:status",
    "logs": "_service_commands:logs",
    "down": "_service_commands:down",
    "demo": "_service_commands:demo",
    "pack-env": "_service_commands:pack_env",
    "plan": "_job_commands:plan",
    "preview": "_job_commands:preview",
    "backfill": "_job_commands:backfill",
    "errors": "_job_commands:errors",
    "refresh": "_catalog_commands:refresh",
    "verify": "_catalog_commands:verify",
    "jobs": "_job_commands:app",
    "databases": "_catalog_commands:databases",
    "tables": "_catalog_commands:tables",
    "udfs": "_catalog_commands:udfs",
    "views": "_catalog_commands:views",
    "checkpoints": "_catalog_commands:checkpoints",
    "config": "_service_commands:config",
}
use_light_values()
_MARKUP: Literal["rich"] | None = "rich" if sys.stderr is not None and sys.stderr.isatty() else None


class Commands(TyperGroup):
    """Imports the module of a command only when the command is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as in click
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as in click
        """Import a command's module and return the command, or None if there is no such command."""
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
    version: Annotated[  # noqa: ARG001 - its callback prints it
        bool, typer.Option("--version", help="Show the version.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Show the help if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run one command and exit.

    An error is one or two lines on standard error, never a traceback. A warning is a note without its source line.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_where: note(str(message))
        _run()


def _run() -> None:
    try:
        app(prog_name="leman")
    except LemanError as error:
        is_usage = isinstance(error, InvalidArgument) and not isinstance(error, UdfDefinitionError)
        sys.exit(fail(error.reason, for_command_line(error.message), error.facts, code=USAGE if is_usage else FAILED))
    except (BrokenPipeError, OutputFailed) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard what is still buffered
        if isinstance(error, OutputFailed):
            note(str(error))
        sys.exit(FAILED)
    except Exception as error:
        if os.environ.get("LEMAN_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}. LEMAN_DEBUG=1 shows the traceback."
        sys.exit(fail("INTERNAL_BUG", what, {}, code=FAILED))
