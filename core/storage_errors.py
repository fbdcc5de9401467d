"""What it means that storage cannot be used: the one place that reads errno and messages of file systems and stores.

The rule of the boundary. An error of Lance, of pyarrow or of the operating system, and a panic of Lance's Rust, becomes
an error of `core.errors` once: in the packages that touch storage (`core.lance_io`, `core.checkpoints`,
`commit_coordinator.lance_io`, `executor.refresh.diff`), and where a worker reads a
function's bundle (`executor.worker.function_loading`). Above them a failure of storage is a LemanError, and nothing
catches OSError, ValueError or RuntimeError and means Lance: such an error is a bug there, and stays one.

    FailedPrecondition STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED: somebody has to do something (`refusal`)
    Unavailable        STORE_UNAVAILABLE: it may go another time, or a new plan may not need it (`failed`, `unusable`)
    NotFound, DataLoss what is asked for is not there, or damaged

Each is raised from the error that it stands for, so that `said` can give the words of that one.
Lance, pyarrow and Python say the same thing in three ways; only Python's errors always have an errno.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from core.errors import FailedPrecondition, LemanError, Unavailable

#: Reason of Unavailable for what cannot be read or written now.
STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
FULL, READ_ONLY, DENIED = "STORAGE_FULL", "STORAGE_READ_ONLY", "STORAGE_DENIED"
#: Reasons that waiting does not help with: somebody has to do something about the storage.
REASONS = frozenset({FULL, READ_ONLY, DENIED})

_BY_NUMBER = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: FULL,
    errno.EROFS: READ_ONLY,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
}
_NUMBER = re.compile(r"\(os error (\d+)\)|\[[Ee]rrno (\d+)\]")
#: What object stores answer: the codes of S3, Google Cloud Storage and Azure.
_BY_CODE = {
    FULL: re.compile(r"InsufficientStorage|StorageFull|QuotaExceeded|storageQuotaExceeded|507 Insufficient"),
    DENIED: re.compile(r"AccessDenied|\b403 Forbidden|AuthorizationPermissionMismatch|InsufficientAccountPermissions"),
}
#: As Lance begins what it says of a store; it raises ValueError for it where a table is opened.
_LANCE_IO = "LanceError(IO)"
_PATH = re.compile(r"""at path "([^"]+)"|(?:file|directory|for|system:) '([^']+)'""")
_DO = {
    FULL: "has no space left. Make room, or raise its quota, and send the request again",
    READ_ONLY: "is read-only. Make it writable, and send the request again",
    DENIED: "may not be used in this way by the user that the service runs as. Grant the rights, and send the request "
    "again",
}
_LONGEST = 300


def refusal(error: BaseException, path: str) -> FailedPrecondition | None:
    """Return the error where the storage refuses until somebody does something about it.

    Args:
        path: what was to be read or written, unless the error itself names a place.

    Returns:
        FailedPrecondition with STORAGE_FULL, STORAGE_READ_ONLY or STORAGE_DENIED; None where the error says something
            else.
    """
    reason = _reason(error)
    if reason is None:
        return None
    text = str(error)
    found = _PATH.search(text)
    place = next((part for part in found.groups() if part), "") if found else getattr(error, "filename", None)
    place = str(place or path)
    said = text.partition(", /")[0].partition("\n")[0][:_LONGEST]
    return FailedPrecondition(
        reason, f"The storage of {place or 'the database'} {_DO[reason]}; what is finished is kept ({said})", path=place
    )


def failed(error: BaseException, message: str, path: str) -> LemanError:
    """Return the error of a storage that could not be used.

    It is what `refusal` gives, or Unavailable (STORE_UNAVAILABLE) with the message.
    """
    return refusal(error, path) or Unavailable(STORE_UNAVAILABLE, message, uri=path)


def unusable(error: BaseException, path: str) -> LemanError:
    """Return what `failed` does, where there is no more to say than the class and the words of the error."""
    words = str(error).partition(", /")[0]  # then comes a place in Lance's own source
    return failed(error, f"{type(error).__name__}: {words}", path)


def said(error: BaseException) -> str:
    """Return the words of the error that a LemanError stands for; its own where it stands for itself."""
    return str(error.__cause__ or error)


@contextlib.contextmanager
def in_use(what: str, path: str) -> Iterator[None]:
    """Raise what `failed` gives in place of an OSError, except where a file is missing: whoever asked judges that.

    Args:
        what: begins a sentence, such as "Files of table t".
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise failed(error, f"{what} cannot be used now: {error}", path) from error


def _reason(error: BaseException) -> str | None:
    if not isinstance(error, OSError | ValueError | RuntimeError):
        return None
    number = error_number(error)
    if number is not None:
        return _BY_NUMBER.get(number)
    if not isinstance(error, OSError) and _LANCE_IO not in str(error):
        return None
    return next((reason for reason, codes in _BY_CODE.items() if codes.search(str(error))), None)


def error_number(error: BaseException) -> int | None:
    """Return the errno of what an operating system said, whoever passes it on; None where something else is wrong."""
    number: int | None = getattr(error, "errno", None)
    if number is None:
        found = _NUMBER.search(str(error))
        number = int(found[1] or found[2]) if found else None
    return number
