"""What an error of Lance in a commit means: nothing was committed, it would be refused again, or nobody can tell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lance.commit import CommitConflictError

from leman_core.model.errors import FailedPrecondition, LemanError
from leman_core.storage.error_translation import first_line, is_definite
from leman_core.storage.storage_errors import refusal

#: Messages of plain OSErrors that say for certain that nothing was committed.
_REFUSED = (
    "Incompatible transaction",
    "commit conflict",
    "Fragment being replaced not found",
    "no changes were made",
)


class CommitConflict(Exception):
    """Another writer came between, and nothing was committed: look again before anything else."""


class CommitUnclear(Exception):
    """Lance failed in a way that does not say whether the commit was made: look before anything else."""


@contextlib.contextmanager
def commit_outcomes(uri: str) -> Iterator[None]:
    """Turn what Lance raises in a commit into one of the three things that it can mean.

    Raises:
        CommitConflict: Another writer came between, and nothing was committed.
        FailedPrecondition: The same commit would be refused again, by the storage (see
        `leman_core.storage.storage_errors`) or by
            Lance (COMMIT_REFUSED).
        CommitUnclear: Anything else; the commit may have been made.
    """
    try:
        yield
    except (LemanError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Lance's Rust is no Exception
        refused = isinstance(error, OSError) and any(text in str(error) for text in _REFUSED)
        if refused or isinstance(error, CommitConflictError | FileExistsError):
            raise CommitConflict(first_line(error)) from error
        definite = refusal(error, uri) or _definite(uri, error)
        if definite is not None:
            raise definite from error
        raise CommitUnclear(first_line(error)) from error


def _definite(uri: str, error: BaseException) -> FailedPrecondition | None:
    """Return the error of a commit that Lance would refuse again; None: it may succeed the next time.

    Whether Lance panicked before or after the commit, a look tells.
    """
    if not is_definite(error):
        return None
    return FailedPrecondition(
        "COMMIT_REFUSED", f"Lance refuses this commit to {uri}, and would again: {first_line(error)}", uri=uri
    )
