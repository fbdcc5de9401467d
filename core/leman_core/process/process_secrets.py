"""Keep secrets from other processes: settings, and variables with credentials.

Environment variables with credentials: taken out of the environment when they are read, and kept here.

Keep settings, secrets among them, from other processes of the same user and from what this one starts.
"""

from __future__ import annotations

import os
import re

from leman_core.process import environment
from leman_core.process.environment import blank_shown
from leman_core.settings import PREFIX

_taken: dict[str, str] = {}


def take_secret_env(name: str) -> str:
    """Return the value of a variable, which what this process starts does not inherit; empty: it was never set."""
    value = os.environ.pop(name, "")
    if value:
        _taken[name] = value
        blank_shown(lambda shown: shown != name)
    return _taken.get(name, "")


def forget_secret_env() -> None:
    """Keep none any more: what is forked from this process has its memory."""
    _taken.clear()


MASK = "***"
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s\"]*:[^/@\s\"]+(?=@)")
#: Read by every process by itself, for tests.
_KEPT = frozenset({"LEMAN_CRASH"})


def without_passwords(text: str) -> str:
    """Return a text without the user and the password of any url in it."""
    return _URL_PASSWORD.sub(MASK, text) if "@" in text else text


def guard(*, core_dumps: bool) -> None:
    """Keep what this process has read of its settings to itself: call it when they are read.

    What it starts does not inherit them, and others of the same user cannot read its memory (Linux).

    Args:
        core_dumps: this process and those that it starts may be dumped, and so be read.
    """
    forget_settings()
    if core_dumps:
        os.environ[environment.CORE_DUMPS] = "1"
    else:
        os.environ.pop(environment.CORE_DUMPS, None)
    environment.guard()


def forget_settings() -> None:
    """Take Leman's settings out of this process's environment, and show no other variables that may be secrets."""
    for name in list(os.environ):
        if name.upper().startswith(PREFIX) and name not in _KEPT:
            del os.environ[name]
    environment.hide()
