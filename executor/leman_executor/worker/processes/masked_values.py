"""Values of a job's environment: they are in no text that goes from the process of a function to logs or records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
#: What is shorter is no secret, and part of too many words.
SHORTEST = 6


class MaskedValues:
    """The values that are taken out of texts."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._encoded: re.Pattern[bytes] | None = None

    def take(self, values: Iterable[str]) -> None:
        """Take these values out from now on, and their lines, also as urls, JSON and Python's source have them."""
        parts = {part for value in values for part in _parts(value) if len(part) >= SHORTEST}
        forms = sorted({form for part in parts for form in _forms(part)}, key=len, reverse=True)
        if forms:
            self._pattern = re.compile("|".join(map(re.escape, forms)))
            self._encoded = re.compile(b"|".join(re.escape(form.encode()) for form in forms))

    def out_of(self, text: str) -> str:
        """Return a text without the values."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def out_of_bytes(self, text: bytes) -> bytes:
        """Return an encoded text without the values."""
        return text if self._encoded is None else self._encoded.sub(MASK.encode(), text)


def _parts(value: str) -> Iterator[str]:
    """Return what a text may have of a value: all of it, without the space around it, or single lines."""
    yield value
    yield value.strip()
    yield from (line.strip() for line in value.splitlines())


def _forms(part: str) -> Iterator[str]:
    yield part
    yield repr(part)[1:-1]
    yield json.dumps(part)[1:-1]
    yield json.dumps(part, ensure_ascii=False)[1:-1]
    yield quote(part)
    yield quote(part, safe="")
    yield quote_plus(part)


#: Those of this process.
masked = MaskedValues()
