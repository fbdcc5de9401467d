"""Times in SQL: relative times become literals once for a job, and text becomes a value of the column's type.

Lance knows `now()` but no intervals, so `now() - interval '30 days'` is computed here and becomes a literal. Lance does
not compare text with dates or times (`created_at > '2024-06-01'`). If a column has a time zone, it reads `timestamp
'…+00:00'` as local time of that zone. So the number that the column's type has for that time replaces the text.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from leman_core.functions.arrow_types import ARROW_CAST_UNITS, arrow_cast_name
from leman_core.model.service_errors import excerpt
from leman_core.sql.filters import CLOCKS, Kind, Token, check_length, invalid_filter, tokenize

_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "sec": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
_MONTHS = {"month": 1, "mon": 1, "year": 12}
_TIGHTER = frozenset({"*", "/", "%", "::"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%"})

_Interval = tuple[int, dt.timedelta]


def pin_relative_times(where: str, now: dt.datetime) -> str:
    """Replace relative times in `where` by literals.

    Args:
        where: The filter.
        now: The time that `now()` means, in UTC.

    Raises:
        InvalidArgument: INVALID_FILTER – an interval is invalid, or the text is too long.
    """
    check_length(where)
    found = tokenize(where)
    pieces = []
    copied = at = 0
    while at < len(found):
        after = _clock_end(found, at)
        if after is None:
            at += 1
            continue
        moment: dt.date = now.date() if found[at].lower in {"today", "current_date"} else now
        before = found[at - 1].text if at else ""
        moment, after = (moment, after) if before in _ARITHMETIC else _shifted(moment, found, after)
        pieces += [where[copied : found[at].start], _literal(moment)]
        copied = found[after - 1].end
        at = after
    return "".join([*pieces, where[copied:]])


def is_clock(sql: str) -> bool:
    """Return whether an expression is `now()` or another clock alone, or one with intervals added."""
    found = tokenize(sql)
    after = _clock_end(found, 0) if found else None
    return after is not None and _shifted(dt.datetime(2000, 1, 1, tzinfo=dt.UTC), found, after)[1] == len(found)


def _clock_end(found: list[Token], at: int) -> int | None:
    """Return the index after the clock that begins at `at`; None if none begins there."""
    token = found[at]
    if token.kind is not Kind.WORD or token.lower not in CLOCKS:
        return None
    if [t.text for t in found[at + 1 : at + 3]] == ["(", ")"]:
        return at + 3
    return at + 1 if token.lower.startswith("current_") else None


def _shifted(moment: dt.date, found: list[Token], at: int) -> tuple[dt.date, int]:
    """Add the intervals that follow at `at` to a moment. Return the result and the index after them."""
    while (step := _interval(found, at)) is not None:
        (months, delta), after = step
        if after < len(found) and found[after].text in _TIGHTER:
            break
        sign = -1 if found[at].text == "-" else 1
        try:
            moment = _add(moment, sign * months, sign * delta)
        except (OverflowError, ValueError):
            raise invalid_filter("the interval leads to a time outside the years 1 to 9999: make it shorter") from None
        at = after
    return moment, at


def _interval(found: list[Token], at: int) -> tuple[_Interval, int] | None:
    """Parse an interval: `+ interval '1 day'`, `- interval '1' day`, `- interval 1 day`."""
    head = [t.lower for t in found[at : at + 2]]
    if len(found) < at + 3 or head[0] not in {"+", "-"} or head[1] != "interval":
        return None
    amount = found[at + 2]
    if amount.kind not in {Kind.STRING, Kind.NUMBER}:
        raise invalid_filter("an interval is not valid: write it like interval '30 days'")
    if _PART.search(amount.name) is None and len(found) > at + 3:
        return _read(f"{amount.name} {found[at + 3].text}"), at + 4
    return _read(amount.name), at + 3


def _read(text: str) -> _Interval:
    months, seconds, at = 0, 0.0, 0
    while (match := _PART.match(text, at)) is not None:
        unit = match[2].lower()
        unit = unit if unit in _SECONDS or unit in _MONTHS else unit.removesuffix("s")
        if unit in _MONTHS and "." not in match[1]:
            months += int(match[1]) * _MONTHS[unit]
        elif unit in _SECONDS:
            seconds += float(match[1]) * _SECONDS[unit]
        else:
            break
        at = match.end()
    if at == 0 or text[at:].strip():
        raise invalid_filter(f"interval '{excerpt(text)}' cannot be read; write for example interval '1 day 2 hours'")
    try:
        return months, dt.timedelta(seconds=seconds)
    except OverflowError:
        raise invalid_filter(f"interval '{excerpt(text)}' is too long") from None


def _add(moment: dt.date, months: int, delta: dt.timedelta) -> dt.date:
    if months:
        year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
        day = min(moment.day, calendar.monthrange(year, month + 1)[1])
        moment = moment.replace(year=year, month=month + 1, day=day)
    if delta % dt.timedelta(days=1) and not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day, tzinfo=dt.UTC)
    return moment + delta


def _literal(moment: dt.date) -> str:
    if isinstance(moment, dt.datetime):
        return f"timestamp '{moment.astimezone(dt.UTC).isoformat(timespec='microseconds')}'"
    return f"date '{moment.isoformat()}'"


#: A function that returns the type of an expression; None if Lance cannot tell it.
TypeOf = Callable[[str], pa.DataType | None]

_DATE = re.compile(
    r"\s*(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?\s*"
)
_CLOCK = re.compile(r"\s*(?P<clock>\d\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,9}))?\s*")
_OFFSET = re.compile(r"[+-]\d\d:?\d\d")
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "=", "==", "<>", "!="})
#: Words that end an operand of a comparison, besides a comma or an unmatched bracket.
_ENDS = frozenset({"and", "or", "not", "in", "between", "like", "ilike", "is"})
#: A bracket after one of these words holds one expression. After `in` it holds a list, after other words arguments.
_BEFORE_BRACKET = _ENDS - {"in"}
_TYPED = frozenset({"timestamp", "date"})
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NANOSECONDS = 10**9
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class _Literal:
    """A time in the text. It consists of the tokens `first` to `last`, both included; the last one is its string."""

    first: int
    last: int
    #: Whether it is written `timestamp '…'` or `date '…'`, not as a string alone.
    typed: bool


def mentions_times(found: Sequence[Token]) -> bool:
    """Return whether a text has times that `with_typed_times` may have to replace."""
    return any(True for _ in _literals(found))


def with_typed_times(text: str, type_of: TypeOf) -> str:
    """Give each time in a text the type of the expression that it is compared with.

    Raises:
        InvalidArgument: INVALID_FILTER – a time is invalid, or that type cannot represent it.
    """
    found = tokenize(text)
    for literal in reversed(list(_literals(found))):
        said = found[literal.last].name
        instant = _instant(said) if literal.typed else None
        operand = _compared(text, found, literal, instant=instant is not None)
        kind = type_of(operand) if operand else None
        made = instant if kind is None else _number(said, kind, typed=literal.typed)
        if made is None and literal.typed:
            made = _with_seconds(found[literal.first].text, said)
        if made is not None:
            text = text[: found[literal.first].start] + made + text[found[literal.last].end :]
    return text


def _literals(found: Sequence[Token]) -> Iterator[_Literal]:
    for at, token in enumerate(found):
        if token.kind is Kind.STRING and (_DATE.fullmatch(token.name) or _CLOCK.fullmatch(token.name)):
            typed = at > 0 and found[at - 1].kind is Kind.WORD and found[at - 1].lower in _TYPED
            yield _Literal(at - typed, at, typed)


def _compared(text: str, found: Sequence[Token], literal: _Literal, *, instant: bool) -> str:
    """Return the expression that a literal is compared with, by a comparison, BETWEEN or IN.

    Returns:
        Empty if there is none. Also empty if the literal is an instant before BETWEEN, which is compared with two
        expressions and needs the type of neither.
    """
    first, last = _with_brackets(found, literal)
    if first and found[first - 1].text in _COMPARISONS:
        return _left(text, found, first - 1)
    after = [token.lower for token in found[last + 1 : last + 3]]
    if after and after[0] in _COMPARISONS:
        return _right(text, found, last + 2)
    if "between" in {after[0] if after else "", " ".join(after).removeprefix("not ")}:
        return "" if instant else _right(text, found, last + 2 + (after[0] == "not"))
    word = _governing(found, first)
    if word is None:
        return ""
    return _left(text, found, word - 1 if word and found[word - 1].lower == "not" else word)


def _with_brackets(found: Sequence[Token], literal: _Literal) -> tuple[int, int]:
    """Return the first and the last token of the literal with the brackets that contain only it, as in `((now()))`."""
    first, last = literal.first, literal.last
    while first and last + 1 < len(found) and (found[first - 1].text, found[last + 1].text) == ("(", ")"):
        before = found[first - 2] if first > 1 else None
        if before is not None and _holds_more(before):
            break
        first, last = first - 1, last + 1
    return first, last


def _holds_more(before: Token) -> bool:
    """Return whether a bracket after this token holds arguments or a list, and not one expression."""
    if before.kind is Kind.WORD:
        return before.lower not in _BEFORE_BRACKET
    return before.kind is Kind.QUOTED


def _governing(found: Sequence[Token], first: int) -> int | None:
    """Return the index of the word BETWEEN if the literal is one of its bounds, or IN if it is one of its items."""
    if not first:
        return None
    before = found[first - 1].lower
    if before == "between":
        return first - 1
    if before == "and":
        return next((at for at, word in _back(found, first - 1, {"between", "or", "and"}) if word == "between"), None)
    if before in {"(", ","}:
        opening = first - 1 if before == "(" else next((at for at, t in _back(found, first - 1, {"("})), None)
        if opening and found[opening - 1].lower == "in":
            return opening - 1
    return None


def _back(found: Sequence[Token], before: int, wanted: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the nearest wanted token before an index and its word, outside of pairs of brackets; nothing if none."""
    depth = 0
    for at in range(before - 1, -1, -1):
        token = found[at]
        if not depth and token.kind is not Kind.STRING and token.lower in wanted:
            yield at, token.lower
            return
        depth += (token.text in {")", "]"}) - (token.text in {"(", "["})
        if depth < 0:
            return


