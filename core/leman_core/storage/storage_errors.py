"""What an error of storage means: the only module that reads errno and messages of file systems and stores.

An error of Lance, pyarrow or the operating system, or a panic of Lance's Rust, becomes an error of
`leman_core.model.service_errors` once: in the packages that touch storage (`leman_core.storage`,
`leman_coordinator.lance_io`, `leman_executor.refresh.row_diff`) and where a worker reads a bundle
(`leman_executor.worker.function_loading`). Above them a failure of storage is a LemanError; OSError, ValueError and
RuntimeError are bugs, and are not caught.

    FailedPrecondition STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED, STORAGE_MISSING: an operator has to act
                       (`refusal_error`)
    Unavailable        STORE_UNAVAILABLE: a retry or a new plan may succeed, also after credentials were renewed
                       (`storage_failed`, `storage_unusable`)
    NotFound, DataLoss the data is missing or damaged

Each is raised from the original error, whose text `error_text` returns. Object stores state a code and a sentence:
Lance prints the XML body, pyarrow the code in its own spelling. An answer to HEAD has no body, so both know only the
status.

    403 Forbidden: <?xml …?> <Error><Code>SignatureDoesNotMatch</Code><Message>The request …</Message></Error>
    AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: The request …
    AWS Error UNKNOWN (HTTP status 400) during …: Unable to parse ExceptionName: ExpiredToken Message: The provided …
    Azure Error: [AuthenticationFailed] 403 Server failed to authenticate …
    google::cloud::Status(PERMISSION_DENIED: …)
"""

from __future__ import annotations

import contextlib
import errno
import html
import os
import re
from collections.abc import Iterator

from leman_core.model.service_errors import FailedPrecondition, LemanError, NotFound, Unavailable
from leman_core.storage.locations import in_object_store
from leman_core.storage.object_stores import endpoint_of, is_left_out, options_of, were_renewed

_CODES = (
    re.compile(r"<Code>(\w+)</Code>"),
    re.compile(r"Unable to parse ExceptionName: (\w+)"),
    re.compile(r"AWS Error ([A-Z0-9_]+)"),
    re.compile(r"Azure Error: \[(\w+)\]"),
    re.compile(r"google::cloud::Status\((\w+)"),
    re.compile(r"\b(40[13] (?:Unauthorized|Forbidden)|507 Insufficient\w*)"),
)
_SENTENCES = (
    re.compile(r"<Message>(.*?)</Message>", re.DOTALL),
    re.compile(r"Unable to parse ExceptionName: \w+ Message: (.*)"),
    re.compile(r"AWS Error [A-Z0-9_]+ .*? operation: (.*)"),
)
_NO_SENTENCE = "No response body."
#: object_store's text in place of a code.
_PRIVILEGES = re.compile(r"lacked (?:the necessary privileges|valid authentication credentials)")
#: pyarrow's text if the environment has no credentials for Azure.
_NO_TOKEN = re.compile(r"Failed to get token|AuthenticationException")
_NO_BUCKET = re.compile(r"The specified (?:bucket|container|filesystem) does not exist")
#: Texts of pyarrow's curl, and of Lance, which asks for the bucket's region first.
_NOT_FOUND = re.compile(r"Could not resolve host|Failed to resolve region for bucket|Bucket '[^']*' not found")
#: Codes as `_plain` spells them.
_MISSING = frozenset({"nosuchbucket", "containernotfound", "filesystemnotfound"})
_FULL = ("insufficientstorage", "storagefull", "quotaexceeded", "507insufficient")
_DENIED = frozenset(
    {
        *("accessdenied", "allaccessdisabled", "accountproblem", "accountisdisabled", "signaturedoesnotmatch"),
        *(
            "invalidaccesskeyid",
            "invalidclienttokenid",
            "unrecognizedclient",
            "invalidsignature",
            "incompletesignature",
        ),
        *("missingauthenticationtoken", "expiredtoken", "invalidtoken", "requestexpired", "requesttimetooskewed"),
        *("authenticationfailed", "authorizationfailure", "authorizationpermissionmismatch"),
        *("insufficientaccountpermissions", "noauthenticationinformation", "invalidauthenticationinfo"),
        *("unauthenticated", "permissiondenied", "401unauthorized", "403forbidden"),
        # signed for another region than the bucket's
        *("authorizationheadermalformed", "permanentredirect", "illegallocationconstraintexception"),
    }
)
_IN_SOURCE = re.compile(r",?\s*/\S+\.rs:\d+:\d+")
_XML = re.compile(r"(?:<\?xml[^>]*\?>\s*)?<Error>.*(?:</Error>|\Z)", re.DOTALL)


def is_full(text: str) -> bool:
    """Return whether a store has no space left."""
    return any(part in _plain(code_in(text)) for part in _FULL)


