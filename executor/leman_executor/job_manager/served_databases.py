"""The databases that an embedded system serves: jobs that were left in them are taken over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import structlog

from leman_core.model.errors import LemanError

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.2


class Opens(Protocol):
    """What takes jobs over: the job manager."""

    async def open_database(self, path: str) -> None:
        """Open a database, and take over the jobs that a dead executor left in it."""
        ...

    def forget_database(self, path: str) -> None:
        """Forget the jobs of a database that is gone."""
        ...


async def open_served(manager: Opens, database: str) -> None:
    """Open a database; where that fails, whoever asks for its jobs hears of it."""
    try:
        await manager.open_database(database)
    except LemanError as error:
        _log.error("jobs that were left are not taken over yet", reason=error.reason, error=error.message)


async def follow_served(file: Path, manager: Opens, warm: Callable[[], object]) -> None:
    """Open each database that the supervisor names in its file, and call `warm` when Spark is to be up, until it is
    cancelled. One that was deleted is forgotten: at its path there may be another one, with other jobs."""
    seen, known, is_warm = 0, dict[str, int](), False
    while True:
        seen, said = await asyncio.to_thread(_news, file, seen)
        if said is not None:
            if said["warm"] and not is_warm:
                is_warm = True
                warm()
            now = {database: said["taken"].get(database, 0) for database in said["databases"]}
            for database in [path for path, taken in known.items() if now.get(path) != taken]:
                del known[database]
                manager.forget_database(database)
            for database in now.keys() - known.keys():
                known[database] = now[database]
                await open_served(manager, database)
        await asyncio.sleep(_LOOK_SECONDS)


def _news(file: Path, seen: int) -> tuple[int, dict[str, Any] | None]:
    """Return when a file was written, and its content where that is not when it was seen."""
    try:
        written = file.stat().st_mtime_ns
        return written, json.loads(file.read_bytes()) if written != seen else None
    except (OSError, ValueError):  # the next look finds it
        return seen, None
