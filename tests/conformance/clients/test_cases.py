"""All cases with all clients whose toolchain is here."""

from __future__ import annotations

import pytest

from tests.conformance.clients import languages, results_doc
from tests.conformance.clients.case_files import load

#: A third of its cases run with every change; all cases of all clients with LEMAN_LONG=1.
ALWAYS = "python"
HERE = [
    pytest.param(language, id=language.name, marks=[pytest.mark.long] * (language.name != ALWAYS))
    for language in languages.find()
    if not language.missing()
]
ELSEWHERE = [language for language in languages.find() if language.missing()]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.long] * (at % 3 > 0)) for at, case in enumerate(load())]
)
@pytest.mark.parametrize("language", HERE)
def test_a_client_passes_a_case(runs, language, case):
    told = runs.outcome(language, case)
    if told.outcome == "skipped":
        pytest.skip(told.detail)
    assert told.outcome == "passed", told.detail


if ELSEWHERE:

    @pytest.mark.parametrize("language", ELSEWHERE, ids=lambda language: language.name)
    def test_a_toolchain_that_is_missing_is_told(language):
        pytest.skip(f"{language.name}: no {', '.join(language.missing())} on this machine")


@pytest.mark.long
def test_the_table_of_results_is_of_these_results(runs):
    document = results_doc.DOCUMENT.read_text()
    renewed = results_doc.with_results(document, runs.whole())
    assert document == renewed, "python -m tests.conformance.clients.results_doc writes it"