def is_denied(text: str) -> bool:
    """Return whether a store refuses the credentials, or their use."""
    return _plain(code_in(text)) in _DENIED or any(part.search(text) for part in (_PRIVILEGES, _NO_TOKEN))


def is_missing(text: str) -> bool:
    """Return whether a bucket or container does not exist."""
    return _plain(code_in(text)) in _MISSING or _NO_BUCKET.search(text) is not None


def is_not_found(text: str) -> bool:
    """Return whether the host or region of a bucket cannot be found."""
    return _NOT_FOUND.search(text) is not None


def code_in(text: str) -> str:
    """Return the code in a store's answer; empty: the text has none."""
    return next((found[1] for code in _CODES if (found := code.search(text))), "")


def answer_in(text: str) -> str:
    """Return the code and the sentence of a store's answer; empty: the text has no code."""
    code = code_in(text)
    sentence = next((found[1] for part in _SENTENCES if (found := part.search(text))), "")
    sentence = "" if sentence == _NO_SENTENCE else " ".join(html.unescape(sentence).split())
    return f"{code}: {sentence}" if code and sentence else code


def on_one_line(text: str) -> str:
    """Return an error's text without places in Lance's source, and with an XML answer as `answer_in` gives it."""
    text = _XML.sub(lambda answer: answer_in(answer[0]) or answer[0], text)
    return " ".join(_IN_SOURCE.sub("", text).split())


def _plain(code: str) -> str:
    return re.sub(r"[_ ]", "", code).lower()


#: Reason of Unavailable: the storage cannot be read or written now.
STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
FULL, READ_ONLY, DENIED = "STORAGE_FULL", "STORAGE_READ_ONLY", "STORAGE_DENIED"
#: The bucket or container does not exist.
MISSING = "STORAGE_MISSING"
#: Reasons for which an operator has to act: waiting does not help.
REASONS = frozenset({FULL, READ_ONLY, DENIED, MISSING})

_BY_NUMBER = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EFBIG: FULL,
    errno.EROFS: READ_ONLY,
    errno.EACCES: DENIED,
    errno.EPERM: DENIED,
}
_NUMBER = re.compile(r"\(os error (\d+)\)|\[[Ee]rrno (\d+)\]")
_BY_ANSWER = {FULL: is_full, DENIED: is_denied, MISSING: is_missing}
#: How Lance begins an error of a store; opening a table raises it as ValueError.
_LANCE_IO = "LanceError(IO)"
#: A missing local file.
_ABSENT = re.compile(r"Not found: (/[^,\n]+)")
_PATH = re.compile(r"""at path "([^"]+)"|(?:file|directory|for|system:) '([^']+)'""")
_DO = {
    MISSING: "does not exist. Create it, and try again",
    FULL: "has no space left. Free some, or raise its quota, and try again",
    READ_ONLY: "is read-only. Make it writable, and try again",
    DENIED: "denies this to the user that the service runs as. Grant the rights, and try again",
}
_LONGEST = 300
_AGAIN = "and try again; finished work is kept"
_SETTING = "LEMAN_STORAGE__OPTIONS_FILE"
#: The provider of a store without a configured endpoint.
_PROVIDERS = {"s3": "AWS", "gs": "Google Cloud Storage", "abfss": "Azure"}


def refusal_error(error: BaseException, path: str) -> FailedPrecondition | Unavailable | None:
    """Return the error of a storage that refuses requests until an operator acts.

    Args:
        error: What Lance, pyarrow or the system raised.
        path: What was to be read or written, unless the error itself names a place.

    Returns:
        FailedPrecondition: STORAGE_FULL, STORAGE_READ_ONLY, STORAGE_DENIED or STORAGE_MISSING.
        Unavailable: STORE_UNAVAILABLE if credentials were renewed: the next request has the new ones.
        None: The error means something else.
    """
    reason = _reason(error)
    if reason is None:
        return _left_out(error, path)
    text = str(error)
    found = _PATH.search(text)
    place = next((part for part in found.groups() if part), "") if found else getattr(error, "filename", None)
    place = str(place or path)
    if in_object_store(place) and reason == MISSING:
        return missing_bucket(place)
    said = (answer_in(text) or on_one_line(text))[:_LONGEST]
    if reason == DENIED and is_denied(text):
        if were_renewed(place):
            renewed = f"The store of {place} refuses credentials that were renewed a moment ago ({said})"
            return Unavailable(STORE_UNAVAILABLE, renewed, uri=place)
        message = f"The store of {place} refuses the credentials of {_credentials(place)}, or does not allow them this "
        message += f"({said}). Correct or renew them, or the region, or grant them the rights, {_AGAIN}"
    else:
        message = f"The storage of {place or 'the database'} {_DO[reason]}; finished work is kept ({said})"
    return FailedPrecondition(reason, message, path=place)


