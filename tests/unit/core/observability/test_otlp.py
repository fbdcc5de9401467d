"""OpenTelemetry's standard variables: where measures go, and what happens where no one is there."""

from __future__ import annotations

import os
import time

import pytest
import structlog.testing

from leman_core.process import process_secrets
from leman_core.settings import Settings
from leman_core.telemetry import instruments
from leman_core.telemetry.observability import Observability
from leman_core.telemetry.otlp import Collector, collector_of, take_headers

#: Nothing listens there.
DEAD = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    yield
    process_secrets.forget_secret_env()


def test_nothing_is_exported_without_an_endpoint():
    assert collector_of("METRICS") is None


def test_a_signals_own_endpoint_is_its_alone(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", DEAD)
    assert collector_of("METRICS") is None
    assert collector_of("TRACES") == Collector(DEAD, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_SDK_DISABLED", "true"), ("OTEL_METRICS_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "console")],
)
def test_a_signal_can_be_turned_off(monkeypatch, name, value):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", DEAD)
    monkeypatch.setenv(name, value)
    assert collector_of("METRICS") is None


def test_a_protocol_that_is_not_spoken_is_said_and_stops_no_service(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", DEAD)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    with structlog.testing.capture_logs() as lines:
        assert collector_of("METRICS") is None
    assert [line["protocol"] for line in lines] == ["http/protobuf"]


@pytest.mark.parametrize(
    ("endpoint", "insecure", "told"),
    [
        ("127.0.0.1:9", "", 1),
        ("collector:4317", "", 1),
        ("127.0.0.1:9", "true", 0),
        (DEAD, "", 0),
        ("https://a:1", "", 0),
    ],
)
def test_an_address_without_a_scheme_is_said_to_be_called_with_tls(monkeypatch, endpoint, insecure, told):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    if insecure:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", insecure)
    with structlog.testing.capture_logs() as lines:
        assert collector_of("TRACES") == Collector(endpoint, "")
    assert [line["signal"] for line in lines if "begin it with http://" in line["event"]] == ["traces"] * told


def test_headers_are_taken_out_of_the_environment_and_shown_to_nobody(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret")
    take_headers()
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in os.environ
    found = collector_of("METRICS")
    assert found.options["headers"] == "api-key=s3cret"
    assert "s3cret" not in repr(found)


def test_a_collector_on_this_machine_is_not_reached_through_a_proxy():
    assert Collector(DEAD, "").options["channel_options"] == (("grpc.enable_http_proxy", 0),)
    assert Collector("http://collector.example:4317", "").options["channel_options"] == ()


def test_a_process_ends_in_time_where_its_collector_is_away(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", DEAD)
    observed = Observability(Settings(), "planner")
    assert instruments.JOB_ROWS.is_bound
    instruments.JOB_ROWS.add(1)
    begun = time.monotonic()
    observed.stop()
    assert time.monotonic() - begun < 5.0  # it would try for ten
    assert not instruments.JOB_ROWS.is_bound
