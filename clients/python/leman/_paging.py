"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

PAGE = 1000


def pages(call: Callable[[str, int], Any], limit: int | None = None) -> Iterator[Any]:
    """The responses of a list call, `call(page_token, page_size)`, until `limit` items are covered or none is left."""
    token, left = "", limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        response = call(token, size)
        yield response
        token = response.next_page_token
        left = None if left is None else left - size
        if not token:
            return
