"""Clients work on while services are killed in turn: no event is lost, no job made twice, nothing leaks."""

from __future__ import annotations

import pytest

from leman_core.process.release import SERVICES
from tests.conformance.clients import languages
from tests.conformance.clients.soak import soak

USED = [language for language in languages.find("soak") if not language.missing()]
EVERY_SECONDS = 20.0
#: Two minutes.
ROUNDS = 2
#: A job over them takes five seconds: few are made, as others need the processors, and many are killed under.
ROWS = 50


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_clients_see_all_and_leak_nothing_while_services_restart(tmp_path):
    report = soak.run(USED, tmp_path, len(SERVICES) * ROUNDS, EVERY_SECONDS, ROWS)

    assert {name: told.faults for name, told in report.outcomes.items()} == {one.name: [] for one in USED}
    assert report.killed == dict.fromkeys(SERVICES, ROUNDS)
    assert all(told.rounds > soak.WARM_UP_ROUNDS for told in report.outcomes.values()), report.text()
    assert any(told.taken_over for told in report.outcomes.values()), "no job was there when its executor died"