def _left_out(error: BaseException, place: str) -> FailedPrecondition | None:
    """Return the error of a bucket that is not found and that no configured options cover.

    If its options are configured, the failure counts as temporary: a name that cannot be resolved now may be later.
    """
    text = str(error)
    if not isinstance(error, OSError | ValueError | RuntimeError) or not is_not_found(text):
        return None
    if not is_left_out(place):
        return None
    return FailedPrecondition(
        MISSING,
        f"No root in {_SETTING} covers {place}, and it is not found with the services' environment "
        f"({on_one_line(text)[:_LONGEST]}): correct the place, or add a [[store]] for it, {_AGAIN}",
        path=place,
    )


def missing_bucket(place: str) -> FailedPrecondition:
    """Return the error of a place whose bucket or container does not exist."""
    scheme, _, rest = place.partition("://")
    kind = "container" if scheme == "abfss" else "bucket"
    where = endpoint_of(place) or _PROVIDERS.get(scheme, "its endpoint")
    return FailedPrecondition(
        MISSING,
        f"There is no {kind} {rest.partition('/')[0]} at {where}: correct the name, or the endpoint in {_SETTING}, "
        f"or create the {kind}, {_AGAIN}",
        path=place,
    )


def _credentials(place: str) -> str:
    """Name the source of the credentials for a place in a store."""
    options = options_of(place)
    if options is None:
        return f"its root in {_SETTING}, or of the services' environment"
    return f"root {options.root} in {_SETTING}"


def storage_failed(error: BaseException, message: str, path: str) -> LemanError:
    """Return what `refusal_error` gives, or else Unavailable (STORE_UNAVAILABLE) with the message."""
    return refusal_error(error, path) or Unavailable(STORE_UNAVAILABLE, f"{message}{_by_environment(path)}", uri=path)


def _by_environment(place: str) -> str:
    """Return a hint for a place that no configured root covers: its root may be misspelt."""
    if not in_object_store(place) or options_of(place) is not None:
        return ""
    return f" (no root in {_SETTING} covers {place}, so the services' environment was used)"


def storage_unusable(error: BaseException, path: str) -> LemanError:
    """Return what `storage_failed` does, with the class and text of the error as message.

    A missing file outside of the table is NotFound (FILE_MISSING): every version of the table needs it.
    """
    found = _ABSENT.search(str(error))
    if found is not None and path and not _is_inside(found[1], path):
        return NotFound(
            "FILE_MISSING",
            f"{found[1]} is missing: the table keeps only the place of these bytes, outside of its own files. Put the "
            "file back, or give those rows other bytes",
            path=found[1],
        )
    return storage_failed(error, f"{type(error).__name__}: {on_one_line(str(error))}", path)


def error_text(error: BaseException) -> str:
    """Return the text of the original error behind a LemanError; its own if there is none."""
    return str(error.__cause__ or error)


@contextlib.contextmanager
def translating_os_errors(what: str, path: str) -> Iterator[None]:
    """Raise what `storage_failed` gives in place of an OSError. FileNotFoundError passes: only the caller can judge it.

    Args:
        what: The subject of the message, such as "Files of table t".
        path: The place, for programs.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise storage_failed(error, f"{what} cannot be used now: {on_one_line(str(error))}", path) from error


def _is_inside(place: str, path: str) -> bool:
    return os.path.realpath(place).startswith(os.path.realpath(path.removeprefix("file://")).rstrip("/") + "/")


def _reason(error: BaseException) -> str | None:
    if not isinstance(error, OSError | ValueError | RuntimeError):
        return None
    number = error_number(error)
    if number is not None:
        return _BY_NUMBER.get(number)
    if not isinstance(error, OSError) and _LANCE_IO not in str(error):
        return None
    text = str(error)
    return next((reason for reason, is_so in _BY_ANSWER.items() if is_so(text)), None)


def error_number(error: BaseException) -> int | None:
    """Return the errno of an operating system's error, whichever library reports it; None: it is another error."""
    number: int | None = getattr(error, "errno", None)
    if number is None:
        found = _NUMBER.search(str(error))
        number = int(found[1] or found[2]) if found else None
    return number


#: Lance's text once an object store refused, or did not answer, too often. A file that is too short gives the same
#: text with the requested range.
_NO_ANSWER = re.compile(
    r"Generic \w+ error: (?!.*\brange\b)|AWS Error (?!RESOURCE_NOT_FOUND|NO_SUCH_KEY)"
    r"|google::cloud::Status|Azure Error:|error sending request|[Tt]imed out|[Cc]onnection (?:refused|reset|closed)"
)


def store_failed(error: BaseException) -> bool:
    """Return whether an error means that the store failed to answer: the bytes may be whole."""
    number = error_number(error)
    if number is not None:
        return number not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
    return _NO_ANSWER.search(str(error)) is not None
