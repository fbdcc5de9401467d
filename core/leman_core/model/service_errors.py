"""The error tree of the services, and what an error may repeat of a text that a caller sent.

One error tree for the services. The map to gRPC status codes lives in `leman_core.server.status`, once.

    LemanError
    ├── InvalidArgument         the request is wrong; `field` says where
    ├── NotFound                table, column, UDF, job, version
    ├── AlreadyExists           another thing stands under that name or request id
    ├── FailedPrecondition      the request is right, the table or the function is not ready for it
    │   └── UnknownFormat       another release stored it
    ├── Aborted                 the table moved on: plan again
    ├── Unavailable             a store or a service cannot be reached, or is draining: try again
    ├── ResourceExhausted       a queue is full or a message too large
    ├── DataLoss                a stored file does not have the content it had
    ├── Unauthenticated         no valid token
    ├── PermissionDenied        the caller may not do that, whatever the state of the system
    ├── Unimplemented           named in the API, not built
    └── Internal                a bug

Every error has a `reason` (a stable word for programs, such as COLUMN_NOT_DEFINED), a message that says what was wrong
and what to do next, and `facts` (short strings for programs).

What errors show of a text that someone else wrote: no more than a person can use, and all that is in it.
"""

from __future__ import annotations

import re

from leman._format.stored_documents import OtherFormat, StoredFormat

#: Reason of the refusal that ends an attempt at a job: another executor has taken the job over.
ATTEMPT_FENCED = "ATTEMPT_FENCED"
#: Reason of Unavailable where one service does not reach another one.
PEER_UNAVAILABLE = "PEER_UNAVAILABLE"
#: Fact of such an error: it never did since it started, so the address may be wrong.
NEVER_REACHED = "never_reached"
#: Reason of Unimplemented: what answers has no such call.
CALL_NOT_OFFERED = "CALL_NOT_OFFERED"
#: Reason of Internal where a bug came to light that no one expected.
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
    """The request is wrong whatever the state of the system."""


class NotFound(LemanError):
    """What the request names does not exist."""


class AlreadyExists(LemanError):
    """Something else stands under that name or id."""


class FailedPrecondition(LemanError):
    """The state of table or function forbids it; repeating the call does not help."""


class UnknownFormat(FailedPrecondition):
    """A release that is too old or too new for this one stored it: it is whole, and this release cannot read it."""


class Aborted(LemanError):
    """The table changed under the request: plan again."""


class Unavailable(LemanError):
    """A store or service cannot be reached now; the same call may succeed later."""

    def __init__(self, reason: str, message: str, *, retry_after_seconds: float = 1.0, **facts: object) -> None:
        super().__init__(reason, message, field="", **facts)
        self.retry_after_seconds = retry_after_seconds


class ResourceExhausted(LemanError):
    """A bound was hit, such as the length of a queue; there may be room later.

    Args:
        retry_after_seconds: 0: there will not be, and sending the call again does not help.
    """

    def __init__(self, reason: str, message: str, *, retry_after_seconds: float = 1.0, **facts: object) -> None:
        super().__init__(reason, message, field="", **facts)
        self.retry_after_seconds = retry_after_seconds


class DataLoss(LemanError):
    """A stored file is damaged."""


class Unauthenticated(LemanError):
    """No valid token."""


class PermissionDenied(LemanError):
    """The caller is known, and may not do that; or no one may, with these settings."""


class Unimplemented(LemanError):
    """Part of the API that this release does not build."""


class Internal(LemanError):
    """A bug of ours."""


def unknown_format(error: OtherFormat) -> UnknownFormat:
    """Return the error of what another release stored."""
    return UnknownFormat(error.reason, str(error), format=error.number)


def check_format(kind: StoredFormat, stated: object, where: str) -> None:
    """Refuse what this release does not read, as `StoredFormat.check`.

    Raises:
        UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
        ValueError: it is no number: that is damage.
    """
    try:
        kind.check(stated, where)
    except OtherFormat as error:
        raise unknown_format(error) from None


#: Stored data that this release cannot use; callers may continue without it.
UNREADABLE = (DataLoss, UnknownFormat)


def reused_request_id(request_id: str) -> AlreadyExists:
    """Return the error for a request id that came with another body before."""
    return AlreadyExists(
        "REQUEST_ID_REUSED",
        f"Request id {request_id} was used for another request: choose a new one for each request",
        request_id=request_id,
    )


def reused_with_other_rows(request_id: str, difference: str) -> AlreadyExists:
    """Return the error for a request id that came with other rows before; those were taken."""
    return AlreadyExists(
        "REQUEST_ID_REUSED",
        f"Request id {request_id} was used for other rows, so these were not taken: {difference}. "
        "Send them under a new id",
        request_id=request_id,
        difference=difference,
    )


#: Control characters, ends of lines, changes of direction (a name then reads as another one) and halves of pairs.
#: Stores refuse some of them late, after a minute of retries.
CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: Invisible characters: a name that contains one reads as another name. Joiners, variation selectors and tags belong to
#: some scripts and to emoji, so they count only between ASCII characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e001f]"
    "|(?<![^\0-\x7f])[\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e01ef](?![^\0-\x7f])"
)
#: So much of what a caller sent is repeated in an error.
_MOST_REPEATED = 300


def escape_invisible(text: str) -> str:
    """Return a text with escapes such as `\\u200b` for characters that show nothing."""
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def excerpt(text: str) -> str:
    """Return what an error repeats of a text that a caller sent: its beginning, without control characters."""
    clean = escape_invisible(CONTROL_CHARACTERS.sub("\ufffd", text[:_MOST_REPEATED]))
    return clean if len(text) <= _MOST_REPEATED else f"{clean}…"
