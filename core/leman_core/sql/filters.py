"""Check filters from their text alone, before Lance sees them: functions, numbers, brackets.

Lance evaluates constant calls while it plans (`repeat('a', 1000000000)` costs seconds and gigabytes), ignores text
after a complete expression (`id > 0; drop …`, `id > 0 limit 1`), and reads `"name"` as a string, not as a column. So
filters have bounded size, balanced brackets, functions from a list, and no early end.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto

from leman._format.sql_limits import MAX_PARSED_BYTES, nesting_problem
from leman_core.model.service_errors import InvalidArgument, excerpt

#: The most bytes of a filter as its caller wrote it. Replacing `now()` and the like makes a filter longer.
MAX_BYTES = 16_384
MAX_OPERATORS = 1024
MAX_LIST_ITEMS = 1000
#: The most brackets that may be nested.
MAX_DEPTH = 32
#: The most nested brackets, NOTs and CASEs together. Lance's parser gives up at about 48, where a CASE counts as
#: several brackets.
MAX_PARSED_DEPTH = 40
_DEPTH_OF = {"not": 1, "case": 4}
_ENDS_NOT = frozenset({"and", "or", ",", "when", "then", "else", "end"})

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<comment>--|/\*)
    | (?P<string>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[^\W\d]\w*)
    | (?P<symbol>::|<=|>=|<>|!=|==|\|\||[-+*/%=<>(),.\[\]])""",
    re.VERBOSE,
)

#: Words that may precede a bracket without being the name of a called function.
_SYNTAX = frozenset(
    {"and", "or", "not", "in", "is", "between", "like", "ilike", "as", "case", "when", "then", "else", "end"}
    | {"array", "decimal", "numeric", "varchar", "char", "timestamp", "time", "float"}
)
_OPERATORS = frozenset({"and", "or", "not"})
#: `N'…'` and the like: Lance's parser panics on some of them.
_STRING_PREFIXES = frozenset({"n", "x", "e", "b", "r", "u", "br", "rb", "q", "nq"})
#: Types to which a cast may round a number.
_FLOATS = frozenset({"double", "float", "float4", "float8", "real"})
#: The most digits of a decimal, by its width in bits; `decimal(…, …)` has 128 bits. Lance panics if there are more.
_DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
_ARROW_DECIMAL = re.compile(r"\b(Decimal(32|64|128|256))\s*\(\s*(-?\d+)\s*,\s*(-?\d+)")
_LONGEST_TYPE = 40
_CLOSERS = {"(": ")", "[": "]"}

_ALLOWED = """
abs acos asin atan atan2 cbrt ceil cos degrees exp floor isnan iszero ln log log10 log2 mod nanvl power
radians round sign sin sqrt tan trunc

ascii bit_length btrim char_length character_length concat concat_ws contains contains_tokens ends_with
initcap instr left length lower ltrim md5 octet_length regexp_like regexp_match right rtrim sha256
starts_with strpos substr substring translate trim upper

date_bin date_part date_trunc from_unixtime to_date to_timestamp to_timestamp_micros to_timestamp_millis
to_timestamp_nanos to_timestamp_seconds to_unixtime

array_contains array_element array_has array_has_all array_has_any array_length array_position cardinality
empty get_field list_contains list_element list_has list_has_all list_has_any list_length

json_array_contains json_array_length json_exists json_extract json_get json_get_bool json_get_float
json_get_int json_get_string

arrow_cast arrow_typeof cast coalesce greatest least nullif nvl try_cast
"""
#: Functions whose cost and result size are bounded by their arguments and whose results never change. Excluded:
#: functions for long values (repeat, lpad, rpad, replace, space, range) and volatile ones (random).
FUNCTIONS = frozenset(_ALLOWED.split())
#: Functions in other dialects of SQL; here they are arguments of `date_part`.
_DATE_PARTS = frozenset({"year", "quarter", "month", "week", "day", "hour", "minute", "second"})
#: Relative times: replaced by fixed ones when the job is planned (`leman_core.sql.time_values`).
CLOCKS = frozenset({"now", "today", "current_date", "current_timestamp"})


class Kind(Enum):
    """The kind of a token."""

    STRING = auto()
    QUOTED = auto()
    NUMBER = auto()
    WORD = auto()
    SYMBOL = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and its position in the text."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        return self.text.lower()

    @property
    def name(self) -> str:
        """Return the text between quotes of any kind, or the text itself."""
        if self.kind in {Kind.STRING, Kind.QUOTED}:
            return self.text[1:-1].replace(self.text[0] * 2, self.text[0])
        return self.text


def invalid_filter(message: str) -> InvalidArgument:
    """Return the error of a refused filter."""
    return InvalidArgument("INVALID_FILTER", f"Invalid filter: {message}", field="where")