def _left(text: str, found: Sequence[Token], end: int) -> str:
    begin = _extent(found, range(end - 1, -1, -1), opening=")]", closing="([")
    return "" if begin is None else text[found[begin].start : found[end - 1].end]


def _right(text: str, found: Sequence[Token], begin: int) -> str:
    end = _extent(found, range(begin, len(found)), opening="([", closing=")]")
    return "" if end is None else text[found[begin].start : found[end].end]


def _extent(found: Sequence[Token], places: range, opening: str, closing: str) -> int | None:
    """Return the last of the consecutive `places` whose token belongs to an operand; None if the first does not."""
    depth, last = 0, None
    for at in places:
        token = found[at]
        ends = token.text in _COMPARISONS or token.text == "," or (token.kind is Kind.WORD and token.lower in _ENDS)
        if token.kind is Kind.SYMBOL and token.text in closing:
            depth -= 1
        if depth < 0 or (ends and not depth):
            break
        depth += token.kind is Kind.SYMBOL and token.text in opening
        last = at
    return last


def _instant(said: str) -> str | None:
    """Return SQL for `timestamp '…+00:00'` as an instant in UTC, for use where no type is known, such as in a call.

    Lance would read the text as local time, but converts an instant to any type.

    Returns:
        None if the text has no time zone.
    """
    match = _DATE.fullmatch(said)
    if match is None or not match["zone"]:
        return None
    return _cast(_moment(match, "", said), pa.timestamp("us", "UTC"), said, typed=True)


