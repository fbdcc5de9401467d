"""Pages of a listing: size clamp and opaque tokens.

A token holds the sort key of the last item of its page, so that the next page starts in the right place even if items
came or went in between.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from leman_core.model.service_errors import InvalidArgument

DEFAULT_SIZE = 100
MAX_SIZE = 1000

Item = TypeVar("Item")
#: A sort key: JSON values that compare with one another.
Key = str | int | tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The page that a list request asks for."""

    size: int
    #: The key of the last item of the previous page; None: the first page.
    after: Key | None
    scope: str

    def token(self, last: Key) -> str:
        """Return the token of the page after the item with this key."""
        body = json.dumps([self.scope, last], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


def read_page(page_size: int, page_token: str, scope: str, most: int = MAX_SIZE, *, field: str = "page_token") -> Page:
    """Read `page_size` and `page_token` of a request.

    Args:
        scope: Names the listing with all its filters, such as `ListJobs /data/lake docs`. A token of another listing is
            refused.
        most: The largest page.
        field: Names the token's field in the error.

    Raises:
        InvalidArgument: BAD_PAGE_TOKEN, BAD_PAGE_SIZE.
    """
    if page_size < 0:
        raise InvalidArgument("BAD_PAGE_SIZE", f"page_size is {page_size}; it cannot be negative", field="page_size")
    try:
        after = _read_token(page_token, scope) if page_token else None
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message.replace("page_token", field, 1), field=field) from None
    return Page(min(page_size or DEFAULT_SIZE, most), after, scope)


def cut(
    items: Sequence[Item], page: Page, key: Callable[[Item], Key], *, descending: bool = False
) -> tuple[Sequence[Item], str]:
    """Return the page's items, and the token of the next page or an empty text.

    Args:
        items: Sorted by the unique `key`.
    """
    start = 0
    if page.after is not None:
        start = _first_after(items, page.after, key, descending=descending)
    chosen = items[start : start + page.size]
    more = start + page.size < len(items)
    return chosen, page.token(key(chosen[-1])) if more else ""


def _first_after(items: Sequence[Item], after: Key, key: Callable[[Item], Key], *, descending: bool) -> int:
    try:
        if descending:
            return bisect.bisect_left(items, True, key=lambda item: key(item) < after)  # type: ignore[operator]
        return bisect.bisect_right(items, after, key=key)
    except TypeError:
        raise _bad_token() from None


def _read_token(token: str, scope: str) -> Key:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        told_scope, last = json.loads(raw[4:])
    except (binascii.Error, ValueError, TypeError):
        raise _bad_token() from None
    if zlib.crc32(raw[4:]) != int.from_bytes(raw[:4], "big") or told_scope != scope:
        raise _bad_token()
    return tuple(last) if isinstance(last, list) else last


def _bad_token() -> InvalidArgument:
    return InvalidArgument(
        "BAD_PAGE_TOKEN",
        "page_token does not belong to this listing; start again without it",
        field="page_token",
    )
