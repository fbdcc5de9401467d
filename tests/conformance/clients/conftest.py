"""The services of a run, and the runs of all languages, each once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.clients.runs import Runs
from tests.conformance.clients.services import Services


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    running = Services(tmp_path_factory.mktemp("conformance"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def runs(services: Services, request: pytest.FixtureRequest) -> Runs:
    wanted: dict[str, list[str]] = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "case" in parameters and "language" in parameters and not item.get_closest_marker("skip"):
            wanted.setdefault(parameters["language"].name, []).append(parameters["case"])
    return Runs(services, wanted)