def tokenize(where: str) -> list[Token]:
    """Split a filter into tokens.

    Raises:
        InvalidArgument: INVALID_FILTER – it contains comments, `;` or parameters, or is too long.
    """
    if len(where) > MAX_PARSED_BYTES:
        raise invalid_filter(nesting_problem(where))
    found = []
    at = 0
    while at < len(where):
        match = _TOKEN.match(where, at)
        if match is None:
            raise invalid_filter(f"unexpected {where[at]!r} at character {at + 1}: one SQL expression is expected")
        if match.lastgroup == "comment":
            raise invalid_filter(f"comments are not allowed (character {at + 1})")
        if match.lastgroup != "space":
            found.append(Token(Kind[str(match.lastgroup).upper()], match.group(), at, match.end()))
        at = match.end()
    return found


def check_length(where: str, most: int = MAX_BYTES) -> None:
    """Refuse a caller's text that is too long.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    size = len(where.encode(errors="replace"))
    if size > most:
        raise invalid_filter(f"it has {size} bytes, at most {most} are allowed")


def check_filter(where: str, columns: Iterable[str], *, is_stored: bool = False) -> None:
    """Refuse an unusable filter, and suggest an alternative if known.

    `check_length` limits its length, before relative times are replaced.

    Args:
        where: The filter.
        columns: The columns that it can name.
        is_stored: Whether an earlier release may have accepted it: it may have text in double quotes.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    if "\0" in where or not where.strip():
        raise invalid_filter("it is empty" if not where.strip() else "it contains a zero character")
    found = tokenize(where)
    _check_size(found)
    _check_brackets(found)
    _check_parsed_depth(found)
    if problem := nesting_problem(where):
        raise invalid_filter(problem)
    _check_functions(found)
    _check_decimals(found)
    check_exact_numbers(list(_cast_numbers(found)))
    _check_quotes(found, {c.casefold() for c in columns}, is_stored=is_stored)


def check_finite_numbers(found: Iterable[Token]) -> None:
    """Refuse numbers that SQL would read as infinity.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    for token in found:
        if token.kind is Kind.NUMBER and math.isinf(float(token.text)):
            raise invalid_filter(f"{excerpt(token.text)} is larger than any number in SQL: write a smaller one")


def check_exact_numbers(found: Iterable[Token]) -> None:
    """Refuse numbers that would lose digits, because SQL reads fractions and numbers of more than 64 bits as doubles.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    for token in found:
        if token.kind is not Kind.NUMBER or (token.text.isdigit() and int(token.text) < 1 << 64):
            continue
        wanted, kept = Decimal(token.text), float(token.text)
        if math.isinf(kept) and wanted.adjusted() >= _DECIMAL_DIGITS[256]:
            raise invalid_filter(f"{excerpt(token.text)} is larger than any number in SQL: write a smaller one")
        if math.isinf(kept) or wanted != Decimal(repr(kept)):
            raise invalid_filter(
                f"{excerpt(token.text)} has more digits than a double, and would become {kept!r}: write it in "
                f"quotes, like {_as_decimal(excerpt(token.text), wanted)}"
            )


def _as_decimal(text: str, number: Decimal) -> str:
    _, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    size = max(0, len(digits) + int(exponent)) + scale
    if _DECIMAL_DIGITS[128] < size <= _DECIMAL_DIGITS[256]:
        return f"arrow_cast('{text}', 'Decimal256({size}, {scale})')"
    return f"cast('{text}' as {f'decimal({size}, {scale})' if 0 < size <= _DECIMAL_DIGITS[128] else 'decimal(…, …)'})"


def _check_decimals(found: Sequence[Token]) -> None:
    """Refuse casts to decimals with too many digits."""
    for at, token in enumerate(found):
        size = [number.text for number in found[at + 2 : at + 5 : 2] if number.text.isdigit()]
        if token.lower == "decimal" and at + 1 < len(found) and found[at + 1].text == "(" and size:
            _check_digits(f"{token.text}({', '.join(size)})", 128, size)
        if token.kind is Kind.STRING and at and found[at - 1].text == ",":
            for name, bits, *sizes in _ARROW_DECIMAL.findall(token.text):
                _check_digits(f"{name}({', '.join(sizes)})", int(bits), sizes)


def _check_digits(name: str, bits: int, size: Sequence[str]) -> None:
    most = _DECIMAL_DIGITS[bits]
    if len(name) > _LONGEST_TYPE or not 0 < int(size[0]) <= most or any(abs(int(places)) > most for places in size[1:]):
        wider = f", and arrow_cast(…, 'Decimal256(…, …)') one of {_DECIMAL_DIGITS[256]}" if bits == 128 else ""
        shown = name if len(name) <= _LONGEST_TYPE else f"{name[:_LONGEST_TYPE]}…"
        raise invalid_filter(f"{shown} is not a valid type: such a decimal has 1 to {most} digits{wider}")


