"""JWTs: whose signature, issuer, audience and time hold, and nothing else; keys that come and go."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
import time
import types
from dataclasses import dataclass, field
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from leman.v1 import jobs_pb2
from leman_core.model.service_errors import InvalidArgument, Unauthenticated, Unavailable
from leman_core.server import authentication
from leman_core.server.authentication import Authenticator
from leman_core.settings import Jwt, Server, Settings
from tests.unit.core.rpc.auth.every_method import NO_CONNECTION, error_info
from tests.unit.core.rpc_helpers import client, running

AUDIENCE = "leman"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OCT = {"kty": "oct", "kid": "secret", "alg": "HS256", "k": base64.urlsafe_b64encode(b"k" * 32).decode()}
CURVE = {"kty": "OKP", "crv": "X25519", "kid": "x", "x": base64.urlsafe_b64encode(b"x" * 32).decode().rstrip("=")}


def public(key: Any, kid: str | None, **more: str) -> dict[str, Any]:
    algorithm = RSAAlgorithm if hasattr(key, "private_numbers") and isinstance(key, rsa.RSAPrivateKey) else None
    algorithm = algorithm or (ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else OKPAlgorithm)
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **({"kid": kid} if kid else {}), **more}


@dataclass
class Issuer:
    """An OpenID Connect issuer on loopback, and how often it was asked for its keys."""

    url: str = ""
    keys: list[dict[str, Any]] = field(default_factory=list)
    discovery: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    redirects: bool = False

    def token(self, key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "one", **claims: Any) -> str:
        held = {"iss": self.url, "aud": AUDIENCE, "sub": "etl", "roles": ["runner"], "exp": time.time() + 600}
        claims = {name: value for name, value in (held | claims).items() if value is not None}
        return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else {})


@pytest.fixture
def issuer():
    said = Issuer(keys=[public(RSA_KEY, "one")])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if said.redirects:
                self.send_response(302)
                self.send_header("Location", f"{said.url}/elsewhere")
                self.end_headers()
                return
            if self.path.endswith("/openid-configuration"):
                answer = {"issuer": said.url, "jwks_uri": f"{said.url}/keys", **said.discovery}
            else:
                said.asked += 1
                answer = {"keys": said.keys}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        said.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
        thread.start()
        yield said
        server.shutdown()
        thread.join()


def settings(issuer: Issuer, /, **more: Any) -> Settings:
    return Settings(jwt=Jwt(**{"issuer": issuer.url, "audience": AUDIENCE} | more), server=Server())


def callers(issuer: Issuer, /, **more: Any) -> Authenticator:
    return Authenticator(settings(issuer, **more))


async def told(known: Authenticator, token: str) -> str:
    """Name and roles of the caller, or the reason of the refusal."""
    try:
        caller = await known.caller_of({"authorization": f"Bearer {token}"}, NO_CONNECTION)
    except (Unauthenticated, Unavailable) as error:
        return error.reason if token not in error.message else "TOLD"
    return f"{caller.name} {','.join(caller.roles)} by {caller.shown_by}"


def outcome(known: Authenticator, token: str) -> str:
    return asyncio.run(told(known, token))


def unsigned(token: str, header: dict[str, str]) -> str:
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{head}.{token.split('.')[1]}."


PEM = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def signed_with_the_public_key(issuer: Issuer) -> str:
    """The public key, taken for the secret of an HMAC: the oldest trick there is."""
    import hashlib
    import hmac

    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT","kid":"one"}').decode().rstrip("=")
    text = f"{head}.{issuer.token().split('.')[1]}"
    mac = base64.urlsafe_b64encode(hmac.new(PEM, text.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    return f"{text}.{mac}"


def other_claims(issuer: Issuer) -> str:
    mine, more = issuer.token().split("."), issuer.token(roles=["admin", "code"]).split(".")
    return f"{mine[0]}.{more[1]}.{mine[2]}"


BAD = {
    "expired": (lambda i: i.token(exp=time.time() - 60), "TOKEN_EXPIRED"),
    "not yet": (lambda i: i.token(nbf=time.time() + 600), "TOKEN_INVALID"),
    "without an end": (lambda i: i.token(exp=None), "TOKEN_INVALID"),
    "foreign issuer": (lambda i: i.token(iss="https://elsewhere.example"), "TOKEN_INVALID"),
    "without an issuer": (lambda i: i.token(iss=None), "TOKEN_INVALID"),
    "another audience": (lambda i: i.token(aud="billing"), "TOKEN_INVALID"),
    "without an audience": (lambda i: i.token(aud=None), "TOKEN_INVALID"),
    "foreign key": (lambda i: i.token(OTHER_RSA_KEY), "TOKEN_INVALID"),
    "unknown key": (lambda i: i.token(OTHER_RSA_KEY, kid="two"), "TOKEN_INVALID"),
    "key of another kind": (lambda i: i.token(EC_KEY, "ES256"), "TOKEN_INVALID"),
    "alg none": (lambda i: unsigned(i.token(), {"alg": "none", "typ": "JWT"}), "TOKEN_INVALID"),
    "alg None": (lambda i: unsigned(i.token(), {"alg": "None", "kid": "one"}), "TOKEN_INVALID"),
    "signature cut off": (lambda i: i.token().rpartition(".")[0] + ".", "TOKEN_INVALID"),
    "HMAC of the public key": (signed_with_the_public_key, "TOKEN_INVALID"),
    "HMAC": (lambda i: i.token("k" * 32, "HS256", kid="secret"), "TOKEN_INVALID"),
    "claims changed": (other_claims, "TOKEN_INVALID"),
    "no name": (lambda i: i.token(sub=None), "TOKEN_INVALID"),
    "a number for a name": (lambda i: i.token(client=7), "TOKEN_INVALID"),
    "no JWT": (lambda _: "a.b.c", "TOKEN_INVALID"),
    "nothing at all": (lambda _: "..", "TOKEN_INVALID"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_hold_is_refused(issuer, case):
    make, reason = BAD[case]
    issuer.keys.append(OCT)
    known = callers(issuer, leeway_seconds=5, name_claim="client" if case == "a number for a name" else "sub")
    assert outcome(known, make(issuer)) == reason


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA_KEY, "RS256"), (RSA_KEY, "RS512"), (RSA_KEY, "PS256"), (EC_KEY, "ES256"), (ED_KEY, "EdDSA")],
)
@pytest.mark.parametrize("kid", ["one", None])
def test_every_kind_of_signature_holds_with_and_without_a_name_of_its_key(issuer, key, algorithm, kid):
    issuer.keys = [CURVE, OCT, public(OTHER_RSA_KEY, "two"), public(OTHER_RSA_KEY, "one", use="enc"), public(key, kid)]
    assert outcome(callers(issuer), issuer.token(key, algorithm, kid)) == "etl runner by jwt"


def test_a_key_that_is_for_one_algorithm_is_for_no_other(issuer):
    issuer.keys = [public(RSA_KEY, "one", alg="RS256")]
    assert outcome(callers(issuer), issuer.token(algorithm="PS256")) == "TOKEN_INVALID"
    assert outcome(callers(issuer, algorithms=("ES256",)), issuer.token()) == "TOKEN_INVALID"


@pytest.mark.parametrize(
    ("claims", "more", "expected"),
    [
        ({"roles": "reader  code openid"}, {}, "code,reader"),
        ({"roles": ["editor", "king", 7]}, {}, "editor"),
        ({"roles": {"editor": True}}, {}, ""),
        ({"roles": None}, {}, ""),
        ({"realm_access": {"roles": ["admin"]}}, {"roles_claim": "realm_access.roles"}, "admin"),
        ({"https://a.example/r": ["admin"]}, {"roles_claim": "https://a.example/r"}, "admin"),
        ({"groups": ["ops", "admin"]}, {"roles_claim": "groups", "roles": {"ops": ("runner", "code")}}, "code,runner"),
    ],
)
def test_roles_are_read_from_the_claim_that_the_settings_name(issuer, claims, more, expected):
    assert outcome(callers(issuer, **more), issuer.token(**claims)) == f"etl {expected} by jwt"


def test_the_clocks_may_differ_by_the_leeway(issuer):
    assert outcome(callers(issuer, leeway_seconds=30), issuer.token(exp=time.time() - 10)) == "etl runner by jwt"
    assert outcome(callers(issuer, leeway_seconds=0), issuer.token(exp=time.time() - 10)) == "TOKEN_EXPIRED"


def test_keys_are_read_once_and_again_when_a_token_has_another_but_not_for_each(issuer, monkeypatch):
    async def scenario():
        known = callers(issuer)
        await asyncio.gather(*(told(known, issuer.token(sub=f"caller {n}")) for n in range(20)))
        assert issuer.asked == 1
        issuer.keys = [public(OTHER_RSA_KEY, "two")]
        fresh = issuer.token(OTHER_RSA_KEY, kid="two")
        assert await told(known, fresh) == "TOKEN_INVALID", "read a moment ago: not again"
        assert issuer.asked == 1
        monkeypatch.setattr(authentication, "_PAUSE_SECONDS", 0.0)
        assert await told(known, fresh) == "etl runner by jwt"
        assert issuer.asked == 2
        assert await told(known, issuer.token(sub="late")) == "TOKEN_INVALID", "that key has gone"

    asyncio.run(scenario())


def test_old_keys_are_read_anew_and_stay_while_the_issuer_does_not_answer(issuer, monkeypatch):
    monkeypatch.setattr(authentication, "_PAUSE_SECONDS", 0.0)

    async def scenario():
        known = callers(issuer, refresh_seconds=1e-9)
        for number in range(3):
            assert await told(known, issuer.token(sub=f"{number}")) == f"{number} runner by jwt"
        assert issuer.asked == 3
        issuer.redirects = True
        assert await told(known, issuer.token(sub="3")) == "3 runner by jwt"

    asyncio.run(scenario())


def test_without_keys_nothing_can_be_said_of_a_token(issuer):
    async def scenario():
        for discovery in (
            {"issuer": "https://elsewhere.example"},
            {"jwks_uri": "http://keys.example/"},
            {"jwks_uri": 7},
        ):
            issuer.discovery = discovery
            assert await told(callers(issuer), issuer.token()) == "KEYS_UNAVAILABLE"
        issuer.discovery, issuer.redirects = {}, True
        assert await told(callers(issuer), issuer.token()) == "KEYS_UNAVAILABLE"
        issuer.redirects, issuer.keys = False, [OCT]
        known = callers(issuer)
        assert await told(known, issuer.token()) == "KEYS_UNAVAILABLE"
        asked = issuer.asked
        assert await told(known, issuer.token()) == "KEYS_UNAVAILABLE"
        assert issuer.asked == asked, "it is not asked for each token"

    asyncio.run(scenario())


def test_keys_may_lie_in_a_file(issuer, tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": issuer.keys}))
    assert outcome(callers(issuer, jwks=str(path)), issuer.token()) == "etl runner by jwt"
    assert issuer.asked == 0


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"audience": ""}, "LEMAN_JWT__AUDIENCE"),
        ({"issuer": "http://accounts.example"}, "LEMAN_JWT__ISSUER"),
        ({"issuer": "accounts.example"}, "LEMAN_JWT__ISSUER"),
        ({"jwks": "http://accounts.example/keys"}, "LEMAN_JWT__JWKS"),
        ({"jwks": "/nowhere/keys.json"}, "LEMAN_JWT__JWKS"),
    ],
)
def test_settings_under_which_anybody_could_make_tokens_are_refused(issuer, more, problem):
    with pytest.raises(InvalidArgument, match=problem) as caught:
        callers(issuer, **more)
    assert caught.value.reason == "BAD_SETTING"


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS512"])
def test_no_setting_takes_unsigned_tokens_or_shared_secrets(algorithm):
    with pytest.raises(ValueError, match="algorithms"):
        Jwt(algorithms=(algorithm,))


def test_a_token_that_was_checked_is_remembered_until_it_ends_and_no_longer_than_a_minute(issuer, monkeypatch):
    async def scenario():
        known, checks, now = callers(issuer, leeway_seconds=0), [], [time.time()]
        decode = authentication.jwt.decode
        monkeypatch.setattr(authentication.jwt, "decode", lambda *a, **k: checks.append(1) or decode(*a, **k))
        clock = types.SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic)
        monkeypatch.setattr(authentication, "time", clock)
        soon, late = issuer.token(exp=now[0] + 20), issuer.token()
        for seconds, expected in ((0, 2), (19, 2), (1.5, 3), (40, 5)):
            now[0] += seconds
            for token in (soon, late):
                assert await told(known, token) == "etl runner by jwt"
            assert len(checks) == expected, seconds

    asyncio.run(scenario())


def test_on_a_real_server_a_jwt_stands_beside_plain_tokens(issuer):
    async def scenario():
        sections = {"jwt": settings(issuer).jwt}
        async with running(Server(token="one-for-everything"), **sections) as (up, _), client(up) as stub:

            async def outcome(token: str, call: Any) -> str:
                try:
                    await call(metadata=(("authorization", f"Bearer {token}"),))
                except grpc.aio.AioRpcError as error:
                    return error_info(error).reason
                return "OK"

            def get(**more):
                return stub.GetJob(jobs_pb2.GetJobRequest(job_id="j1"), **more)

            def cancel(**more):
                return stub.CancelJob(jobs_pb2.CancelJobRequest(job_id="j1"), **more)

            reader = issuer.token(roles=["reader"])
            assert [await outcome(reader, get), await outcome(reader, cancel)] == ["OK", "ROLE_REQUIRED"]
            assert await outcome(issuer.token(), cancel) == "OK"
            assert await outcome("one-for-everything", cancel) == "OK"
            assert await outcome(issuer.token(aud="billing"), get) == "TOKEN_INVALID"

    asyncio.run(scenario())
