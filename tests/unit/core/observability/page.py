"""A page of measures, as Prometheus reads it."""

from __future__ import annotations

import urllib.request
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

#: Values of series, by their names and labels.
Scrape: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Page:
    """What Prometheus would read."""

    def __init__(self, port: int | None) -> None:
        self.url = f"http://127.0.0.1:{port}/metrics"

    def values(self) -> Scrape:
        with urllib.request.urlopen(self.url) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {(s.name, frozenset(s.labels.items())): s.value for f in families for s in f.samples}

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of the series with these labels; None: there is none."""
        found = [v for (n, has), v in self.values().items() if n == name and has >= labels.items()]
        return sum(found) if found else None
