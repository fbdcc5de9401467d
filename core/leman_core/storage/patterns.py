"""Regular expressions that callers write in SQL: each is compiled once, before a table's rows meet it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import lance
import pyarrow as pa

from leman_core.sql import filters
from leman_core.sql.filters import Kind, Token
from leman_core.storage.panics import panics_as_errors

_FUNCTIONS = frozenset({"regexp_like", "regexp_match"})
_OPENING, _CLOSING = frozenset("(["), frozenset(")]")


def check(sql: str) -> None:
    """Refuse regular expressions that do not compile, or are too large once they are compiled.

    Those that a column has, or that are computed, show at its rows.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    for arguments in _arguments(filters.tokens(sql)):
        if len(arguments) > 1 and all(len(given) == 1 and given[0].kind is Kind.STRING for given in arguments[1:]):
            pattern, *flags = (given[0].text for given in arguments[1:])
            fault = _fault(pattern, tuple(flags))
            if fault:
                raise filters.invalid(f"the regular expression {pattern[:100]} cannot be used: {fault}")


def _arguments(found: Sequence[Token]) -> Iterator[list[list[Token]]]:
    """Yield the arguments of each call with a regular expression."""
    for at, token in enumerate(found[:-1]):
        if token.name.lower() not in _FUNCTIONS or found[at + 1].text != "(":
            continue
        depth, arguments = 0, [list[Token]()]
        for inner in found[at + 2 :]:
            depth += (inner.text in _OPENING) - (inner.text in _CLOSING)
            if depth < 0:
                break
            if inner.text == "," and not depth:
                arguments.append([])
            else:
                arguments[-1].append(inner)
        yield arguments


@lru_cache(maxsize=256)
def _fault(pattern: str, flags: tuple[str, ...]) -> str:
    """Return what is wrong with a regular expression, by trying it on one row; empty: nothing is."""
    row = lance.write_dataset(pa.table({"s": [""]}), "memory://patterns.lance")
    arguments = ", ".join(("s", pattern, *flags))
    try:
        with panics_as_errors():
            row.to_table(filter=f"regexp_match({arguments}) IS NULL")
    except (OSError, ValueError, pa.ArrowException) as error:
        text = str(error)
        if "CompiledTooBig" in text or "size limit" in text:
            return "it is too large once it is compiled: repeat less in it"
        if "regular expression" in text.lower() or "regex" in text.lower():
            return (
                "it does not compile: brackets that do not match, or what this dialect lacks (look-around, references)"
            )
    return ""
