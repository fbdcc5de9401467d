"""The format number and the digest of stored documents. Pure.

Stored data states the number of its format, so that data of another release is not taken for damaged. Data without a
number has format 1, unless the formats below say otherwise. A change that earlier releases cannot read gets the next
number. `docs/stored_formats.md` lists where each number is stored.

A digest detects damage, not malice: anyone who can write to the store can compute one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Unreadable(Exception):
    """Stored data that this release cannot use; the text says why."""


class Damaged(Unreadable, ValueError):
    """Stored data that was changed after it was written."""


class OtherFormat(Unreadable):
    """Stored data that is intact, but of another release, in a format that this release does not read.

    `reason` is FORMAT_TOO_OLD or FORMAT_TOO_NEW.
    """

    def __init__(self, reason: str, message: str, number: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.number = number


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """A stored format: what it stores, the number that this release writes, and the oldest number that it reads.

    `renew`: advice for data in an older format, as a sentence.
    """

    called: str
    current: int = 1
    oldest: int = 1
    renew: str = "Let the release that wrote it, or the last one that reads it, finish what is open"

    def check(self, stated: object, where: str) -> None:
        """Raise an error for a format that this release does not read.

        Args:
            stated: The stored number, or None if there is none.
            where: The data, as the subject of a sentence.

        Raises:
            OtherFormat: The format is older or newer.
            ValueError: The value is not a number, so the data is damaged.
        """
        number = 1 if stated is None else int(str(stated))
        if self.oldest <= number <= self.current:
            return
        said = f"{where} is whole, and in format {number} of {self.called}"
        if number > self.current:
            raise OtherFormat(
                "FORMAT_TOO_NEW",
                f"{said}; this release reads up to {self.current}. Use the release that wrote it, or one after it",
                number,
            )
        message = f"{said}; this release reads formats from {self.oldest} on. {self.renew}"
        raise OtherFormat("FORMAT_TOO_OLD", message, number)


#: Format 1 introduced the digest, format 2 the names in inputs.
BINDING = StoredFormat(
    "column bindings",
    current=2,
    renew="Open the table with a release that reads it: its values are right, and need not be computed again",
)
#: Format 2 introduced the digest.
FUNCTION = StoredFormat("function definitions", 2, 2, "Register the function again, with the version that it had")
#: The number also says how a view points to rows of its source.
VIEW = StoredFormat("views", 2)
JOB = StoredFormat("job records")
TAIL = StoredFormat("objects of a history's tail")
LOG = StoredFormat("job histories and tables of failed rows")
REGISTRATION = StoredFormat("registrations of databases")
CHECKPOINT = StoredFormat("checkpoints")
ROW_STATES = StoredFormat("row states of column files")
NULL_ROWS = StoredFormat("NULL rows of column files")
SOURCE_RECORD = StoredFormat("source records of views")


_DIGEST = "sha256"


def content_digest(content: bytes) -> str:
    """Return the digest that names or precedes stored content: 32 hex digits of SHA-256.

    New kinds of documents follow one rule: JSON is sealed (`seal`), and any other content has this digest in its name.
    Column files, checkpoints and lists of a view's rows keep the xxh3-128 that earlier releases check.
    """
    return hashlib.sha256(content).hexdigest()[:32]


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the document as JSON with the added key `sha256`, the digest of the other entries."""
    return _text({**document, _DIGEST: _digest_of(document)})


def unseal(data: bytes) -> dict[str, Any]:
    """Return the document that `seal` encoded.

    Raises:
        Damaged: The bytes were changed.
    """
    document = json.loads(data)
    if not isinstance(document, dict):
        raise Damaged("it is no JSON object")
    stated = document.pop(_DIGEST, None)
    if stated is None:
        raise Damaged("it carries no digest")
    if stated != _digest_of(document) or seal(document) != data:
        raise Damaged("its digest does not match its content")
    return document


def digest_of(entries: Mapping[str, str]) -> str:
    """Return the digest of named texts, 32 hex digits. Their order does not matter."""
    return content_digest(json.dumps(sorted(entries.items()), ensure_ascii=False).encode())


def _digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()  # without indent, C code encodes it


def seal_text(text: str) -> str:
    """Return the text with its digest in front."""
    return f"{content_digest(text.encode())} {text}"


def is_whole(sealed: str) -> bool:
    """Return whether a sealed text matches its digest."""
    digest, _, text = sealed.partition(" ")
    return digest == content_digest(text.encode())


def unseal_text(sealed: str) -> str:
    """Return the text that `seal_text` sealed.

    Raises:
        Damaged: The text was changed.
    """
    if not is_whole(sealed):
        raise Damaged("its digest does not match its content")
    return sealed.partition(" ")[2]
