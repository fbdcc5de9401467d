"""Tokens that would be sent to other machines in the clear keep a service from starting."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from pydantic import SecretStr

from leman_core.model.service_errors import InvalidArgument
from leman_core.server.server import check_bind
from leman_core.settings import Lineage, Peers, Server, Settings

TOKEN = "no-one-guesses-this"


def check(server: dict[str, Any], peers: dict[str, Any]) -> None:
    check_bind(Settings(server=Server(**server), peers=Peers(**peers)))


@pytest.mark.parametrize("name", ["planner", "executor", "commit_coordinator"])
@pytest.mark.parametrize(
    ("server", "peers"), [({}, {"token": TOKEN}), ({"token": TOKEN}, {})], ids=["its own", "of its callers"]
)
def test_tokens_go_to_other_machines_over_tls_alone(server, peers, name):
    for address in ("planner:7443", "10.0.0.7:7443", "[fe80::1]:7443"):
        with pytest.raises(InvalidArgument, match=re.escape(f"at {address} in the clear")) as refused:
            check(server, peers | {name: address})
        assert refused.value.reason == "INSECURE_PEER"
        check(server, peers | {name: address, "tls_ca": "ca.pem"})
        check(server | {"allow_insecure_bind": True}, peers | {name: address})
    for address in ("localhost:7443", "127.0.0.1:7443", "[::1]:7443"):
        check(server, peers | {name: address})


def test_peers_that_are_shown_no_token_may_be_anywhere():
    check({}, {"planner": "planner:7443"})


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("http://lineage.example/api", True),
        ("https://lineage.example/api", False),
        ("http://localhost:5000/api", False),
        ("", False),
    ],
)
def test_the_key_for_lineage_goes_to_other_machines_over_tls_alone(url, refused):
    check_bind(Settings(lineage=Lineage(url=url)))
    settings = Settings(lineage=Lineage(url=url, api_key=SecretStr("secret")))
    with pytest.raises(InvalidArgument, match="begin with https://") if refused else contextlib.nullcontext():
        check_bind(settings)
    check_bind(settings.model_copy(update={"server": Server(allow_insecure_bind=True)}))