def _with_seconds(word: str, said: str) -> str | None:
    """Return `timestamp '2024-06-01 12:00'` with the seconds that Lance needs; None: it has them, or no time of day."""
    match = _DATE.fullmatch(said)
    if match is None or len(match["clock"] or "") != len("12:00"):
        return None
    fraction = f".{match['fraction']}" if match["fraction"] else ""
    return f"{word} '{match['date']} {match['clock']}:00{fraction}{match['zone'] or ''}'"


def _number(said: str, kind: pa.DataType, *, typed: bool) -> str | None:
    """Return SQL for a time in the type `kind`; None if Lance reads the text correctly, or it is not such a time."""
    if typed and not (pt.is_timestamp(kind) and kind.tz):
        return None
    if pt.is_time(kind):
        clock = _CLOCK.fullmatch(said)
        return None if clock is None else _cast(_clock(clock), kind, said, typed=typed)
    match = _DATE.fullmatch(said)
    if match is None or not (pt.is_timestamp(kind) or pt.is_date(kind)):
        return None
    if not pt.is_date(kind):
        return _cast(_moment(match, kind.tz or "", said), kind, said, typed=typed)
    if match["clock"] is None:
        return f"date '{_day(match, said).isoformat()}'"
    if match["zone"]:
        raise invalid_filter(f"'{said}' has a time zone, and is compared with a date: leave the time zone out")
    return _cast(_moment(match, "", said), pa.timestamp("us"), said, typed=typed)