def _cast_numbers(found: Sequence[Token]) -> Iterator[Token]:
    """Yield the numbers that are cast to a type other than a float."""
    for at, token in enumerate(found):
        after = [following.lower for following in found[at + 1 : at + 3]]
        if token.kind is not Kind.NUMBER or len(after) < 2:
            continue
        by_name = any(before.lower == "arrow_cast" for before in found[max(0, at - 3) : at])
        if (after[0] in {"as", "::"} and after[1] not in _FLOATS) or (by_name and "float" not in after[1]):
            yield token


def names_in_filter(where: str) -> frozenset[str]:
    """Return the casefolded names that the filter may refer to: a superset of its columns."""
    kinds = {Kind.WORD, Kind.QUOTED, Kind.STRING}
    return frozenset(t.name.casefold() for t in tokenize(where) if t.kind in kinds)


def called_functions(found: list[Token]) -> Iterator[Token]:
    """Yield the names of called functions."""
    for token, after in itertools.pairwise(found):
        if after.text != "(" or token.kind not in {Kind.WORD, Kind.QUOTED}:
            continue
        if token.kind is Kind.QUOTED or token.lower not in _SYNTAX:
            yield token


def _check_size(found: list[Token]) -> None:
    operators = sum(t.kind is Kind.WORD and t.lower in _OPERATORS for t in found)
    if operators > MAX_OPERATORS:
        raise invalid_filter(f"it has {operators} ANDs, ORs and NOTs, at most {MAX_OPERATORS} are allowed")
    items = sum(t.text == "," for t in found)
    if items > MAX_LIST_ITEMS:
        raise invalid_filter(f"it has {items} commas, at most {MAX_LIST_ITEMS} are allowed: join with a table instead")


def _check_brackets(found: list[Token]) -> None:
    expected: list[str] = []
    for token in found:
        if token.text in _CLOSERS:
            expected.append(_CLOSERS[token.text])
            if len(expected) > MAX_DEPTH:
                raise invalid_filter(
                    f"brackets, also those of calls, are nested deeper than {MAX_DEPTH}: compute a part of it in a "
                    "column of its own, and name that here"
                )
        elif token.text in _CLOSERS.values() and (not expected or expected.pop() != token.text):
            raise invalid_filter(f"unexpected '{token.text}' at character {token.start + 1}")
    if expected:
        raise invalid_filter(f"'{expected[-1]}' is missing at the end")


def _check_parsed_depth(found: list[Token]) -> None:
    """Refuse nesting that is too deep for Lance's parser."""
    depth, nots = 0, [0]  # `nots`: for each open bracket and CASE, the number of NOTs before the next operand
    for token in found:
        word = token.lower if token.kind is Kind.WORD else token.text
        if word in _ENDS_NOT:
            depth -= nots[-1]
            nots[-1] = 0
        if word == "not":
            nots[-1] += 1
            depth += 1
        elif word == "case" or word in _CLOSERS:
            nots.append(0)
            depth += _DEPTH_OF.get(word, 1)
        elif (word == "end" or word in _CLOSERS.values()) and len(nots) > 1:
            depth -= nots.pop() + (_DEPTH_OF["case"] if word == "end" else 1)
        if depth > MAX_PARSED_DEPTH:
            raise invalid_filter(
                f"it is nested too deeply: brackets and NOT that are inside of each other count one each, CASE "
                f"{_DEPTH_OF['case']}, and at most {MAX_PARSED_DEPTH} are allowed. Compute a part of it in a column of "
                "its own, and name that here"
            )


def _check_functions(found: list[Token]) -> None:
    for token in called_functions(found):
        name = token.name.lower()
        if name not in FUNCTIONS and name not in CLOCKS:
            raise invalid_filter(f"function '{excerpt(name)}' is not supported; {_instead(name)}")
    for token, after in itertools.pairwise(found):
        if token.kind is Kind.WORD and token.lower in _STRING_PREFIXES and after.kind is Kind.STRING:
            raise invalid_filter(f"{token.text}{after.text[0]}…{after.text[0]} strings are not supported, write '…'")


def _instead(name: str) -> str:
    if name == "extract":
        return "write date_part('year', …) for extract(year from …)"
    if name in _DATE_PARTS:
        return f"write date_part('{name}', …)"
    close = difflib.get_close_matches(name, FUNCTIONS | CLOCKS, 1)
    return f"did you mean {close[0]}?" if close else "such as lower, length, coalesce, date_trunc"


def _check_quotes(found: list[Token], columns: set[str], *, is_stored: bool) -> None:
    """Refuse double quotes. SQL has names in them, but Lance reads text, so `"nme" <> 'x'` would always be true."""
    for token in found:
        if not token.text.startswith('"'):
            continue
        names = token.name.casefold().split(".")
        if token.name.casefold() in columns or names[0] in columns or (len(names) > 1 and names[1] in columns):
            name = "`.`".join(token.name.split(".")) if token.name.casefold() not in columns else token.name
            raise invalid_filter(f"{excerpt(token.text)} is text to Lance; to name the column write `{excerpt(name)}`")
        if not is_stored:
            raise invalid_filter(
                f"{excerpt(token.text)} is text to Lance: write text in single quotes, and names in backticks"
            )
