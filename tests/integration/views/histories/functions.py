"""The function of the views under test. It writes down the id of every row that it is called for."""

from __future__ import annotations

import pyarrow as pa

EVALUATED: list[int] = []


def scored(id_: int, x: int | None, y: int) -> int | None:
    """What `score` gives."""
    if id_ % 17 == 3:
        return None
    return (x or -5) * 10 + y


def score(id: int, x: int | None, y: int) -> int | None:  # noqa: A002 named like the column
    EVALUATED.append(id)
    return scored(id, x, y)


def size(raw: bytes | None) -> int | None:
    return None if raw is None else len(raw)


TRIED: list[int] = []


def odd(id: int) -> int:  # noqa: A002
    """Fails for even ids."""
    TRIED.append(id)
    if id % 2 == 0:
        raise ValueError(id)
    return id


def even(id: int) -> int:  # noqa: A002
    """Fails for odd ids."""
    if id % 2:
        raise ValueError(id)
    return id


def same(x: pa.Array) -> pa.Array:
    """What it is given."""
    return x


CALLED: dict[str, list[int]] = {"tenfold": [], "hundredfold": [], "picky": []}


def tenfold(id: int, a: int) -> int:  # noqa: A002
    CALLED["tenfold"].append(id)
    return a * 10


def hundredfold(id: int, b: int) -> int:  # noqa: A002
    CALLED["hundredfold"].append(id)
    return b * 100


def picky(id: int, a: int) -> int:  # noqa: A002
    """Fails for multiples of three."""
    CALLED["picky"].append(id)
    if a % 3 == 0:
        raise ValueError(a)
    return a * 1000


#: For these `tenth` fails.
BROKEN: set[int] = set()


def tenth(a: int) -> int:
    if a in BROKEN:
        raise ValueError(a)
    return a // 10


def negative(id: int, c: int | None) -> int | None:  # noqa: A002
    EVALUATED.append(id)
    return None if c is None else -c


SQUARED: list[int] = []


def squared(id: int, b: int | None) -> int | None:  # noqa: A002
    SQUARED.append(id)
    return None if b is None else b * b
