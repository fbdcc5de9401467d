"""What callers write where an address, or an id of a change, is asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import leman
from leman._locations import database_uri, far_uri
from leman._table import check_sql
from leman._wire.credentials import Token, parse_addresses
from leman._wire.wire_values import checked_request_id, derived_request_id
from leman.errors import InvalidArgument


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("a:1", ("a:1",)),
        (" a:1, b:2 ,a:1", ("a:1", "b:2")),
        ("dns:///a:1,b:2, dns:///a:1", ("a:1", "b:2")),
        (["a:1", " a:1", "[::1]:7443"], ("a:1", "[::1]:7443")),
        (("leman_planner:7443", "10.0.0.1:65535"), ("leman_planner:7443", "10.0.0.1:65535")),
    ],
)
def test_addresses_are_taken_once_each(given: Any, meant: tuple[str, ...]):
    assert parse_addresses(given) == meant


@pytest.mark.parametrize(
    ("given", "told"),
    [
        *[(empty, r"is empty: give host:port") for empty in ("", [], ())],
        *[(wrong, r"is not host:port, such as 'leman.internal:7443'") for wrong in (" ", "a", "a:", ":1", "::1:7443")],
        *[(wrong, r"is not host:port, such as") for wrong in (b"a:1", 5, "a b:1", ["a:1,b:2"], ["a:1", ""], "a:1,")],
        *[([wrong], r"is not a str like host:port") for wrong in (None, b"a:1", 5)],
        *[(f"a:{port}", r"has no valid port: give one from 1 to 65535") for port in (0, 65536, 99999)],
        ("https://a:1/", r"leave https:// out and give a:1 \(for TLS with tls_ca=\)"),
        ("dns://8.8.8.8/a:1", r"is a URL"),
    ],
)
def test_what_is_no_address_is_told_with_what_to_do(given: Any, told: str):
    with pytest.raises(InvalidArgument, match=f"^endpoint[ =].*{told}"):
        leman.connect("/lake", endpoint=given)


@pytest.mark.parametrize("endpoint", ["a:1,b:2", ["a:1", "b:2"]])
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("lake1", "lake1"),
        (Path("lake1"), "lake1"),
        *[(path, "NAME") for path in ("./lake", "teams/lake", "..", "file:lake")],
    ],
)
def test_a_relative_path_is_no_database_of_services_elsewhere(endpoint: Any, given: Any, name: str):
    told = f"is a relative path, .* or for a registered database leman.connect('a:1,b:2', database='{name}')"
    with pytest.raises(InvalidArgument, match=re.escape(told).replace(r"\.\*", ".*")):
        leman.connect(given, endpoint=endpoint)


@pytest.mark.parametrize("given", ["/lake", "~/lake", "file:///lake", "s3://bucket/lake", Path("/lake")])
def test_an_absolute_path_and_a_uri_are(given: Any):
    assert far_uri(given) == database_uri(given)


def test_a_relative_path_without_an_endpoint_is_a_folder_of_this_machine(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with leman.connect("lake1") as database:
        assert database.uri == str(tmp_path / "lake1")


@pytest.mark.parametrize("given", [5, b"load", "", ["load"]])
def test_what_is_no_request_id_is_refused(given: Any):
    with pytest.raises(InvalidArgument, match=r"^request_id.* (give one|leave it out)"):
        checked_request_id(given)
    with pytest.raises(InvalidArgument):
        derived_request_id(given, "rows")


@pytest.mark.parametrize("token", ["secret\n", "sec ret", "secrét", "\tsecret"])
def test_a_token_that_no_call_can_carry_is_refused_and_not_shown(token: str):
    source = Token(lambda: token)
    for asked in (lambda: Token(token), source, source.renew):
        with pytest.raises(InvalidArgument, match="a blank, a line end or a letter beyond ASCII") as refused:
            asked()
        assert "ecr" not in refused.value.message
    with pytest.raises(InvalidArgument, match="not a bytes") as refused:
        Token(b"secret")  # type: ignore[arg-type]
    assert "ecr" not in refused.value.message


def test_the_id_of_a_further_change_is_nobody_elses():
    assert derived_request_id(None, "rows") is None
    assert (
        derived_request_id("load", "rows") == derived_request_id("load", "rows") != derived_request_id("load", "other")
    )
    assert str(derived_request_id("load", "rows")).startswith("load-rows-")
    assert derived_request_id("load", "rows") not in {"load-rows", derived_request_id("load-rows", "rows")}


@pytest.mark.parametrize("wrong", [b"n > 5", 5, None])
def test_what_is_no_sql_is_refused_before_anything_is_asked(wrong: Any):
    with pytest.raises(InvalidArgument, match="where is SQL in a str"):
        check_sql(wrong, "where")
    assert check_sql("n > 5", "where") == "n > 5"
