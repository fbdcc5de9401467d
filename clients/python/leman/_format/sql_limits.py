"""Checks of SQL as text: the depth of its nesting, and whether a filter means the same to Lance and to the services.

Lance and DataFusion walk a parsed expression by recursion: `x+1+1+…` and `x::int::int…` crash the process at about 550
operators. The time to plan arithmetic grows faster than the square of its depth. A COALESCE in the first argument of
another COALESCE triples the time, so that 16 of them take minutes. AND and OR are planned without recursion, so there
may be many.

Lance ignores text after a complete expression, reads a name in double quotes as text, and reads a time with an offset
as clock time in the column's zone. The services refuse or translate such filters. A process that reads a table without
the services evaluates only filters without any of these itself, and has the services evaluate all others.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field

#: Operators and calls between the whole expression and its innermost value.
MAX_NESTING = 100
#: The same limit for stored SQL. Earlier releases had none, and SQL up to this depth does not crash.
MAX_STORED_DEPTH = 400
#: The sum over operators of their depths. Each call around an operator that Lance plans repeatedly triples its share.
MAX_WORK = 20_000
MAX_PARSED_BYTES = 1 << 18

_NESTING_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol>::|<=|>=|<>|!=|==|\|\||->>?|=>|[-+*/%=<>()\[\],^&|~\#@!?:])""",
    re.VERBOSE,
)
_WORDS = frozenset({"not", "is", "like", "ilike", "in", "between", "similar", "rlike", "regexp", "div", "collate"})
#: Words before a bracket that do not make it a call.
_NO_CALL = _WORDS | {"and", "or", "when", "then", "else", "case", "array"}
#: Calls of which Lance plans all arguments but the last repeatedly.
_PLANNED_AGAIN = frozenset({"coalesce", "nvl", "nvl2", "nullif", "greatest", "least"})
_AGAIN = 3


@dataclass(slots=True)
class _Frame:
    """A bracket, a CASE or the whole text, read so far. Its term is the part since the last comma, AND or OR."""

    kind: str
    #: Whether Lance plans the arguments before a comma repeatedly.
    again: bool = False
    depth: int = 0
    work: int = 0
    operators: int = 0
    inner_depth: int = 0
    inner_work: int = 0
    betweens: int = 0
    #: For a CASE: the work of its operand, and the number of WHENs.
    operand: int = 0
    whens: int = 0
    part: str = ""

    def end_term(self, factor: int = 1) -> None:
        """Count the term since the last separator."""
        depth = self.operators + self.inner_depth
        self.depth = max(self.depth, depth)
        self.work += factor * (self.inner_work + self.operators * depth)
        self.operators = self.inner_depth = self.inner_work = self.betweens = 0

    def take(self, inner: _Frame, operators: int) -> None:
        """Add a bracket or CASE to the term around it, once it has ended."""
        self.operators += operators
        self.inner_depth = max(self.inner_depth, inner.depth)
        self.inner_work += inner.work


@dataclass(slots=True)
class _Reading:
    frames: list[_Frame] = field(default_factory=lambda: [_Frame("")])

    def separate(self) -> None:
        frame = self.frames[-1]
        frame.end_term(_AGAIN if frame.again or frame.part == "when" else 1)

    def close(self, kind: str) -> None:
        """End the innermost frame if it has this kind."""
        if self.frames[-1].kind != kind or len(self.frames) == 1:
            return
        frame = self.frames.pop()
        if kind == "case":
            frame.end_term()
            frame.work += frame.operand * frame.whens * _AGAIN
            frame.depth += frame.whens  # each WHEN nests the following ones
        else:
            frame.end_term()
        self.frames[-1].take(frame, 1)


def nesting_problem(sql: str) -> str:
    """Return what is wrong with the nesting of a caller's SQL, or "". Does not recurse."""
    return _problem(sql, MAX_NESTING, MAX_WORK)


def stored_nesting_problem(sql: str) -> str:
    """Return why stored SQL would crash the process, or "" if it would not. Does not recurse."""
    return _problem(sql, MAX_STORED_DEPTH, sys.maxsize)


