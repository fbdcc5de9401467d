"""Lance's Rust panics on some damaged files. Such a panic is a BaseException in Python, and must not pass for one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_PANIC = "PanicException"


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises OSError in place of a Rust panic."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == _PANIC:
            raise OSError(f"Lance panicked: {error}") from None
        raise
