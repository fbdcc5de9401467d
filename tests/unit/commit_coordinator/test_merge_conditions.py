"""Conditions of a merge: what Lance's merge would misread is refused, and times in them are what their columns say."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman_coordinator.lance_io.row_rewrites import update_condition
from leman_core.model.service_errors import InvalidArgument

ZONED = pa.timestamp("us", "Europe/Zurich")
PLAIN = pa.timestamp("us")
SCHEMA = pa.schema(
    {
        "local": ZONED,
        "plain": PLAIN,
        "day": pa.date32(),
        "text": pa.string(),
        "json": pa.json_(),
        "both": pa.struct({"local": ZONED, "plain": PLAIN}),
    }
)
TIME = "timestamp '2026-01-01T00:00:00+00:00'"


@pytest.mark.parametrize(
    "where",
    [
        f"target.local < {TIME}",
        f"target.LOCAL < {TIME}",
        f"{TIME} > source.`local`",
        f"source.both.local = {TIME}",
        f"source.plain < {TIME} OR target.local < {TIME}",
        "target.local < '2026-01-01'",
        "target.local < arrow_cast(1, 'Timestamp(Microsecond, None)')",
        'target.text <> "text"',
        "target.json = source.json",
        "CASE WHEN source.text = 'a' THEN true ELSE false END",
    ],
)
def test_what_lance_would_misread_is_refused(where):
    with pytest.raises(InvalidArgument) as refused:
        update_condition(SCHEMA, where)
    assert (refused.value.reason, refused.value.field) == ("INVALID_FILTER", "header.update_where")


@pytest.mark.parametrize(
    ("where", "spoken"),
    [
        (f"target.plain < {TIME}", f"target.plain < {TIME}"),
        (f"{TIME} > source.both.plain", f"{TIME} > source.both.plain"),
        ("target.day < '2026-01-01'", "target.day < date '2026-01-01'"),
        ("target.text = '2026-01-01'", "target.text = '2026-01-01'"),
        ("source.json IS NULL AND target.local < source.local", "source.json IS NULL AND target.local < source.local"),
    ],
)
def test_what_it_reads_right_stays(where, spoken):
    assert update_condition(SCHEMA, where) == spoken
