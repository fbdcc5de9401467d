"""The rule by which failed rows are one group, for the services and for reads without them."""

from __future__ import annotations

from typing import Annotated, Self

import pydantic
import pytest

from leman._format import stored_logs
from leman._format.stored_logs import MOST_EXAMPLES, ErrorGrouping


def grouped(*errors: tuple[str, str]) -> ErrorGrouping[int]:
    grouping: ErrorGrouping[int] = ErrorGrouping()
    for row, (error_type, message) in enumerate(errors):
        grouping.add(error_type, message, row)
    return grouping


def test_errors_that_differ_in_numbers_and_quotations_are_one_group():
    found = grouped(
        *(("ValueError", f"no number: {n} in '{n}' at 0x{n:x}\nline {n * 'x'}") for n in (1, 22, 333)),
        ("KeyError", "'x'"),
        ("ValueError", "no number: 7 in it"),
    ).largest_first()
    assert [(g.error_type, g.message, g.rows, g.examples) for g in found] == [
        ("ValueError", "no number: … in … at …", 3, (0, 1, 2)),
        ("KeyError", "'x'", 1, (3,)),
        ("ValueError", "no number: 7 in it", 1, (4,)),
    ]


class Part(pydantic.BaseModel):
    ids: list[int] = []


class Result(pydantic.BaseModel):
    score: Annotated[float, pydantic.Field(le=1)] = 0
    label: str = ""
    part: Part = Part()

    @pydantic.model_validator(mode="after")
    def check(self) -> Self:
        if self.label == "x":
            raise ValueError("no x")
        return self


def refusal(**values: object) -> tuple[str, str]:
    with pytest.raises(pydantic.ValidationError) as refused:
        Result.model_validate(values)
    return "ValidationError", str(refused.value)


def test_violations_of_a_model_are_groups_by_field_and_reason():
    found = grouped(
        *(refusal(score=value) for value in (1.7, 2, 3)),
        *(refusal(part={"ids": [0] * n + ["many"]}) for n in (0, 4)),
        *(refusal(score=2, label=n) for n in (1, None)),
        refusal(label="x"),
    ).largest_first()
    one, two = "1 validation error for Result: ", "2 validation errors for Result: "
    most = "score: Input should be less than or equal to 1"
    assert [(group.message, group.rows) for group in found] == [
        (f"{one}{most}", 3),
        (f"{one}part.ids.…: Input should be a valid integer, unable to parse string as an integer", 2),
        (f"{two}{most}; label: Input should be a valid string", 2),
        (f"{one}Value error, no x", 1),
    ]


def test_a_line_that_announces_the_next_is_shown_with_it():
    lines = ("it failed:\n  for a", "it failed:\n  for b", "it failed:")
    assert [group.message for group in grouped(*(("E", line) for line in lines)).largest_first()] == [
        "it failed: for a",
        "it failed: for b",
        "it failed:",
    ]


def test_what_all_errors_of_a_group_name_is_shown():
    found = grouped(*(("KeyError", f"'API_KEY' for row {n}") for n in range(3))).largest_first()
    assert [group.message for group in found] == ["'API_KEY' for row …"]


def test_long_messages_are_cut_and_compared_by_their_beginnings():
    long = "a very long message " * 100
    (one, other) = grouped(("E", f"{long} 1"), ("E", f"{long} 2 'three' 4"), ("E", "a very short one")).largest_first()
    assert (one.rows, len(one.message), one.message[-1]) == (2, 200, "…")
    assert other.message == "a very short one"


def test_memory_is_bounded_and_every_row_is_counted(monkeypatch):
    monkeypatch.setattr(stored_logs, "MOST_GROUPS", 3)
    grouping = grouped(*(("E", f"kind {'abcdef'[n % 6]}") for n in range(60)))
    found = grouping.largest_first()
    assert [(group.message, group.rows) for group in found] == [("kind a", 10), ("kind b", 10), ("kind c", 10)]
    assert {len(group.examples) for group in found} == {MOST_EXAMPLES}
    assert (grouping.rows, grouping.ungrouped) == (60, 30)
