"""The format number and the digest of stored documents. Pure.

Stored data states the number of its format, so that data of another release is not taken for damage. Without a number
it has format 1, unless the formats below say otherwise. A change gets the next number if earlier releases cannot read
it. `docs/stored_formats.md` lists where each number is stored.

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
    """It is not as it was written."""


class OtherFormat(Unreadable):
    """Another release wrote it. It is whole, and in a format that this release does not read.

    `reason`: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
    """

    def __init__(self, reason: str, message: str, number: int) -> None:
        super().__init__(message)
        self.reason = reason
        self.number = number


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """A format: what it is of, the number that this release writes, and the oldest one that it reads.

    `renew`: what to do if it is too old, as a sentence.
    """

    called: str
    current: int = 1
    oldest: int = 1
    renew: str = "Let the release that wrote it, or the last one that reads it, finish what is open"

    def check(self, stated: object, where: str) -> None:
        """Refuse a format that this release does not read.

        Args:
            stated: The number as it is stored; None: there is none.
            where: The data, as the subject of a sentence.

        Raises:
            OtherFormat: it is older or newer.
            ValueError: it is not a number, that is, damaged.
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


#: The digest came with format 1, names in inputs with format 2.
BINDING = StoredFormat(
    "column bindings",
    current=2,
    renew="Open the table with a release that reads it: its values are right, and need not be computed again",
)
#: Definitions got a digest with format 2.
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

    The one rule for new kinds of documents: JSON is sealed (`seal`), anything else has this digest in its name.
    Column files, checkpoints and lists of a view's rows keep the xxh3-128 that earlier releases check.
    """
    return hashlib.sha256(content).hexdigest()[:32]


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the document as JSON, with the digest of the rest as `sha256`, a key that it must not have itself."""
    return _text({**document, _DIGEST: _digest_of(document)})


def unseal(data: bytes) -> dict[str, Any]:
    """Return what was sealed.

    Raises:
        Damaged: some bytes are not as they were written.
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
    """Return the digest of named texts, whatever their order: 32 hex digits."""
    return content_digest(json.dumps(sorted(entries.items()), ensure_ascii=False).encode())


def _digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()  # without an indent C does it


def seal_text(text: str) -> str:
    """Return the text with its digest before it."""
    return f"{content_digest(text.encode())} {text}"


def is_whole(sealed: str) -> bool:
    """Return whether a sealed text is as it was written."""
    digest, _, text = sealed.partition(" ")
    return digest == content_digest(text.encode())


def unseal_text(sealed: str) -> str:
    """Return what was sealed.

    Raises:
        Damaged: it is not as it was written.
    """
    if not is_whole(sealed):
        raise Damaged("its digest does not match its content")
    return sealed.partition(" ")[2]
