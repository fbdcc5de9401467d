"""Whether a value is as a case expects it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$any": lambda value, _: value is not None,
    "$absent": lambda value, _: value in (None, "", [], {}),
    "$ge": lambda value, least: value is not None and float(value) >= least,
    "$le": lambda value, most: value is not None and float(value) <= most,
    "$matches": lambda value, pattern: isinstance(value, str) and re.search(pattern, value) is not None,
    "$size": lambda value, size: len(value or ()) == size,
    "$in": lambda value, options: any(not mismatch(value, option) for option in options),
    "$has": lambda value, wanted: all(any(not mismatch(v, w) for v in value or ()) for w in wanted),
    "$end_of": lambda value, whole: bool(value) and whole[-len(value) :] == value,
    "$set": lambda value, wanted: sorted(map(str, value or ())) == sorted(map(str, wanted)),
    "$grows": lambda value, _: bool(value) and all(float(a) <= float(b) for a, b in pairwise(value)),
}


def mismatch(value: Any, expected: Any, where: str = "") -> str:
    """What is not as expected, and where; empty: all is. A mapping expects what it names, and nothing of the rest; a
    list each element; one of the operators (`{$ge: 1}`) what it says. Whole numbers may be texts."""
    if isinstance(expected, dict):
        operators = [name for name in expected if name in _OPERATORS]
        for name in operators:
            if not _OPERATORS[name](value, expected[name]):
                return f"{where or 'it'} is {value!r}, not {expected!r}"
        named = {name: wanted for name, wanted in expected.items() if name not in _OPERATORS}
        if operators and not named:
            return ""
        if not isinstance(value, dict):
            return f"{where or 'it'} is {value!r}, not {expected!r}"
        found = (mismatch(value.get(name), wanted, f"{where}.{name}".lstrip(".")) for name, wanted in named.items())
        return next(filter(None, found), "")
    if isinstance(expected, list):
        if not isinstance(value, list) or len(value) != len(expected):
            return f"{where or 'it'} is {value!r}, not {expected!r}"
        pairs = enumerate(zip(value, expected, strict=True))
        return next(filter(None, (mismatch(v, e, f"{where}[{i}]") for i, (v, e) in pairs)), "")
    same = _number(value) == expected if _is_number(expected) else value == expected
    return "" if same else f"{where or 'it'} is {value!r}, not {expected!r}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> Any:
    try:
        return (
            float(value) if isinstance(value, str) and "." in value else int(value) if isinstance(value, str) else value
        )
    except ValueError:
        return value
