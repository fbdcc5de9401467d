"""Turn panics of Lance's Rust, which are BaseExceptions in Python, into OSErrors. Some damaged files cause them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_PANIC = "PanicException"
_SAID = "Lance panicked: "


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a Rust panic, by itself or as `panics_as_errors` raised it."""
    return type(error).__name__ == _PANIC or (isinstance(error, OSError) and str(error).startswith(_SAID))


@contextlib.contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise OSError in place of a Rust panic."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == _PANIC:
            raise OSError(f"{_SAID}{error}") from None
        raise
