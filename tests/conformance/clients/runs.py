"""Runs of several languages side by side."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tests.conformance.clients import languages
from tests.conformance.clients.case_files import load
from tests.conformance.clients.control import Control
from tests.conformance.clients.languages import Language, Outcome
from tests.conformance.clients.services import Services


class Runs:
    """What becomes of the cases that are wanted, by language; all languages begin with the first that is asked for."""

    def __init__(self, services: Services, wanted: Mapping[str, Sequence[str]]) -> None:
        self._services = services
        self._wanted = wanted
        self._done: dict[str, Future[dict[str, Outcome]]] = {}

    def outcome(self, language: Language, case: str) -> Outcome:
        """How it ended."""
        self._begin()
        return self._done[language.name].result()[case]

    def whole(self) -> dict[str, dict[str, Outcome]]:
        """The outcomes of languages that ran all cases."""
        self._begin()
        ended = {name: done.result() for name, done in self._done.items()}
        return {name: outcomes for name, outcomes in ended.items() if len(outcomes) == len(load())}

    def _begin(self) -> None:
        if self._done or not self._wanted:
            return
        wanted = [language for language in languages.find() if language.name in self._wanted]
        threads = ThreadPoolExecutor(len(wanted), "conformance")
        self._done = {language.name: threads.submit(self._run, language) for language in wanted}
        threads.shutdown(wait=False)

    def _run(self, language: Language) -> dict[str, Outcome]:
        control = Control(load(), self._services, language.name)
        wanted = self._wanted[language.name]
        try:
            return languages.run(language, control.address, wanted, self._services.folder)
        except Exception:  # noqa: BLE001 - such as one that cannot be built: not to be tried again for each case
            return dict.fromkeys(wanted, Outcome("failed", traceback.format_exc()))
        finally:
            control.close()
