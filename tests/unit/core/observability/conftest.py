"""What a test here exports, it has exported, or given up, when the next one begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.resources import Resource

from leman_core.settings import Metrics
from leman_core.telemetry.exporters import MetricsExport
from tests.unit.core.observability.page import Page

_ENDED_SECONDS = 120.0


@pytest.fixture
def page() -> Iterator[Page]:
    """What a service tells from now on."""
    export = MetricsExport(Metrics(port=0), None, Resource.get_empty())
    yield Page(export.port)
    export.stop()


@pytest.fixture(autouse=True)
def exporters_end() -> Iterator[None]:
    """Wait for threads that a test has left to a collector: they draw random pauses, which property tests notice."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith(("Otel", "farewell")):
            thread.join(_ENDED_SECONDS)
            assert not thread.is_alive(), f"{thread.name} goes on"
