"""The error tree of the services, and the quotation of callers' texts in errors.

The map to gRPC status codes is in `leman_core.server.status`.

    LemanError
    ├── InvalidArgument         the request is wrong; `field` says where
    ├── NotFound                table, column, UDF, job, version
    ├── AlreadyExists           the name or request id is taken
    ├── FailedPrecondition      the request is valid, the table or the function is not ready for it
    │   └── UnknownFormat       another release stored it
    ├── Aborted                 the table changed: plan again
    ├── Unavailable             a store or a service cannot be reached, or is draining: try again
    ├── ResourceExhausted       a queue is full or a message too large
    ├── DataLoss                a stored file does not have the content it had
    ├── Unauthenticated         no valid token
    ├── PermissionDenied        the caller may not do that, in any state of the system
    ├── Unimplemented           in the API, but not offered
    └── Internal                a bug

Every error has a `reason` (a stable word for programs, such as COLUMN_NOT_DEFINED), a message that says what is wrong
and what to do, and `facts` (short strings for programs).
"""

from __future__ import annotations

import re

from leman._format.stored_documents import OtherFormat, StoredFormat

#: Reason of the refusal that ends an attempt at a job: another executor has taken the job over.
ATTEMPT_FENCED = "ATTEMPT_FENCED"
#: Reason of Unavailable if one service cannot reach another.
PEER_UNAVAILABLE = "PEER_UNAVAILABLE"
#: Fact of such an error: the peer was never reached since the start, so the address may be wrong.
NEVER_REACHED = "never_reached"
#: Reason of Unimplemented: the server does not have the call.
CALL_NOT_OFFERED = "CALL_NOT_OFFERED"
#: Reason of Internal for an unexpected bug.
INTERNAL_BUG = "INTERNAL_BUG"


class LemanError(Exception):
    """Base of all errors that the services raise on purpose."""

    def __init__(self, reason: str, message: str, *, field: str = "", **facts: object) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field
        self.facts = {key: str(value) for key, value in facts.items()}


class InvalidArgument(LemanError):
    """The request is wrong in any state of the system."""


class NotFound(LemanError):
    """What the request names does not exist."""


class AlreadyExists(LemanError):
    """The name or id is taken."""


class FailedPrecondition(LemanError):
    """The state of table or function forbids it; a retry does not help."""


class UnknownFormat(FailedPrecondition):
    """An older or newer release stored it: it is intact, and this release cannot read it."""


class Aborted(LemanError):
    """The table changed under the request: plan again."""


class Unavailable(LemanError):
    """A store or service cannot be reached now; a retry may succeed."""

    def __init__(self, reason: str, message: str, *, retry_after_seconds: float = 1.0, **facts: object) -> None:
        super().__init__(reason, message, field="", **facts)
        self.retry_after_seconds = retry_after_seconds


class ResourceExhausted(LemanError):
    """A limit was reached, such as the length of a queue; there may be room later.

    Args:
        retry_after_seconds: 0: a retry does not help.
    """

    def __init__(self, reason: str, message: str, *, retry_after_seconds: float = 1.0, **facts: object) -> None:
        super().__init__(reason, message, field="", **facts)
        self.retry_after_seconds = retry_after_seconds


class DataLoss(LemanError):
    """A stored file is damaged."""


class Unauthenticated(LemanError):
    """No valid token."""


class PermissionDenied(LemanError):
    """The caller is known, and may not do that; or the settings allow it to no one."""


class Unimplemented(LemanError):
    """A part of the API that this release does not offer."""


class Internal(LemanError):
    """A bug in Leman."""


def unknown_format(error: OtherFormat) -> UnknownFormat:
    """Return the error for data that another release stored."""
    return UnknownFormat(error.reason, str(error), format=error.number)


def check_format(kind: StoredFormat, stated: object, where: str) -> None:
    """Refuse a format that this release does not read, as `StoredFormat.check`.

    Raises:
        UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
        ValueError: it is not a number, which means damage.
    """
    try:
        kind.check(stated, where)
    except OtherFormat as error:
        raise unknown_format(error) from None


#: Stored data that this release cannot use; callers may continue without it.
UNREADABLE = (DataLoss, UnknownFormat)


def reused_request_id(request_id: str) -> AlreadyExists:
    """Return the error for a request id that was used with another body."""
    return AlreadyExists(
        "REQUEST_ID_REUSED",
        f"Request id {request_id} was used for another request: choose a new one for each request",
        request_id=request_id,
    )


def reused_with_other_rows(request_id: str, difference: str) -> AlreadyExists:
    """Return the error for a request id that was used with other rows, which were accepted."""
    return AlreadyExists(
        "REQUEST_ID_REUSED",
        f"Request id {request_id} was used for other rows, so these were not taken: {difference}. "
        "Send them under a new id",
        request_id=request_id,
        difference=difference,
    )


#: Control characters, line ends, changes of direction (which make a name read as another one) and lone surrogates.
#: Stores refuse some of them late, after a minute of retries.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: Invisible characters, which make a name read as another one. Joiners, variation selectors and tags belong to some
#: scripts and to emoji, so they count only between ASCII characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e001f]"
    "|(?<![^\0-\x7f])[\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e01ef](?![^\0-\x7f])"
)
#: Characters of a caller's text that an error repeats.
_MOST_REPEATED = 300


def escape_invisible(text: str) -> str:
    """Return a text with escapes such as `\u200b` for invisible characters."""
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def excerpt(text: str) -> str:
    """Return the start of a caller's text for an error, without control characters."""
    clean = escape_invisible(CONTROL_CHARACTERS.sub("\ufffd", text[:_MOST_REPEATED]))
    return clean if len(text) <= _MOST_REPEATED else f"{clean}…"
