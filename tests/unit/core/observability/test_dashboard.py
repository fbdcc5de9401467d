"""The dashboard and the alert rules: what they ask Prometheus for is what the services tell it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
import yaml
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families

from leman_coordinator.commits.commit_requests import Status
from leman_core.model.job import JobState
from leman_core.settings import Metrics
from leman_core.telemetry import instruments
from leman_core.telemetry.exporters import MetricsExport
from leman_core.telemetry.instruments import Counter, Histogram

FOLDER = Path(__file__).resolve().parents[4] / "deploy/observability"
#: What Prometheus adds to every series, or makes itself.
OF_PROMETHEUS, OWN_LABELS = {"up"}, {"job", "instance", "le"}
WORD = re.compile(r"[a-z_][a-z0-9_]*")
FUNCTIONS = {"sum", "rate", "increase", "max", "histogram_quantile", "by", "and"}
#: Values of labels that are named → all that there are.
VALUES = {
    "leman_job_state": {state.value for state in JobState},
    "leman_job_kind": {"backfill", "refresh"},
    "leman_rows": {"evaluated", "computed", "failed", "committed"},
    "leman_commit_outcome": {status.value for status in Status},
}


def dashboard() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def alerts() -> list[dict]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def told() -> dict[str, set[str]]:
    """The labels of each series of the page, where everything was measured once."""
    export = MetricsExport(Metrics(port=0), None, Resource.get_empty())
    for instrument in instruments.ALL:
        attributes = dict.fromkeys(instrument.description.attributes, "x")
        if isinstance(instrument, Counter):
            instrument.add(1, attributes)
        elif isinstance(instrument, Histogram):
            instrument.record(1, attributes)
        else:
            instrument.show(lambda attributes=attributes: [(1.0, attributes)])
    with urllib.request.urlopen(f"http://127.0.0.1:{export.port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    export.stop()
    for gauge in instruments.ALL:
        if not isinstance(gauge, Counter | Histogram):
            gauge.show(None)
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def named_by(expression: str) -> tuple[set[str], set[str], list[tuple[str, str]]]:
    """The series, the labels, and the labels with their values, that an expression names."""
    selectors = re.findall(r"\{([^}]*)\}", expression)
    pairs = [pair for text in selectors for pair in re.findall(r'(\w+)[=!]~?"([^"]*)"', text)]
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    bare = re.sub(r"\{[^}]*\}|\bby \([^)]*\)|\[[^\]]*\]", " ", expression)
    series = set(WORD.findall(bare)) - FUNCTIONS
    return series, {label for label, _ in pairs} | {w for text in grouped for w in WORD.findall(text)}, pairs


@pytest.mark.parametrize("expression", [*dashboard(), *(rule["expr"] for rule in alerts())])
def test_an_expression_names_what_there_is(told, expression):
    series, labels, pairs = named_by(expression)
    assert series, "it asks needlessly"
    assert series <= set(told) | OF_PROMETHEUS
    assert labels <= OWN_LABELS.union(*(told.get(name, set()) for name in series))
    for label, values in pairs:
        assert set(values.split("|")) <= VALUES.get(label, set(values.split("|"))), label
    assert expression.count("(") == expression.count(")")


def test_every_measure_is_on_the_dashboard(told):
    shown = set().union(*(named_by(expression)[0] for expression in dashboard()))
    suffixes = re.compile("_(bucket|sum|count)$")
    assert {suffixes.sub("", name) for name in told} - {"target_info"} == {suffixes.sub("", name) for name in shown}


def test_panels_lie_beside_each_other_and_have_ids_of_their_own():
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_alerts_say_what_is_wrong_and_what_to_do():
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        kept = re.findall(r"by \(([^)]*)\)", rule["expr"])
        assert not kept or told <= set(WORD.findall(kept[0])), rule["alert"]
