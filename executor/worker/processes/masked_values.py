"""Values of a job's environment: they are in no text that goes from the process of a function to logs or records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
#: What is shorter is no secret, and part of too many words.
SHORTEST = 6


class MaskedValues:
    """The values that are taken out of texts."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None
        self._encoded: re.Pattern[bytes] | None = None

    def take(self, values: Iterable[str]) -> None:
        """Take these values out from now on, also as urls have them."""
        long = {value for value in values if len(value) >= SHORTEST}
        forms = sorted(long | {quote(value, safe="") for value in long}, key=len, reverse=True)
        if forms:
            self._pattern = re.compile("|".join(map(re.escape, forms)))
            self._encoded = re.compile(b"|".join(re.escape(form.encode()) for form in forms))

    def out_of(self, text: str) -> str:
        """Return a text without the values."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def out_of_bytes(self, text: bytes) -> bytes:
        """Return an encoded text without the values."""
        return text if self._encoded is None else self._encoded.sub(MASK.encode(), text)


#: Those of this process.
masked = MaskedValues()
