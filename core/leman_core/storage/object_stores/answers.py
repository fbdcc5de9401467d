"""What object stores answer where they refuse, as Lance and pyarrow pass it on.

S3, Google Cloud Storage and Azure have a code and a sentence for it. Lance prints the body of the answer, which is XML;
pyarrow prints the code in one of its own spellings. Of an answer to HEAD, which has no body, both know only the status.

    403 Forbidden: <?xml …?> <Error><Code>SignatureDoesNotMatch</Code><Message>The request …</Message></Error>
    AWS Error SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: The request …
    AWS Error UNKNOWN (HTTP status 400) during …: Unable to parse ExceptionName: ExpiredToken Message: The provided …
    Azure Error: [AuthenticationFailed] 403 Server failed to authenticate …
    google::cloud::Status(PERMISSION_DENIED: …)
"""

from __future__ import annotations

import html
import re

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
#: Of object_store, in place of a code.
_PRIVILEGES = re.compile(r"lacked (?:the necessary privileges|valid authentication credentials)")
#: Of pyarrow's Azure, where nothing in the environment gives credentials.
_NO_TOKEN = re.compile(r"Failed to get token|AuthenticationException")
_NO_BUCKET = re.compile(r"The specified (?:bucket|container|filesystem) does not exist")
#: Of pyarrow's curl, and of Lance, which asks the bucket for its region first.
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
        # requests are signed for another region than the bucket's
        *("authorizationheadermalformed", "permanentredirect", "illegallocationconstraintexception"),
    }
)
_IN_SOURCE = re.compile(r",?\s*/\S+\.rs:\d+:\d+")
_XML = re.compile(r"(?:<\?xml[^>]*\?>\s*)?<Error>.*(?:</Error>|\Z)", re.DOTALL)


def is_full(text: str) -> bool:
    """Tell whether a store has no space left."""
    return any(part in _plain(code_in(text)) for part in _FULL)


def is_denied(text: str) -> bool:
    """Tell whether a store refuses the credentials, or what they are used for."""
    return _plain(code_in(text)) in _DENIED or any(part.search(text) for part in (_PRIVILEGES, _NO_TOKEN))


def is_missing(text: str) -> bool:
    """Tell whether there is no such bucket, or container."""
    return _plain(code_in(text)) in _MISSING or _NO_BUCKET.search(text) is not None


def is_not_found(text: str) -> bool:
    """Tell whether nobody knows where a bucket is, or by which name its server answers."""
    return _NOT_FOUND.search(text) is not None


def code_in(text: str) -> str:
    """Return the code of a store's answer; empty where the text has none."""
    return next((found[1] for code in _CODES if (found := code.search(text))), "")


def said_in(text: str) -> str:
    """Return the code of a store's answer and its sentence; empty where the text has no code."""
    code = code_in(text)
    sentence = next((found[1] for part in _SENTENCES if (found := part.search(text))), "")
    sentence = "" if sentence == _NO_SENTENCE else " ".join(html.unescape(sentence).split())
    return f"{code}: {sentence}" if code and sentence else code


def on_one_line(text: str) -> str:
    """Return the text of an error without places in Lance's source, and with an answer in XML as `said_in` has it."""
    text = _XML.sub(lambda answer: said_in(answer[0]) or answer[0], text)
    return " ".join(_IN_SOURCE.sub("", text).split())


def _plain(code: str) -> str:
    return re.sub(r"[_ ]", "", code).lower()
