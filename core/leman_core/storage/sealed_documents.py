"""Documents and texts that carry a digest of their own, so that what was changed in the store is refused, not believed.

A digest tells damage, no malice: whoever can write to the store can make one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGEST = "sha256"


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the document as JSON with the digest of all the rest in it. It must not have a key `sha256` of its own."""
    return _text({**document, _DIGEST: _digest_of(document)})


def unseal(data: bytes) -> dict[str, Any]:
    """Return what was sealed, if every byte is as it was written.

    Raises:
        ValueError: it is not; the error says what is wrong.
    """
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    stated = document.pop(_DIGEST, None)
    if stated is None:
        raise ValueError("it carries no digest")
    if stated != _digest_of(document) or seal(document) != data:
        raise ValueError("its digest does not match its content")
    return document


def digest_of(entries: Mapping[str, str]) -> str:
    """Return the digest of named texts, whatever their order: 32 hex digits."""
    return hashlib.sha256(json.dumps(sorted(entries.items()), ensure_ascii=False).encode()).hexdigest()[:32]


def _digest_of(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text(document)).hexdigest()


def _text(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()  # without an indent C does it


def seal_text(text: str) -> str:
    """Return the text with its digest before it."""
    return f"{_short(text)} {text}"


def is_whole(sealed: str) -> bool:
    """Tell whether a sealed text is as it was written."""
    digest, _, text = sealed.partition(" ")
    return digest == _short(text)


def unseal_text(sealed: str) -> str:
    """Return what was sealed.

    Raises:
        ValueError: it is not as it was written.
    """
    if not is_whole(sealed):
        raise ValueError("its digest does not match its content")
    return sealed.partition(" ")[2]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
