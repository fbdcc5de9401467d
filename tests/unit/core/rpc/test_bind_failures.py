"""An address that a service cannot listen on is reported with the setting that names it, and with what is wrong."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

import pytest

from leman_core.model.service_errors import Unavailable
from leman_core.process.addresses import bind_failure
from leman_core.server.server import start_server
from leman_core.settings import Server, Settings
from tests.unit.core.rpc_helpers import FakeService

NAMES = {"host_setting": "LEMAN_X__HOST", "port_setting": "LEMAN_X__PORT"}


def told(host: str, port: int, error: Exception) -> str:
    failure = bind_failure("cannot listen", host, port, **NAMES, error=error)
    assert failure.reason == "BIND_FAILED"
    return failure.message


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "LEMAN_X__HOST: the name does not resolve (Name or service"),
        (OSError(errno.EADDRINUSE, "in use"), "LEMAN_X__PORT: another process listens there; choose another port"),
        (OSError(errno.EADDRNOTAVAIL, "no"), "LEMAN_X__HOST: that is not an address of this machine"),
        (OSError(errno.EACCES, "denied"), "LEMAN_X__PORT: this user may not listen there"),
        (OSError(errno.ENOBUFS, "full"), f"LEMAN_X__HOST, LEMAN_X__PORT: {OSError(errno.ENOBUFS, 'full')}"),
    ],
)
def test_what_the_system_says_names_a_setting(error, said):
    assert told("h", 80, error).startswith(f"cannot listen on h:80: {said}")


def test_an_error_without_a_reason_is_looked_into():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        assert "LEMAN_X__PORT: another process" in told("127.0.0.1", port, RuntimeError("failed"))
    assert "LEMAN_X__HOST, LEMAN_X__PORT: failed" in told("127.0.0.1", 0, RuntimeError("failed"))


def test_an_address_of_ipv6_stands_in_brackets():
    assert "on [::1]:80: " in told("::1", 80, OSError(errno.EACCES, os.strerror(errno.EACCES)))


@pytest.mark.parametrize("http", [-1, 0])
@pytest.mark.parametrize(
    ("host", "why"),
    [("no.such.host.invalid", "does not resolve"), ("192.0.2.1", "not an address"), ("a..b", "not a host name")],
)
def test_a_server_says_that_its_host_is_wrong(host, why, http):
    settings = Settings(server=Server(host=host, http_port=http, allow_insecure_bind=True, allow_anonymous=True))

    async def scenario() -> str:
        with pytest.raises(Unavailable) as caught:
            await start_server(settings, "executor", FakeService(asyncio.Event()), asyncio.Event())
        return f"{caught.value.reason}: {caught.value.message}"

    said = asyncio.run(scenario())
    assert said.startswith(f"BIND_FAILED: cannot listen on {host}:0: LEMAN_SERVER__HOST: ")
    assert why in said
