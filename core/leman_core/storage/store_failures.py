"""Tells a store that did not answer from bytes that make no sense: only these are damage."""

from __future__ import annotations

import errno
import re

from leman_core.storage.storage_errors import error_number

#: What Lance says once an object store has refused, or not answered, often enough. A file that is too short is told in
#: the same words, with the range that was asked for.
_NO_ANSWER = re.compile(
    r"Generic \w+ error: (?!.*\brange\b)|AWS Error (?!RESOURCE_NOT_FOUND|NO_SUCH_KEY)"
    r"|google::cloud::Status|Azure Error:|error sending request|[Tt]imed out|[Cc]onnection (?:refused|reset|closed)"
)


def store_failed(error: BaseException) -> bool:
    """Tell whether an error of Lance, pyarrow or the system says nothing about the bytes: they may be whole."""
    number = error_number(error)
    if number is not None:
        return number not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
    return _NO_ANSWER.search(str(error)) is not None
