"""Which texts of JSON a column holds unchanged. Pure.

Lance stores JSON in a binary form: integers of 64 bits, numbers with a fraction or an exponent as doubles, and text as
UTF-8. Without an error it stores null for a number that a double cannot hold, a double for a longer integer, and a
backslash for half of a surrogate pair.

There are two copies of this module, `leman_core.functions.json_texts` and `leman._json_texts`: the SDK writes tables
without the services.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

#: Integers in between are stored as such.
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_LONGEST_DIGITS = 20
#: Texts without these have no number that could change. All others are looked at number by number.
_NUMBERS = re.compile(r"\d{19}|\d[eE]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'
    r"|(?P<float>-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))|(?P<integer>-?\d+)|(?P<constant>-?[A-Za-z]+)",
    re.DOTALL,
)
_CONSTANTS = frozenset({"true", "false", "null"})


def check(text: str) -> None:
    """Check that a text is JSON, and that a column holds its value unchanged.

    Raises:
        ValueError: It is no JSON, or storage would change it.
    """
    hooks: dict[str, Any] = {"parse_constant": _no_json}
    if _NUMBERS.search(text):
        hooks |= {"parse_int": _integer, "parse_float": _float}
    try:
        json.loads(text, strict=False, object_pairs_hook=_check_keys, **hooks)
    except RecursionError:  # Lance reads what is deeper than Python reads it
        _check_tokens(text)
    if _SURROGATE.search(text):
        _check_surrogates(text)


def _check_tokens(text: str) -> None:
    for token in _TOKEN.finditer(text):
        if token["float"]:
            _float(token["float"])
        elif token["integer"]:
            _integer(token["integer"])
        elif token["constant"] and token["constant"] not in _CONSTANTS:
            _no_json(token["constant"])


def _check_surrogates(text: str) -> None:
    for token in _TOKEN.finditer(text):
        if token[0][0] == '"' and _SURROGATE.search(token[0]):
            try:
                json.loads(token[0], strict=False).encode()
            except UnicodeEncodeError:
                raise ValueError(f"JSON holds half of a surrogate pair: {_short(token[0])}") from None


def _integer(digits: str) -> None:
    if len(digits.lstrip("-")) > _LONGEST_DIGITS or not _SMALLEST <= int(digits) <= _LARGEST:
        raise ValueError(f"JSON holds the integer {_short(digits)}, of more than 64 bits: write it as a string")


def _float(number: str) -> None:
    value = float(number)
    mantissa = re.split("[eE]", number)[0]
    if value in (float("inf"), float("-inf")) or (not value and re.search("[1-9]", mantissa)):
        raise ValueError(f"JSON holds the number {_short(number)}, which no double holds: write it as a string")


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError(f"an object of JSON has a key twice: {', '.join(key for key, _ in pairs)}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
