"""The table of results in docs/clients.md."""

from __future__ import annotations

from tests.conformance.clients import results_doc
from tests.conformance.clients.case_files import load
from tests.conformance.clients.languages import Outcome

PASSED = {case: Outcome("passed", "") for case in load()}


def rows_of(document: str) -> dict[str, list[str]]:
    lines = [line.split("|") for line in document.splitlines() if line.startswith("| [")]
    return {cells[1].partition("]")[0].strip(" ["): [cell.strip() for cell in cells[2:-1]] for cells in lines}


def test_a_language_that_is_run_gets_a_column_and_the_others_keep_theirs():
    empty = f"# Clients\n\n{results_doc._BEGIN}{results_doc._END}\nmore\n"
    one = results_doc.with_results(empty, {"b": PASSED})
    assert rows_of(one)["restart"] == ["1", "1"]
    both = results_doc.with_results(one, {"a": PASSED | {"restart/watch-over-a-restart": Outcome("failed", "why")}})
    assert rows_of(both)["restart"] == ["1", "0, 1 failed", "1"]
    assert both.startswith("# Clients\n")
    assert both.endswith("\nmore\n")
    assert results_doc.with_results(both, {}) == both


def test_a_file_of_cases_that_a_language_was_not_run_with_has_no_result():
    empty = f"{results_doc._BEGIN}{results_doc._END}"
    one = results_doc.with_results(empty, {"a": PASSED})
    forgotten = "".join(line for line in one.splitlines(keepends=True) if not line.startswith("| [restart]"))
    assert rows_of(results_doc.with_results(forgotten, {"b": PASSED}))["restart"] == ["1", "", "1"]
    twice = results_doc.with_results(results_doc.with_results(forgotten, {}), {})
    assert rows_of(twice)["restart"] == ["1", ""]
