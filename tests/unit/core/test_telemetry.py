"""Log lines: context, secrets, other libraries' loggers."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from grpc._cython import cygrpc

from leman_core.process.release import MODULES
from leman_core.settings import Log, Peers, Redis, Server, Settings
from leman_core.telemetry import logs as telemetry
from tests.conftest import ROOT


@pytest.fixture
def lines():
    def configured(**sections) -> io.StringIO:
        stream = io.StringIO()
        telemetry.configure(Settings(**sections), "planner", stream)
        return stream

    yield configured
    logging.basicConfig(level=logging.WARNING, handlers=[], force=True)
    structlog.reset_defaults()


def test_a_line_has_service_level_time_and_what_the_context_holds(lines):
    stream = lines()
    with telemetry.bound(job_id="j1"):
        structlog.get_logger().info("planned", rows=3)
    structlog.get_logger().info("later")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (
        first.items() >= {"event": "planned", "service": "planner", "job_id": "j1", "level": "info", "rows": 3}.items()
    )
    assert first["timestamp"].endswith("Z")
    assert "job_id" not in second


def test_levels_below_the_setting_are_dropped(lines):
    stream = lines(log=Log(level="warning"))
    structlog.get_logger().info("no")
    logging.getLogger("other").info("no")
    structlog.get_logger().warning("yes")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["yes"]


def test_loggers_of_the_standard_library_take_the_same_way(lines):
    stream = lines()
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("lib").exception("it failed for %s", "x")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["event"], line["logger"], line["service"]) == ("it failed for x", "lib", "planner")
    assert "ValueError: broken" in line["exception"]


def test_secrets_of_the_settings_never_reach_a_line(lines):
    stream = lines(
        server=Server(token='to"ken-1'),
        peers=Peers(token="token-2"),
        redis=Redis(url="redis://:pa%40ss@redis:6379/0"),
    )
    log = structlog.get_logger()
    log.info('given to"ken-1', header="Bearer token-2", nested={"urls": ["redis://:pa%40ss@redis:6379/0"]})
    log.info("password pa@ss")
    try:
        raise ConnectionError("cannot reach redis://:pa%40ss@redis:6379/0")
    except ConnectionError:
        log.exception("down")
    text = stream.getvalue()
    for secret in ("ken-1", "token-2", "pa%40ss", "pa@ss"):
        assert secret not in text
    assert [json.loads(line)["service"] for line in text.splitlines()] == ["planner"] * 3


def test_any_password_in_a_url_is_masked(lines):
    stream = lines()
    structlog.get_logger().info("open", uri="https://me:hunter2@example.com/x?y=a@b", plain="s3://bucket/key")
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line["uri"] == "https://***@example.com/x?y=a@b"
    assert line["plain"] == "s3://bucket/key"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_log_that_takes_no_more_makes_nothing_fail():
    with io.TextIOWrapper(Path("/dev/full").open("wb", buffering=0), write_through=True) as full:
        with pytest.raises(OSError, match="No space left"):
            print("x", file=full, flush=True)
        telemetry.configure(Settings(), "planner", full)
        try:
            structlog.get_logger().info("no room for this")
            logging.getLogger("lib").error("nor for this")
        finally:
            logging.basicConfig(level=logging.WARNING, handlers=[], force=True)
            structlog.reset_defaults()


def test_console_form_is_text(lines):
    stream = lines(log=Log(json_lines=False))
    structlog.get_logger().info("planned", rows=3)
    assert "planned" in stream.getvalue()
    assert "rows=3" in stream.getvalue()


def test_a_caller_who_is_gone_when_a_message_is_sent_is_no_error(lines):
    """gRPC says so at some of them, with a traceback; the line of the call says that it was cancelled."""
    stream = lines()
    log = logging.getLogger("grpc._cython.cygrpc")
    assert log.name in logging.root.manager.loggerDict, "the one that gRPC uses"
    for error in (cygrpc.ExecuteBatchError("execute_batch", ()), RuntimeError("a bug")):
        try:
            raise error
        except Exception:
            log.exception("raised by servicer method [%s]", "/leman.v1.JobService/WatchJob")
    log.error("without an exception")
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], "exception" in line) for line in told] == [
        ("raised by servicer method [/leman.v1.JobService/WatchJob]", True),
        ("without an exception", False),
    ]
    assert "a bug" in told[0]["exception"]


def test_no_line_of_grpc_names_what_is_being_freed():
    """Anyone who keeps one, such as a handler that sends lines later, would refer to an object that is no more."""
    program = """
import asyncio, gc, logging
import grpc
from leman_core.telemetry import logs as telemetry
from leman_core.settings import Log, Settings

class Keeps(logging.Handler):
    def emit(self, record):
        kept.append(record)

async def main():
    for _ in range(20):
        grpc.aio.server()

kept = []
telemetry.configure(Settings(log=Log(level="debug")), "planner")
logging.getLogger().addHandler(Keeps())
asyncio.run(main())
gc.collect()
kept.clear()
gc.collect()
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_collector_that_stays_away_is_told_of_once(lines):
    stream = lines()
    exporter, other = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter"), logging.getLogger("lance")
    for _ in range(50):
        exporter.error("Failed to export metrics to collector:4317")
        other.error("something else")
    told = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert (told.count("Failed to export metrics to collector:4317"), told.count("something else")) == (1, 50)


@pytest.mark.parametrize("package", MODULES.values())
@pytest.mark.parametrize(("given", "found"), [({}, "error"), ({"LANCE_LOG": "info"}, "info")])
def test_lance_logs_no_warning_of_each_commit_unless_asked_to(package, given, found):
    """It reads the variable when it is imported."""
    program = f"""
import os, sys

class Looks:
    def find_spec(self, name, path=None, target=None):
        if name == "lance":
            print(os.environ.get("LANCE_LOG"))

sys.meta_path.insert(0, Looks())
import {package}.app
import lance
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)} | given
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [found]
