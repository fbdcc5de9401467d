"""Hide settings and other secrets from children, and from other processes of the same user."""

from __future__ import annotations

import os
import re

from leman_core.process import environment
from leman_core.process.environment import blank_shown
from leman_core.settings import PREFIX

_taken: dict[str, str] = {}


def take_secret_env(name: str) -> str:
    """Return the value of a variable and remove it, so that no child inherits it; empty if it was never set."""
    value = os.environ.pop(name, "")
    if value:
        _taken[name] = value
        blank_shown(lambda shown: shown != name)
    return _taken.get(name, "")


def forget_secret_env() -> None:
    """Forget the values that `take_secret_env` removed. Call it before a fork, which copies this process's memory."""
    _taken.clear()


MASK = "***"
_URL_PASSWORD = re.compile(r"(?<=://)[^/@\s\"]*:[^/@\s\"]+(?=@)")
#: Settings for tests, which every process reads itself.
_KEPT = frozenset({"LEMAN_CRASH"})


def without_passwords(text: str) -> str:
    """Return a text without the users and passwords of URLs in it."""
    return _URL_PASSWORD.sub(MASK, text) if "@" in text else text


def guard(*, core_dumps: bool) -> None:
    """Hide the settings of this process after it has read them.

    Its children do not inherit them, and other processes of the same user cannot read its memory (Linux).

    Args:
        core_dumps: Whether to allow core dumps of this process and its children. These then show the settings.
    """
    forget_settings()
    if core_dumps:
        os.environ[environment.CORE_DUMPS] = "1"
    else:
        os.environ.pop(environment.CORE_DUMPS, None)
    environment.guard()


def forget_settings() -> None:
    """Remove Leman's settings from this process's environment, and hide other variables that may be secrets."""
    for name in list(os.environ):
        if name.upper().startswith(PREFIX) and name not in _KEPT:
            del os.environ[name]
    environment.hide()
