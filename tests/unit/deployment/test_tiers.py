"""The tiers of tests: by their measured cost, and none names what is not there."""

from __future__ import annotations

import fnmatch
import re

import pytest

from tests import tiers
from tests.conftest import ROOT
from tests.tiers import Tier

QUICK, SLOW = "tests/unit/test_a.py::test_quick", "tests/unit/test_a.py::test_slow"


@pytest.fixture
def durations(monkeypatch):
    listed: dict[str, tuple[float, float]] = {}
    monkeypatch.setattr(tiers, "durations", lambda: listed)
    return listed


@pytest.mark.parametrize(
    ("longest", "total", "tier"),
    [
        (0.2, 0.9, Tier.FAST),
        (0.4, 0.4, Tier.SERVICES),
        (0.2, 4.0, Tier.SERVICES),
        (1.6, 1.6, Tier.FULL),
        (0.2, 6, Tier.FULL),
    ],
)
def test_a_tier_follows_the_slowest_case_and_the_sum_of_all(durations, longest, total, tier):
    durations[SLOW] = (longest, total)
    assert tiers.tier_of(f"{SLOW}[a-b]") is tier


def test_a_new_unit_test_is_fast_and_any_other_is_of_services(durations):
    assert tiers.tier_of(QUICK) is Tier.FAST
    assert tiers.tier_of("tests/integration/test_a.py::test_quick") is Tier.SERVICES


def test_what_starts_much_is_of_the_full_tier_however_quick_it_is(durations):
    assert tiers.tier_of("tests/faults/test_poison.py::test_a") is Tier.FULL
    servers = "tests/conformance/function_servers/test_function_servers.py::test_it_says_which_functions_it_has"
    assert [tiers.tier_of(f"{servers}[{language}]") for language in ("python", "typescript")] == [
        Tier.SERVICES,
        Tier.FULL,
    ]


def test_what_runs_with_each_change_is_never_of_the_full_tier():
    assert {tiers.tier_of(name) for name in tiers.WITH_EACH_CHANGE} == {Tier.SERVICES}


def test_each_function_that_is_named_is_there():
    assert [name for name in tiers.WITH_EACH_CHANGE if not _is_there(name)] == []


def test_each_pattern_of_the_full_tier_finds_a_file():
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [
        p for p in tiers.FULL_ONLY if not any(fnmatch.fnmatchcase(f, p.split("::")[0].split("[")[0]) for f in files)
    ] == []


def test_a_report_gives_the_slowest_case_and_the_sum_and_leaves_out_what_did_not_run(tmp_path):
    cases = "".join(
        f'<testcase classname="tests.unit.test_a" name="{name}" time="{seconds}">{inner}</testcase>'
        for name, seconds, inner in [
            ("test_slow[a]", 0.5, ""),
            ("test_slow[b]", 2.0, ""),
            ("test_quick", 0.01, ""),
            ("test_skipped", 9.0, "<skipped/>"),
        ]
    )
    (tmp_path / "junit.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert tiers.measured(tmp_path / "junit.xml") == {SLOW: (2.0, 2.5)}


def _is_there(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return (
        path.is_file()
        and re.search(rf"^ *(async )?def {re.escape(function.split('::')[-1])}\(", path.read_text(), re.M) is not None
    )
