"""`python -m leman_local`: run the local system of one database (`--database PATH`) or of several (`--home PATH`).

Exit codes: 0 if it was stopped, was idle, or its folder was deleted; 1 if it could not start; 2 for wrong arguments or
settings; 4 if another system already runs there. The system ends on SIGTERM, SIGINT and SIGHUP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from leman_core.process import environment
from leman_local.warm_parent import begin_early

if __name__ == "__main__":
    environment.hide()  # services get the variables through a pipe
#: Starts before everything else is imported.
_WARM = begin_early(sys.argv[1:]) if __name__ == "__main__" else None

import structlog  # noqa: E402

from leman_core.process.blocked_imports import HEAVY, blocked_imports  # noqa: E402

with blocked_imports(*HEAVY):
    from leman_core import settings as config
    from leman_core.model.service_errors import InvalidArgument, LemanError
    from leman_core.settings import Settings
    from leman_core.telemetry import logs as telemetry
    from leman_local import local_databases, warm_parent
    from leman_local.local_supervisor import Supervisor
    from leman_local.service_file import AlreadyRunning, Home, HomeLock, write_private
    from leman_local.service_process import LogFile

_log = structlog.get_logger(__name__)

EXIT_FAILED, EXIT_USAGE, EXIT_ALREADY_RUNNING = 1, 2, 4
#: Seconds to wait for another supervisor that is starting or ending.
_LOCK_SECONDS = 60.0
#: Seconds for an orderly end after standard input was closed.
_LIFELINE_SECONDS = 2.0


def main(argv: list[str] | None = None) -> int:
    """Run the local system as the command line says. Return the exit code."""
    arguments = _parser().parse_args(argv)
    if "://" in (arguments.database or ""):
        return _fail(EXIT_USAGE, f"{arguments.database}: an embedded system needs a local folder")
    try:
        database = Path(arguments.database).expanduser().resolve() if arguments.database else None
    except RuntimeError as error:  # from expanding `~NAME`
        return _fail(EXIT_USAGE, f"{arguments.database}: {error}")
    try:
        settings = config.load()
        if database is not None:
            database.mkdir(parents=True, exist_ok=True)
        home = Home.of(database) if database is not None else Home(Path(arguments.home).resolve())
        home.create()
    except (InvalidArgument, OSError) as error:
        return _fail(EXIT_USAGE, str(error))
    try:
        with HomeLock(home) as lock:
            lock.acquire(_LOCK_SECONDS)
            return _serve(home, database, settings, arguments)
    except AlreadyRunning as error:
        return _fail(EXIT_ALREADY_RUNNING, str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m leman_local", description="Leman on this machine.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--database", metavar="PATH", help="folder of the tables; created if missing")
    which.add_argument("--home", metavar="PATH", help="folder of a system that serves several databases")
    parser.add_argument("--warm", action="store_true", help="with --home: start Spark before a job needs it")
    parser.add_argument("--register", metavar="PATH", help="folder for a file that registers this process")
    parser.add_argument("--lifeline", action="store_true", help="end with standard input")
    parser.add_argument("--foreground", action="store_true", help="show what runs where; stay until Ctrl-C")
    parser.add_argument(
        "--idle-seconds",
        type=float,
        metavar="N",
        help="end after this many seconds without a call or a running job; 0: never (the default with --foreground)",
    )
    return parser


def _idle_seconds(arguments: argparse.Namespace, settings: Settings) -> float:
    if arguments.idle_seconds is not None:
        return float(arguments.idle_seconds)
    return 0.0 if arguments.foreground else settings.embedded.idle_seconds


def _serve(home: Home, database: Path | None, settings: Settings, arguments: argparse.Namespace) -> int:
    environment.allow_dumps(allowed=settings.log.core_dumps)
    log = LogFile(home.log("supervisor"), settings.log.file_max_mb << 20, settings.log.files_kept)
    with contextlib.closing(log):
        telemetry.configure(settings, "supervisor", cast(TextIO, log))
        warm_parent.sweep_warm_sockets(home.folder)
        for path in local_databases.sweep_leftovers(home.folder):
            _log.info("deleted a half-written file of a killed process", file=str(path))
        try:
            asyncio.run(_supervise(home, database, settings, arguments))
        except (LemanError, OSError) as error:
            return _fail(EXIT_FAILED, str(error))
    return 0


async def _supervise(home: Home, database: Path | None, settings: Settings, arguments: argparse.Namespace) -> None:
    def on_ready(content: dict[str, Any]) -> None:
        if arguments.foreground:
            _show(home, content)

    idle_seconds = _idle_seconds(arguments, settings)
    supervisor = Supervisor(home, settings, idle_seconds=idle_seconds, on_ready=on_ready, database=database, warm=_WARM)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stop)
    if arguments.lifeline:
        loop.add_reader(0, _on_lifeline, loop, supervisor)
    if arguments.warm:
        supervisor.databases.warm()
    with _registered(arguments.register, home):
        await supervisor.run()


def _on_lifeline(loop: asyncio.AbstractEventLoop, supervisor: Supervisor) -> None:
    if not os.read(0, 4096):
        loop.remove_reader(0)
        supervisor.stop(_LIFELINE_SECONDS)


@contextlib.contextmanager
def _registered(folder: str | None, home: Home) -> Iterator[None]:
    """In this block, record the system's folder in a file that is named by this process's id."""
    if folder is None:
        yield
        return
    file = Path(folder) / f"{os.getpid()}.json"
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(file, json.dumps({"home": str(home.folder)}))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _show(home: Home, content: dict[str, Any]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and needed only for people
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"Leman serves {content['database'] or 'the databases of its user'}")
    table.add_column("process")
    table.add_column("address")
    table.add_column("pid", justify="right")
    for name, pid in sorted(content["pids"].items()):
        table.add_row(name, content.get(name, "(for the services)"), str(pid))
    if content["http"]:
        table.add_row("JSON over HTTP", content["http"], "")
    console = Console()
    console.print(table)
    console.print(f"token: in {home.service_file}\nlogs:  in {home.log('*').parent}\nCtrl-C ends it.", soft_wrap=True)


def _fail(code: int, message: str) -> int:
    sys.stderr.write(f"leman: {message}\n")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        if _WARM is not None:
            _WARM.abandon()  # if it has become no service
