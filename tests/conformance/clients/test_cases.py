"""All cases with all clients whose toolchain is here."""

from __future__ import annotations

import os

import pytest

from tests.conformance.clients import languages, results_doc
from tests.conformance.clients.case_files import load

HERE = [language for language in languages.find() if not language.missing()]
ELSEWHERE = [language for language in languages.find() if language.missing()]


#: Of its cases a language does every third in the suite, each another third, and Python all.
SHARE = 3
LONG = bool(os.environ.get("LEMAN_LONG"))


def tried() -> list[object]:
    """What is done here; with LEMAN_LONG=1 all cases by all languages."""
    shares = {name: slice(None) for name in ("python", *(one.name for one in HERE if LONG))}
    others = [one.name for one in HERE if one.name not in shares]
    shares |= {name: slice(number % SHARE, None, SHARE) for number, name in enumerate(others)}
    return [
        pytest.param(language, case, id=f"{language.name}-{case}")
        for language in HERE
        for case in list(load())[shares[language.name]]
    ]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("language", "case"), tried())
def test_a_client_passes_a_case(runs, language, case):
    told = runs.outcome(language, case)
    if told.outcome == "skipped":
        pytest.skip(told.detail)
    assert told.outcome == "passed", told.detail


if ELSEWHERE:

    @pytest.mark.parametrize("language", ELSEWHERE, ids=lambda language: language.name)
    def test_a_toolchain_that_is_missing_is_told(language):
        pytest.skip(f"{language.name}: no {', '.join(language.missing())} on this machine")


def test_the_table_of_results_is_of_these_results(runs):
    document = results_doc.DOCUMENT.read_text()
    renewed = results_doc.with_results(document, runs.whole())
    assert document == renewed, "python -m tests.conformance.clients.results_doc writes it"
