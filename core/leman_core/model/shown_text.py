"""What errors show of a text that somebody else wrote: no more than a person can use, and all that is in it."""

from __future__ import annotations

import re

#: Control characters, ends of lines, changes of direction (a name then reads as another one) and halves of pairs.
#: Stores refuse some of them late, after a minute of retries.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: Invisible characters: a name that contains one reads as another name. Joiners, variation selectors and tags belong to
#: some scripts and to emoji, so they count only between ASCII characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e001f]"
    "|(?<![^\0-\x7f])[\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e01ef](?![^\0-\x7f])"
)
#: So much of what a caller sent is repeated in an error.
_MOST_REPEATED = 300


def visible(text: str) -> str:
    """Return a text with escapes such as `\\u200b` for characters that show nothing."""
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def repeated(text: str) -> str:
    """Return what an error repeats of a text that a caller sent: its beginning, without control characters."""
    clean = visible(CONTROL.sub("\ufffd", text[:_MOST_REPEATED]))
    return clean if len(text) <= _MOST_REPEATED else f"{clean}…"
