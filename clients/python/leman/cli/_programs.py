"""`leman demo`, `pack-env` and `config`: programs of the services' distribution, run from here."""

from __future__ import annotations

import enum
import os
import sys
from typing import Annotated, NoReturn

import typer

from leman import _services_here
from leman.cli._options import JsonOption
from leman.errors import MissingDependency, NotFound


class DemoName(enum.Enum):
    """A demo besides the first one."""

    POLYGLOT = "polyglot"


config = typer.Typer(help="Shows the settings of the services.", no_args_is_help=True)


def demo(
    example: Annotated[DemoName | None, typer.Argument(help="`polyglot`: one table, four languages.")] = None,
    *,
    rows: Annotated[int | None, typer.Option(min=1, help="At most this many rows.")] = None,
    path: Annotated[str | None, typer.Option(help="Folder of the demo's database.  [default: ./leman-demo]")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Build anew what is there already.")] = False,
) -> None:
    """Indexes the Python source on this machine: computes columns, then answers questions with them."""
    _services_here.require(MissingDependency)
    root = _services_here.checkout()
    program = example.value if example else "demo"
    if not (root / "examples" / program / "main.py").exists():
        raise NotFound(f"the demo comes with the source of Leman; there is none in {root}", reason="NO_DEMO")
    options = [*(["--rows", str(rows)] if rows else []), *(["--path", path] if path else [])]
    options += ["--fresh"] if fresh else []
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    _become(f"examples.{program}.main", *options)


def pack_env(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write the archive.")] = "leman-env.tar.gz",
) -> None:
    """Pack this Python environment into an archive for the workers of a Spark cluster (`spark.archives`)."""
    _become("leman_executor.spark.pack_env", file)


@config.command("show")
def config_show(*, as_json: JsonOption = False) -> None:
    """List every setting of the services with its value, where that comes from, and its meaning."""
    _become("leman_core.settings", *(["--json"] if as_json else []))


@config.command("clean")
def config_clean() -> None:
    """Delete the archives of Spark's classes; `leman config show` says where they lie and how large they are."""
    _become("leman_core.process.class_archives", "--clean")


def _become(module: str, *arguments: str) -> NoReturn:
    _services_here.require(MissingDependency)
    sys.stdout.flush()
    os.execv(sys.executable, _services_here.command(module, *arguments))
