"""`CASE … END` in SQL: where its words stand, and what lies between them. Judged from tokens alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leman_core.sql.filters import Kind, Token, invalid

#: How many WHENs there may be: each is a bracket more to Lance's parser, which gives up at 50.
MAX_WHENS = 32
_INNER = frozenset({"when", "then", "else"})
_OPENING = frozenset({"(", "["})
_CLOSING = frozenset({")", "]"})

#: A keyword and its place among the tokens.
_Mark = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Case:
    """One CASE as text, and its place."""

    begin: int
    end: int
    #: Empty where each WHEN has a condition.
    operand: str
    branches: tuple[tuple[str, str], ...]
    #: What stands after ELSE.
    otherwise: str


def keywords(found: Sequence[Token]) -> frozenset[int]:
    """Return where in the text words of CASE stand, which name no column. Outside of CASE, WHEN and END are names."""
    return frozenset(found[at].start for _, at, _ in _words(found))


def check(found: Sequence[Token]) -> None:
    """Refuse a CASE that is not complete, and too many WHENs.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    words = Counter(word for word, _, _ in _words(found))
    if words["case"] != words["end"]:
        raise invalid("CASE has no END")
    if words["when"] > MAX_WHENS:
        raise invalid(f"it has {words['when']} times WHEN, at most {MAX_WHENS} are allowed")


def first(text: str, found: Sequence[Token]) -> Case | None:
    """Return the first outermost CASE of a text; None: it has none.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    marks: list[_Mark] = []
    for word, at, depth in _words(found):
        if depth == 1:
            marks.append((word, at))
            if word == "end":
                return _case(text, found, marks)
    if marks:
        raise invalid("CASE has no END")
    return None


def _words(found: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Yield (word, place, how many CASEs it is inside of, its own included)."""
    open_cases = 0
    before = ""
    for at, token in enumerate(found):
        word = token.lower if token.kind is Kind.WORD and before != "." else ""
        before = token.text
        if word == "case":
            open_cases += 1
            yield word, at, open_cases
        elif open_cases and (word in _INNER or word == "end"):
            yield word, at, open_cases
            open_cases -= word == "end"


def _case(text: str, found: Sequence[Token], marks: Sequence[_Mark]) -> Case:
    words = " ".join(word for word, _ in marks)
    pairs = words.removeprefix("case ").removesuffix(" end").removesuffix(" else")
    if not pairs or pairs.replace("when then", "").strip():
        at = found[marks[0][1]].start + 1
        raise invalid(f"CASE at character {at} is written like CASE WHEN … THEN … ELSE … END")

    parts = []
    for (word, at), (_, after) in itertools.pairwise(marks):
        inside = text[found[at].end : found[after].start].strip()
        if not inside and word != "case":
            raise invalid(f"nothing follows {word.upper()} at character {found[at].start + 1}")
        if not _balanced(found[at + 1 : after]):
            raise invalid(f"brackets do not match after {word.upper()} at character {found[at].start + 1}")
        parts.append((word, inside))
    whens = [inside for word, inside in parts if word == "when"]
    thens = [inside for word, inside in parts if word == "then"]
    otherwise = next((inside for word, inside in parts if word == "else"), "NULL")
    begin, end = found[marks[0][1]].start, found[marks[-1][1]].end
    return Case(begin, end, parts[0][1], tuple(zip(whens, thens, strict=True)), otherwise)


def _balanced(found: Sequence[Token]) -> bool:
    depth = 0
    for token in found:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth < 0:
            return False
    return depth == 0
