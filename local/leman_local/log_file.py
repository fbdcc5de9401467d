"""The log file of one process of an embedded system: at a certain size it is set aside, and the oldest is deleted."""

from __future__ import annotations

import logging
import os
from io import TextIOBase, TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path


class LogFile(TextIOBase):
    """A log file that only its owner can read; files that were set aside have a number at the end, 1 is the latest."""

    def __init__(self, path: Path, largest_bytes: int, kept: int) -> None:
        self._handler = _Private(
            path, maxBytes=largest_bytes, backupCount=kept, encoding="utf-8", errors="backslashreplace"
        )
        self._handler.terminator = ""

    def write(self, text: str) -> int:
        """Write whole lines, at once."""
        self._handler.emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))
        return len(text)

    def close(self) -> None:
        """Close the file: nothing more is written."""
        self._handler.close()
        super().close()


class _Private(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        fd = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(os.fdopen(fd, "ab"), encoding=self.encoding, errors=self.errors)
