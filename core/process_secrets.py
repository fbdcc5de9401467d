"""Keep settings, secrets among them, from other processes of the same user and from what this one starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path

from core.config import PREFIX

MASK = "***"
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s\"]*:[^/@\s\"]+(?=@)")
#: Read by every process by itself, for tests.
_KEPT = frozenset({"LEMAN_CRASH"})
_ENV_START, _ENV_END = 47, 48  # of the fields after the program's name in /proc/self/stat


def without_passwords(text: str) -> str:
    """Return a text without the user and the password of any url in it."""
    return _URL_PASSWORD.sub(MASK, text) if "@" in text else text


def without_settings(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment for a process that needs none of Leman's settings."""
    return {name: value for name, value in environment.items() if not _is_setting(name)}


def forget_settings() -> None:
    """Take Leman's settings out of this process's environment: call it when they are read.

    What the process starts does not inherit them.
    """
    for name in list(os.environ):
        if _is_setting(name):
            del os.environ[name]
    blank_shown()


def blank_shown(also: Collection[str] = ()) -> None:
    """Take the values of Leman's settings out of /proc/PID/environ.

    That file shows a process's first environment whatever becomes of it, and to all of the same user. This process
    still has the settings that it has not forgotten.

    Args:
        also: variables with other secrets.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
        at = start
        for entry in ctypes.string_at(start, end - start).split(b"\0"):
            name, equals, value = entry.partition(b"=")
            text = name.decode(errors="replace")
            if equals and (_is_setting(text) or text in also):
                ctypes.memset(at + len(name) + 1, ord("*"), len(value))
            at += len(entry) + 1


def _is_setting(name: str) -> bool:
    return name.upper().startswith(PREFIX) and name not in _KEPT
