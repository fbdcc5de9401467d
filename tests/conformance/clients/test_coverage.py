"""Whether the cases leave something out."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.clients import coverage
from tests.conformance.clients.case_files import OPERATIONS, load
from tests.conformance.clients.story import METHODS

CASES = load()


def test_there_are_a_hundred_cases():
    assert len(CASES) >= 100


def test_every_call_has_a_case():
    assert set(METHODS) - coverage.called(CASES.values()) == set()


def test_every_operation_has_a_case_and_is_described():
    used = {step.do for case in CASES.values() for step in case.steps}
    assert set(OPERATIONS) - used == set()
    described = (Path(__file__).parent.parent / "cases" / "README.md").read_text()
    assert [name for name in OPERATIONS if f"`{name}`" not in described] == []


def test_every_reason_has_a_case_or_a_why():
    expected, without = coverage.expected_reasons(CASES.values()), coverage.not_provoked()
    assert expected - coverage.all_reasons() == set()
    assert set(without) - coverage.all_reasons() == set()
    assert expected & set(without) == set()
    assert coverage.all_reasons() - expected - set(without) == set()