def _cast(nanoseconds: int, kind: pa.DataType, said: str, *, typed: bool) -> str:
    number, rest = divmod(nanoseconds, _NANOSECONDS // _PER_SECOND[kind.unit])
    if rest and not typed:
        unit = ARROW_CAST_UNITS[kind.unit].lower()
        raise invalid_filter(f"'{said}' is compared with {kind}, which has whole {unit}s: leave out finer digits")
    if not -(1 << 63) < number < 1 << 63:
        raise invalid_filter(f"'{said}' is out of the range of {kind}")
    return f"arrow_cast({number}, '{arrow_cast_name(kind)}')"


def _day(match: re.Match[str], said: str) -> dt.date:
    try:
        return dt.date.fromisoformat(match["date"])
    except ValueError as error:
        raise invalid_filter(f"'{said}' is not a valid time: {error}") from None


def _clock(match: re.Match[str]) -> int:
    """Return nanoseconds since midnight."""
    try:
        clock = dt.time.fromisoformat(match["clock"])
    except ValueError as error:
        raise invalid_filter(f"'{match['clock']}' is not a valid time: {error}") from None
    return (clock.hour * 3600 + clock.minute * 60 + clock.second) * _NANOSECONDS + _fraction(match)


def _fraction(match: re.Match[str]) -> int:
    return int((match["fraction"] or "").ljust(9, "0"))


def _moment(match: re.Match[str], zone: str, said: str) -> int:
    """Return nanoseconds since 1970.

    A text without a zone is local time in the column's zone. A column without a zone counts as UTC, as in Lance.
    """
    day = _day(match, said)
    wall = dt.datetime(day.year, day.month, day.day)
    nanoseconds = _clock(match) if match["clock"] else 0
    seconds, fraction = divmod(nanoseconds, _NANOSECONDS)
    wall += dt.timedelta(seconds=seconds)
    shift = _offset(match["zone"]) if match["zone"] else _offset_at(zone, wall)
    return (calendar.timegm(wall.timetuple()) - shift) * _NANOSECONDS + fraction


def _offset(zone: str) -> int:
    """Return seconds east of UTC of `Z`, `+02`, `+02:00` or `+0200`."""
    if zone in {"Z", "z"}:
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    if seconds >= _DAY:
        raise invalid_filter(f"'{zone}' is not a time zone")
    return -seconds if zone[0] == "-" else seconds


def _offset_at(zone: str, wall: dt.datetime) -> int:
    """Return a zone's seconds east of UTC at a local time."""
    if not zone:
        return 0
    if _OFFSET.fullmatch(zone):
        return _offset(zone)
    try:
        offset = wall.replace(tzinfo=zoneinfo.ZoneInfo(zone)).utcoffset()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise invalid_filter(
            f"the column's time zone {zone} is unknown here: write times with an offset, like …T00:00Z"
        ) from None
    return 0 if offset is None else int(offset.total_seconds())
