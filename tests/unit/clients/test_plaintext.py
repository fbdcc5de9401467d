"""Where the Python client sends a token without TLS."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

import leman
from leman._wire.channel import Endpoints, Remote
from leman._wire.credentials import Token, is_loopback, parse_addresses
from leman.cli._terminal import Connection
from leman.errors import InvalidArgument
from tests.conftest import ROOT

KNOWN = json.loads((ROOT / "tests" / "conformance" / "vectors" / "addresses.json").read_text())


def no_token() -> str:
    raise AssertionError("asked for a token that is not to be shown")


@pytest.mark.parametrize("token", ["t", no_token])
@pytest.mark.parametrize("address", KNOWN["elsewhere"])
def test_it_does_not_go_to_other_machines(address: str, token: str | Callable[[], str]):
    for endpoint in (address, ["localhost:1", address]):
        for connect in (partial(leman.connect, "/lake"), leman.databases):
            with pytest.raises(InvalidArgument, match="tls_ca=, or plaintext=True") as refused:
                connect(endpoint, token=token)
            assert refused.value.reason == "PLAINTEXT_TOKEN"


@pytest.mark.parametrize("address", KNOWN["loopback"])
def test_it_goes_to_this_machine(address: str):
    Remote(address, Token("t"), "")
    assert all(map(is_loopback, parse_addresses(address)))


@pytest.mark.parametrize("address", KNOWN["elsewhere"])
def test_it_goes_elsewhere_where_that_is_permitted_or_encrypted(address: str):
    Remote(address, Token("t"), "", plaintext=True)
    Remote(address, Token("t"), "ca.pem")
    Remote(address, Token(None), "")


def test_services_that_an_endpoint_names_elsewhere_are_not_asked():
    shown = Endpoints("", "", "", token=Token("t"))
    assert shown.exposes("10.0.0.1:7443")
    assert not shown.exposes("localhost:7443")
    assert not any(
        replace(shown, **more).exposes("10.0.0.1:7443")  # type: ignore[arg-type]
        for more in ({"plaintext": True}, {"tls_ca": "ca.pem"}, {"token": ""}, {"token": Token(None)})
    )


def test_it_cannot_be_permitted_where_it_means_nothing():
    with pytest.raises(InvalidArgument, match="contradict"):
        leman.connect("/lake", "localhost:1", tls_ca="ca.pem", plaintext=True)
    with pytest.raises(InvalidArgument, match="plaintext need endpoint="):
        leman.connect("/lake", plaintext=True)


def test_the_command_line_has_it_from_the_environment(monkeypatch):
    given: list[bool] = []
    monkeypatch.setattr("leman._connect.databases", lambda _, *, plaintext, **__: given.append(plaintext))
    for text in ("", "0", "false", "1", "true", "TRUE"):
        monkeypatch.setenv("LEMAN_PLAINTEXT", text)
        Connection("", "leman.internal:7443", "t", None).registry()
    assert given == [False, False, False, True, True, True]
    monkeypatch.setenv("LEMAN_PLAINTEXT", "perhaps")
    with pytest.raises(InvalidArgument, match="LEMAN_PLAINTEXT is true or false"):
        Connection("", "leman.internal:7443", "t", None).registry()
