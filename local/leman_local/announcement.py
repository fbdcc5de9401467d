"""The announcement of an embedded system: the service file, kept as it was written whatever happens on the disk."""

from __future__ import annotations

from typing import Any

import structlog

from leman_local.service_file import Home, remove_service_file, write_service_file

_log = structlog.get_logger(__name__)


class Announcement:
    """What a supervisor says of its system; the caller holds the folder's lock for as long as this is used."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._content: dict[str, Any] | None = None
        self._lock = 0

    def write(self, content: dict[str, Any]) -> None:
        """Write the service file, and keep its content from now on."""
        self._lock = self._home.lock_file.stat().st_ino if self._home.lock_file.exists() else 0
        self._content = content
        write_service_file(self._home, content)

    def mend(self) -> None:
        """Write the file again where it says anything else or is gone, as nobody could call the system.

        Nothing happens before it was written for the first time, and in a database that was deleted and made anew: that
        one belongs to others.
        """
        if self._content is None or self._home.said() == self._content:
            return
        try:
            if self._home.lock_file.stat().st_ino == self._lock:
                write_service_file(self._home, self._content)
                _log.error("service file was damaged and is written again", file=str(self._home.service_file))
        except OSError as error:  # the next look tries again
            _log.error("service file is damaged", file=str(self._home.service_file), message=str(error))

    def remove(self) -> None:
        """Remove the service file."""
        self._content = None
        remove_service_file(self._home)
