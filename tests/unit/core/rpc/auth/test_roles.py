"""Every RPC × role: what the options say holds on a real server, and nothing else."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from leman.v1 import annotations_pb2
from leman_core.server import callers
from leman_core.server.callers import CURRENT, RANKS, make_caller
from leman_core.settings import Server
from tests.unit.core.rpc.auth.every_method import ask, every_service, methods, path_of, with_field

METHODS = list(methods())
#: Name → roles. Names are tokens, too.
CALLERS = {
    **{f"only-{role}": [role] for role in RANKS},
    **{f"coding-{role}": [role, "code"] for role in RANKS},
    "only-code": ["code"],
    "nothing": [],
}


def token_of(name: str) -> str:
    return f"token-of-{name}".ljust(16, "-")


@pytest.fixture(scope="module")
def tokens_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    lines = []
    for name, roles in CALLERS.items():
        digest = hashlib.sha256(token_of(name).encode()).hexdigest()
        lines.append(f'[[token]]\nname = "{name}"\nroles = {roles}\nsha256 = "{digest}"\n')
    path.write_text("\n".join(lines))
    return str(path)


def access_of(method):
    return method.GetOptions().Extensions[annotations_pb2.access]


def requests_of(method):
    """(takes code, request), for each thing that makes a call take it."""
    access = access_of(method)
    yield access.code, GetMessageClass(method.input_type)()
    for path in access.code_where:
        yield True, with_field(method, tuple(path.split(".")))


def allowed(method, name, *, takes_code):
    """What the options say, without the code that reads them."""
    roles = CALLERS[name]
    rank = max((RANKS.get(role, 0) for role in roles), default=0)
    return rank >= access_of(method).role and (not takes_code or not {"code", "service"}.isdisjoint(roles))


async def wrong_answers(channel, service, method, request, *, takes_code):
    """Those that a call of one method gets and should not."""
    for name in CALLERS:
        service.answered.clear()
        code, info = await ask(channel, method, request, token_of(name))
        if allowed(method, name, takes_code=takes_code):
            right = code == "OK" and (service.answered == [(method.name, name)] or method.name == "GetInfo")
        else:
            right = code == "PERMISSION_DENIED" and info.reason == "ROLE_REQUIRED" and not service.answered
        if not right:
            yield method.full_name, name, code
    for token, reason in (("", "TOKEN_REQUIRED"), ("somebody-elses-token", "TOKEN_INVALID")):
        code, info = await ask(channel, method, request, token)
        if (code, info.reason) != ("UNAUTHENTICATED", reason):
            yield method.full_name, token, code


def test_every_call_is_allowed_to_those_whom_it_names_and_to_nobody_else(tokens_file):
    async def scenario():
        wrong, tried = [], 0
        async with (
            every_service(Server(tokens_file=tokens_file)) as (up, service),
            grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel,
        ):
            for method in METHODS:
                for takes_code, request in requests_of(method):
                    tried += 1
                    answers = wrong_answers(channel, service, method, request, takes_code=takes_code)
                    wrong += [answer async for answer in answers]
        return wrong, tried

    wrong, tried = asyncio.run(scenario())
    assert wrong == []
    assert tried > len(METHODS), "each method, and what takes code again"


def test_a_refusal_names_the_role_and_what_the_caller_has(tokens_file):
    async def scenario():
        method = next(m for m in METHODS if m.name == "RegisterUdf")
        async with (
            every_service(Server(tokens_file=tokens_file)) as (up, _),
            grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel,
        ):
            request = GetMessageClass(method.input_type)()
            _, few = await ask(channel, method, request, token_of("only-runner"))
            assert dict(few.metadata) == {"role": "editor", "caller": "only-runner", "roles": "runner"}
            pickled = with_field(method, ("definition", "python_bundle"))
            _, no_code = await ask(channel, method, pickled, token_of("only-admin"))
            assert dict(no_code.metadata) == {"role": "code", "caller": "only-admin", "roles": "admin"}

    asyncio.run(scenario())


def test_every_rpc_says_who_may_call_it():
    assert len(METHODS) > 25
    assert [m.full_name for m in METHODS if not callers.requirement_from_options(m).role] == []


def test_what_only_services_say_takes_their_role_and_nothing_else_does():
    internal = {m.full_name for m in METHODS if m.full_name.startswith("leman.internal.")}
    assert internal == {m.full_name for m in METHODS if callers.requirement_from_options(m).role == "service"}


def test_fields_that_take_code_are_there():
    for method in METHODS:
        for path in callers.requirement_from_options(method).code_where:
            assert callers._is_set(with_field(method, path), path)
            assert not callers._is_set(GetMessageClass(method.input_type)(), path)


def test_a_method_that_says_nothing_is_refused_for_everyone():
    everything = make_caller("root", "token", ["admin", "service", "code"])
    for path in ("/grpc.health.v1.Health/Check", "/leman.v1.JobService/Unheard"):
        with pytest.raises(callers.PermissionDenied) as caught:
            callers.requirement_of(path).check(everything, None)
        assert caught.value.reason == "ROLE_REQUIRED"


def test_what_takes_code_only_once_it_is_read_asks_for_the_right_as_well():
    def check(given):
        CURRENT.set(given)
        callers.check_code("that")

    for may in (None, make_caller("a", "token", ["code"]), make_caller("a", "token", ["service"])):
        contextvars.copy_context().run(check, may)
    with pytest.raises(callers.PermissionDenied) as caught:
        contextvars.copy_context().run(check, make_caller("a", "token", ["admin"]))
    assert caught.value.facts == {"role": "code", "caller": "a", "roles": "admin"}


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_what_a_path_asks_is_what_the_options_say(method):
    assert callers.requirement_of(path_of(method)) == callers.requirement_from_options(method)


def test_the_names_of_roles_in_settings_are_those_of_the_contract():
    from typing import get_args

    from leman_core.server.callers import GRANTS
    from leman_core.settings import Grant

    assert set(get_args(Grant)) == set(GRANTS)