def _problem(sql: str, most_deep: int, most_work: int) -> str:
    if len(sql) > MAX_PARSED_BYTES:
        return f"it has {len(sql)} characters, and at most {MAX_PARSED_BYTES} can be read"
    reading = _Reading()
    before = ""
    for match in _NESTING_TOKEN.finditer(sql):
        text = match.group().lower()
        _read(reading, text, before, is_word=match.lastgroup == "word", is_symbol=match.lastgroup == "symbol")
        before = text if match.lastgroup == "word" else match.group()[:1]
        if reading.frames[-1].operators > most_deep or len(reading.frames) > most_deep:
            return _too_deep(most_deep)
    while len(reading.frames) > 1:
        reading.close(reading.frames[-1].kind)
    whole = reading.frames[0]
    whole.end_term()
    if whole.depth > most_deep:
        return _too_deep(most_deep)
    if whole.work > most_work:
        return (
            "it is nested too deeply to be planned in reasonable time: use fewer operators in one value, and fewer "
            "calls of coalesce and the like inside of each other"
        )
    return ""


def _read(reading: _Reading, text: str, before: str, *, is_word: bool, is_symbol: bool) -> None:
    frame = reading.frames[-1]
    if is_word:
        _read_word(reading, frame, text)
    elif not is_symbol:
        return
    elif text in {"(", "["}:
        is_call = text == "(" and before in _PLANNED_AGAIN and before not in _NO_CALL
        reading.frames.append(_Frame(")" if text == "(" else "]", again=is_call))
    elif text in {")", "]"}:
        while reading.frames[-1].kind == "case":  # a CASE without END, which another check refuses
            reading.close("case")
        reading.close(text)
    elif text == ",":
        reading.separate()
    else:
        frame.operators += 1


def _read_word(reading: _Reading, frame: _Frame, word: str) -> None:
    if word in {"and", "or"}:
        if word == "and" and frame.betweens:
            frame.betweens -= 1
        elif not frame.again:  # otherwise Lance plans the whole argument again
            reading.separate()
    elif word in _WORDS:
        frame.operators += 1
        frame.betweens += word == "between"
    elif word == "case":
        reading.frames.append(_Frame("case", part="case"))
    elif frame.kind == "case" and word in {"when", "then", "else"}:
        if frame.part == "case":
            frame.end_term()
            frame.operand, frame.work = frame.work, 0
        else:
            reading.separate()
        frame.part = word
        frame.whens += word == "when"
    elif frame.kind == "case" and word == "end":
        reading.separate()
        reading.close("case")


def _too_deep(most: int) -> str:
    return f"it is nested too deeply: more than {most} operators and calls are inside of each other"


_TOKEN = re.compile(
    r"\s+|(?P<operand>`(?:[^`]|``)+`|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|'(?:[^']|'')*')|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<operator><=|>=|<>|!=|[=<>+*/%])|(?P<mark>[(),.]|-(?!-))",
    re.ASCII,
)
#: Tokens are written as one letter each. Words that are not listed are operands.
_LETTERS = dict.fromkeys(["and", "or", "between", "like", "in"], "=") | {"is": "=", "not": "n"}
#: Words that are not column names even where an operand may stand.
_OWN_MEANING = re.compile(r"array|case|cast|current_.*|exists|extract|interval|localtime.*|row|select|struct")
_PATH = re.compile(r"o(?:\.o)+")
#: An operand that is made of operands: a list or bracket, a negation, or two operands with an operator between.
_OPERAND = re.compile(r"\(o(?:,o)*\)|(?<!o)[n-]+o|o(?:(?:n?=n?-?|-)o)+")


def is_plain(where: str) -> bool:
    """Return whether a filter has only columns, numbers, text, operators, AND, OR, NOT, IN, IS, BETWEEN and LIKE."""
    letters, at = [], 0
    while at < len(where):
        token = _TOKEN.match(where, at)
        word = (token["word"] or "").lower() if token else ""
        if token is None or _OWN_MEANING.fullmatch(word):
            return False
        letter = _LETTERS.get(word, "o") if word else {"operand": "o", "operator": "="}.get(str(token.lastgroup))
        letters.append(letter or token["mark"] or "")
        at = token.end()
    rest, more = _PATH.sub("o", "".join(letters)), 1
    while more:
        rest, more = _OPERAND.subn("o", rest)
    return rest == "o"
