"""Relative times in filters, pinned once for a job.

Lance knows `now()` but no intervals; `now() - interval '30 days'` is computed here, and becomes a literal.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re

from leman_core.sql.filters import CLOCKS, Kind, Token, check_length, invalid, tokens

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


def pin(where: str, now: dt.datetime) -> str:
    """Return `where` with relative times replaced by literals; the same text where it has none.

    Args:
        now: in UTC.

    Raises:
        InvalidArgument: INVALID_FILTER, for an interval that cannot be read, and for a text that is too long.
    """
    check_length(where)
    found = tokens(where)
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
    """Tell whether a text is `now()` or another clock, give or take intervals, and nothing else."""
    found = tokens(sql)
    after = _clock_end(found, 0) if found else None
    return after is not None and _shifted(dt.datetime(2000, 1, 1, tzinfo=dt.UTC), found, after)[1] == len(found)


def _clock_end(found: list[Token], at: int) -> int | None:
    """Return the index after the clock that begins at `at`; None: no clock does."""
    token = found[at]
    if token.kind is not Kind.WORD or token.lower not in CLOCKS:
        return None
    if [t.text for t in found[at + 1 : at + 3]] == ["(", ")"]:
        return at + 3
    return at + 1 if token.lower.startswith("current_") else None


def _shifted(moment: dt.date, found: list[Token], at: int) -> tuple[dt.date, int]:
    """Add the intervals that come next; return the moment and the index after them."""
    while (step := _interval(found, at)) is not None:
        (months, delta), after = step
        if after < len(found) and found[after].text in _TIGHTER:
            break
        sign = -1 if found[at].text == "-" else 1
        try:
            moment = _add(moment, sign * months, sign * delta)
        except (OverflowError, ValueError):
            raise invalid("the interval leads out of the years 1 to 9999") from None
        at = after
    return moment, at


def _interval(found: list[Token], at: int) -> tuple[_Interval, int] | None:
    """Read an interval: `+ interval '1 day'`, `- interval '1' day`, `- interval 1 day`."""
    head = [t.lower for t in found[at : at + 2]]
    if len(found) < at + 3 or head[0] not in {"+", "-"} or head[1] != "interval":
        return None
    amount = found[at + 2]
    if amount.kind not in {Kind.STRING, Kind.NUMBER}:
        raise invalid("an interval is written like interval '30 days'")
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
        raise invalid(f"interval '{text}' cannot be read; write for example interval '1 day 2 hours'")
    try:
        return months, dt.timedelta(seconds=seconds)
    except OverflowError:
        raise invalid(f"interval '{text}' is too long") from None


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
