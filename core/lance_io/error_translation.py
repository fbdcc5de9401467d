"""Translate what Lance, pyarrow and the system raise, once. The rule is in `core.storage_errors`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from core.errors import DataLoss, LemanError, NotFound
from core.lance_io.panics import panics_as_errors
from core.lance_io.store_failures import store_failed
from core.storage_errors import error_number, failed, unusable

#: What Lance and pyarrow raise for what they cannot read or write; a panic becomes an OSError, see `panics`.
LANCE_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)


@contextlib.contextmanager
def using_storage(path: str) -> Iterator[None]:
    """Raise what `storage_errors.unusable` gives in place of any error of Lance."""
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise unusable(error, path) from error


@contextlib.contextmanager
def reading_file(path: str, what: str) -> Iterator[None]:
    """Raise what reading a file of Leman's own means.

    Args:
        path: the file or its table, for programs.
        what: begins a sentence, such as "Row states of a.lance".

    Raises:
        NotFound: FILE_MISSING.
        DataLoss: FILE_DAMAGED, where the bytes are there and make no sense.
        LemanError: what `storage_errors.failed` gives, where they cannot be had now.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise _file_error(error, path, what) from error


def _file_error(error: Exception, path: str, what: str) -> LemanError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound("FILE_MISSING", f"{what} cannot be read, the file is missing: {error}", path=path)
    if isinstance(error, OSError) or error_number(error) is not None or store_failed(error):
        return failed(error, f"{what} cannot be read now: {error}", path)
    return DataLoss("FILE_DAMAGED", f"{what} cannot be read, the file is damaged: {error}", path=path)
