"""The functions that the machine computes with. They write down the id of every row that they are called for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EVALUATED: list[int] = []


def f_value(version: int, id_: int, x: int | None) -> int | None:
    """What version `version` of f gives. Raises ValueError for some rows, gives NULL for others."""
    if (id_ * 7 + (x or 0) + version) % 13 == 0:
        raise ValueError(f"f{version} fails for {id_}")
    if (id_ + version) % 11 == 0:
        return None
    return -version if x is None else x * 10 + version


def g_value(version: int, id_: int, c: int | None) -> int | None:
    """What version `version` of g gives; its input is computed too."""
    if (id_ + version) % 17 == 0:
        raise ValueError(f"g{version} fails for {id_}")
    return -1000 - version if c is None else c * 3 + version


def h_value(version: int, id_: int, s: tuple[int, int]) -> int:
    """What version `version` of h gives for the two fields of a struct."""
    if (id_ + version) % 19 == 0:
        raise ValueError(f"h{version} fails for {id_}")
    return s[0] * 1000 + s[1] + version


VALUES: dict[str, Callable[[int, int, Any], int | None]] = {"f": f_value, "g": g_value, "h": h_value}


def _logged(name: str, version: int) -> Callable[[int, int | None], int | None]:
    def call(id_: int, value: int | None) -> int | None:
        EVALUATED.append(id_)
        return VALUES[name](version, id_, value)

    return call


f1, f2, f3, f4, f5, f6 = (_logged("f", v) for v in range(1, 7))
g1, g2, g3 = (_logged("g", v) for v in (1, 2, 3))


def h1(id_: int, s: dict[str, int]) -> int | None:
    """Read the fields by the names that they had when the column was added."""
    EVALUATED.append(id_)
    return VALUES["h"](1, id_, (s["p"], s["q"]))
