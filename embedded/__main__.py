"""`python -m embedded --database PATH`: run the embedded system of one local database.

Exit codes: 0 it was asked to end, was idle or its database was deleted, 1 it could not be started, 2 wrong
arguments or settings, 4 another one serves this database already. Ends on SIGTERM, SIGINT and SIGHUP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from core.absent_modules import HEAVY, without

with without(*HEAVY):
    from core import config, telemetry
    from core.config import Settings
    from core.errors import InvalidArgument, LemanError
    from core.process_secrets import blank_shown
    from embedded import leftovers
    from embedded.log_file import LogFile
    from embedded.service_file import AlreadyRunning, DatabaseLock, Home
    from embedded.supervisor import Supervisor

_log = structlog.get_logger(__name__)

EXIT_FAILED, EXIT_USAGE, EXIT_ALREADY_RUNNING = 1, 2, 4
#: So long it waits for another supervisor that is starting or ending.
_LOCK_SECONDS = 60.0


def main(argv: list[str] | None = None) -> int:
    """Run the embedded system as the command line asks, and return the exit code."""
    arguments = _parser().parse_args(argv)
    database = Path(arguments.database).expanduser()
    if "://" in arguments.database:
        return _fail(EXIT_USAGE, f"{arguments.database}: an embedded system needs a local folder")
    try:
        settings = config.load()
        blank_shown()  # the services are given them
        database.mkdir(parents=True, exist_ok=True)
        home = Home(database.resolve())
        home.create()
    except (InvalidArgument, OSError) as error:
        return _fail(EXIT_USAGE, str(error))
    try:
        with DatabaseLock(home) as lock:
            lock.acquire(_LOCK_SECONDS)
            return _serve(home, settings, _idle_seconds(arguments, settings), foreground=arguments.foreground)
    except AlreadyRunning as error:
        return _fail(EXIT_ALREADY_RUNNING, str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m embedded", description="Leman on this machine.")
    parser.add_argument("--database", required=True, metavar="PATH", help="folder of the tables; made if missing")
    parser.add_argument("--foreground", action="store_true", help="show what runs where; stay until Ctrl-C")
    parser.add_argument(
        "--idle-seconds",
        type=float,
        metavar="N",
        help="end after so long without a call or a running job; 0: never (the default with --foreground)",
    )
    return parser


def _idle_seconds(arguments: argparse.Namespace, settings: Settings) -> float:
    if arguments.idle_seconds is not None:
        return float(arguments.idle_seconds)
    return 0.0 if arguments.foreground else settings.embedded.idle_seconds


def _serve(home: Home, settings: Settings, idle_seconds: float, *, foreground: bool) -> int:
    log = LogFile(home.log("supervisor"), settings.log.file_max_mb << 20, settings.log.files_kept)
    with contextlib.closing(log):
        telemetry.configure(settings, "supervisor", cast(TextIO, log))
        for path in leftovers.sweep(home.folder):
            _log.info("half-written file of a killed process deleted", file=str(path))
        try:
            asyncio.run(_supervise(home, settings, idle_seconds, foreground=foreground))
        except (LemanError, OSError) as error:
            return _fail(EXIT_FAILED, str(error))
    return 0


async def _supervise(home: Home, settings: Settings, idle_seconds: float, *, foreground: bool) -> None:
    def on_ready(content: dict[str, Any]) -> None:
        if foreground:
            _show(home, content)

    supervisor = Supervisor(home, settings, idle_seconds=idle_seconds, on_ready=on_ready)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.stop)
    await supervisor.run()


def _show(home: Home, content: dict[str, Any]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only people need it
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"Leman serves {home.database}")
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
    sys.exit(main())
