"""The services of a run, and the runs of all languages, each once."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from tests.conformance.clients import languages
from tests.conformance.clients.case_files import load
from tests.conformance.clients.control import Control
from tests.conformance.clients.languages import Language, Outcome
from tests.conformance.clients.services import Services


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    running = Services(tmp_path_factory.mktemp("conformance"))
    yield running
    running.close()


class Runs:
    """What became of the cases that this session asks for, by language; a runner is started when the first is asked."""

    def __init__(self, services: Services, wanted: dict[str, list[str]]) -> None:
        self._services = services
        self._wanted = wanted
        self._done: dict[str, dict[str, Outcome]] = {}

    def outcome(self, language: Language, case: str) -> Outcome:
        """How it ended."""
        if language.name not in self._done:
            control = Control(load(), self._services)
            wanted = self._wanted[language.name]
            try:
                done = languages.run(language, control.address, wanted, self._services.folder)
            except Exception:  # noqa: BLE001 - such as one that cannot be built: not to be tried again for each case
                done = dict.fromkeys(wanted, Outcome("failed", traceback.format_exc()))
            finally:
                control.close()
            self._done[language.name] = done
        return self._done[language.name][case]

    def whole(self) -> dict[str, dict[str, Outcome]]:
        """The outcomes of languages that ran all cases."""
        return {name: done for name, done in self._done.items() if len(done) == len(load())}


@pytest.fixture(scope="session")
def runs(services: Services, request: pytest.FixtureRequest) -> Runs:
    wanted: dict[str, list[str]] = {}
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "case" in parameters and "language" in parameters:
            wanted.setdefault(parameters["language"].name, []).append(parameters["case"])
    return Runs(services, wanted)
