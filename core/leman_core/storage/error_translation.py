"""Translate what Lance, pyarrow and the system raise, once. The rule is in `leman_core.storage.storage_errors`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from leman_core.model.errors import DataLoss, FailedPrecondition, LemanError, NotFound
from leman_core.storage.panics import is_panic, panics_as_errors
from leman_core.storage.storage_errors import error_number, failed, refusal, unusable
from leman_core.storage.store_failures import store_failed
from leman_core.storage.table_errors import lost_file

#: What Lance and pyarrow raise for what they cannot read or write; a panic becomes an OSError, see `panics`.
LANCE_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
#: What Lance raises for requests that it would refuse again, and how it says so in others.
_DEFINITE = (ValueError, TypeError, NotImplementedError)
_DEFINITE_SIGNS = (
    *("Invalid user input", "Not supported", "LanceError(Schema)", "LanceError(Arrow)", "LanceError(Unprocessable)"),
    *("LanceError(InvalidInput)", "LanceError(NotSupported)", "LanceError(InvalidRef)", "LanceError(FieldNotFound)"),
)


def is_definite(error: BaseException) -> bool:
    """Tell whether Lance would refuse again what it refuses with this error of a write or a commit.

    A panic is such an error: Lance is sure to panic again.
    """
    text = str(error)
    if is_panic(error):
        return True
    if "LanceError(IO)" in text or error_number(error) is not None or store_failed(error):
        return False
    return isinstance(error, _DEFINITE) or any(sign in text for sign in _DEFINITE_SIGNS)


def first_line(error: BaseException) -> str:
    """Return Lance's message without the place in its source."""
    return str(error).partition(", /")[0].partition("\n")[0]


@contextlib.contextmanager
def writing_values(path: str, field: pa.Field) -> Iterator[None]:
    """As `using_storage`, where values of one column are written.

    Raises:
        FailedPrecondition: TYPE_NOT_STORABLE, where Lance refuses the values, and would again.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        if refusal(error, path) is None and is_definite(error):
            raise not_storable(field, error) from error
        raise unusable(error, path) from error


def not_storable(field: pa.Field, error: BaseException) -> FailedPrecondition:
    """Return the error for values that Lance will never accept."""
    wider = " or a dictionary with wider indices" if pa.types.is_dictionary(field.type) else ""
    return FailedPrecondition(
        "TYPE_NOT_STORABLE",
        f"Lance cannot store these values in column '{field.name}' of type {field.type}: {first_line(error)}. Give the "
        f"column another type{wider}, or correct the values",
        column=field.name,
    )


@contextlib.contextmanager
def using_storage(path: str) -> Iterator[None]:
    """Raise what `storage_errors.unusable` gives in place of any error of Lance, or of what `lost_file` finds lost."""
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise lost_file(path, error) or unusable(error, path) from error


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
