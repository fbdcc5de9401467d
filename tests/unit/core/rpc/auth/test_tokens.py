"""Tokens: in settings and in a file, by digest or in the clear, with an end, and exchanged while the server runs."""

from __future__ import annotations

import asyncio
import datetime
import hashlib

import grpc
import pytest

from leman.v1 import jobs_pb2
from leman_core.model.service_errors import InvalidArgument, Unauthenticated
from leman_core.server import authentication
from leman_core.server.authentication import Authenticator
from leman_core.settings import Server, Settings
from tests.unit.core.rpc.auth.every_method import NO_CONNECTION, error_info
from tests.unit.core.rpc_helpers import client, running

OLD, NEW = "the-old-one-of-etl", "the-new-one-of-etl"


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


def entry(name, token="", *, roles=("reader",), sha256=True, expires=None):
    shown = f'sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"' if sha256 else f'token = "{token}"'
    end = f"\nexpires = {expires.isoformat()}" if expires else ""
    return f'[[token]]\nname = "{name}"\nroles = {list(roles)}\n{shown}{end}\n'


def put(path, *entries):
    """As it is rotated: another file takes its place."""
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(entries))
    fresh.rename(path)


def known(**server):
    return Authenticator(Settings(server=Server(**server)))


def found(callers, token):
    return asyncio.run(callers.caller_of(dict(bearer(token)), NO_CONNECTION))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.toml"


def test_tokens_are_exchanged_while_the_server_runs(path, monkeypatch):
    monkeypatch.setattr(authentication, "_LOOK_SECONDS", 0.0)

    async def scenario():
        put(path, entry("etl", OLD))
        async with running(Server(tokens_file=str(path))) as (up, _), client(up) as stub:

            async def outcome(token):
                try:
                    await stub.GetJob(jobs_pb2.GetJobRequest(job_id="j1"), metadata=bearer(token))
                except grpc.aio.AioRpcError as error:
                    return error_info(error).reason
                return "OK"

            assert [await outcome(OLD), await outcome(NEW)] == ["OK", "TOKEN_INVALID"]
            put(path, entry("etl", OLD), entry("etl", NEW))
            assert [await outcome(OLD), await outcome(NEW)] == ["OK", "OK"]
            put(path, entry("etl", NEW))
            assert [await outcome(OLD), await outcome(NEW)] == ["TOKEN_INVALID", "OK"]

    asyncio.run(scenario())


def test_a_token_that_is_new_holds_at_once_and_one_that_is_gone_for_a_second_at_the_most(path, monkeypatch):
    put(path, entry("etl", OLD))
    callers = known(tokens_file=str(path))
    monkeypatch.setattr(authentication, "_LOOK_SECONDS", 3600.0)
    put(path, entry("etl", NEW))
    assert found(callers, OLD).name == "etl"
    assert found(callers, NEW).name == "etl"
    with pytest.raises(Unauthenticated):
        found(callers, OLD)


def test_a_file_that_goes_wrong_leaves_the_tokens_as_they_were(path, monkeypatch):
    monkeypatch.setattr(authentication, "_LOOK_SECONDS", 0.0)
    put(path, entry("etl", OLD))
    callers = known(tokens_file=str(path))
    put(path, "token = [")
    assert found(callers, OLD).name == "etl"
    path.unlink()
    assert found(callers, OLD).name == "etl"
    put(path, entry("etl", NEW))
    assert found(callers, NEW).name == "etl"


def test_a_token_ends_when_its_time_is_over(path):
    now = datetime.datetime.now(datetime.UTC)
    soon, past = now + datetime.timedelta(hours=1), now - datetime.timedelta(seconds=1)
    put(path, entry("a", OLD, expires=past), entry("b", NEW, expires=soon))
    callers = known(tokens_file=str(path))
    assert found(callers, NEW).name == "b"
    with pytest.raises(Unauthenticated) as caught:
        found(callers, OLD)
    assert caught.value.reason == "TOKEN_EXPIRED"


def test_the_token_of_the_settings_opens_everything_beside_those_of_the_file(path):
    put(path, entry("etl", OLD, roles=("runner",), sha256=False))
    callers = known(tokens_file=str(path), token="one-for-everything")
    assert found(callers, "one-for-everything").roles == ("admin", "code", "service")
    assert found(callers, OLD).roles == ("runner",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (entry("a", OLD, roles=("king",)), "token.0.roles.0"),
        (entry("a", OLD) + "colour = 1\n", "colour"),
        (entry("a", OLD) + f'token = "{OLD}"\n', "needs exactly one of token and sha256"),
        ('[[token]]\nname = "a"\nroles = []\n', "needs exactly one of token and sha256"),
        (entry("a", "short", sha256=False), "less than 16"),
        (entry("a", "s3cret with blanks, long", sha256=False), "visible ASCII"),
        (entry("a", OLD) + entry("b", OLD), "the same token twice"),
        (entry("a", OLD) + "expires = 2030-01-01T00:00:00\n", "timezone"),
        (entry("a", OLD).replace('sha256 = "', 'sha256 = "x'), "token.0.sha256"),
        (entry("", OLD), "token.0.name"),
        (f"{OLD}\n", "not TOML"),
        (None, "cannot be read"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused_at_the_start_without_telling_what_is_in_it(path, content, problem):
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument) as caught:
        known(tokens_file=str(path))
    assert caught.value.reason == "BAD_SETTING"
    assert problem in caught.value.message
    assert str(path) in caught.value.message
    for secret in (OLD, "short", "s3cret", hashlib.sha256(OLD.encode()).hexdigest()):
        assert secret not in caught.value.message


@pytest.mark.parametrize(
    ("server", "roles"),
    [
        ({}, ("admin", "code", "editor", "reader", "runner", "service")),
        ({"anonymous_roles": ("reader",)}, ("reader",)),
        ({"anonymous_roles": ("reader",), "token": "one-for-everything"}, ("reader",)),
    ],
)
def test_who_shows_nothing_is_anonymous_with_what_the_settings_allow(server, roles):
    caller = asyncio.run(known(**server).caller_of({}, NO_CONNECTION))
    assert (caller.name, caller.shown_by, caller.roles) == ("anonymous", "anonymous", roles)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("", "TOKEN_REQUIRED"),
        ("Bearer", "TOKEN_REQUIRED"),
        ("Bearer ", "TOKEN_REQUIRED"),
        ("Basic one-for-everything", "TOKEN_REQUIRED"),
        ("one-for-everything", "TOKEN_REQUIRED"),
        ("Bearer one-for-everything-else", "TOKEN_INVALID"),
        ("Bearer one-for-everythin", "TOKEN_INVALID"),
        ("Bearer one-for everything", "TOKEN_INVALID"),
    ],
)
def test_what_is_no_known_token_is_refused_also_where_others_may_be_anonymous(given, reason):
    for roles in (None, ("reader",)):
        callers = known(token="one-for-everything", anonymous_roles=roles)
        with pytest.raises(Unauthenticated) as caught:
            asyncio.run(callers.caller_of({"authorization": given}, NO_CONNECTION))
        assert caught.value.reason == reason
        assert "one-for" not in caught.value.message


def test_a_file_is_not_looked_at_for_each_call(path, monkeypatch):
    put(path, entry("etl", OLD))
    callers = known(tokens_file=str(path))
    monkeypatch.setattr(authentication.Path, "stat", lambda *_: pytest.fail("looked"))
    monkeypatch.setattr(authentication, "_LOOK_SECONDS", 3600.0)
    assert found(callers, OLD).name == "etl"
