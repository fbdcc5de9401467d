"""The services that cases are about: one embedded system behind proxies, and a second planner that speaks TLS."""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from leman_core.process.release import SERVICES
from tests.certificates import Authority
from tests.conformance.clients import restarts
from tests.conformance.clients.case_files import Case
from tests.conformance.clients.proxy import HOST, Proxy
from tests.conformance.clients.turns import Turns
from tests.conftest import ROOT, System, start_system, stop_system

ROLES = {
    "admin": ["admin", "code"],
    "reader": ["reader"],
    "runner": ["runner"],
    "editor": ["editor"],
    "peer": ["service"],
}
_ISSUER, _AUDIENCE = "http://127.0.0.1:9/issuer", "leman"
_ENTRYPOINTS = ["math:*", "operator:*", "time:sleep", "pyarrow.compute:*"]


class Services:
    """Runs until it is closed. `folder` is where all that it writes lies, and where databases may lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turns = Turns()
        self._proxies: list[Proxy] = []
        self.tokens = {name: "-".join([name] * 4) for name in (*ROLES, "expired", "unknown")}
        self._certificates = folder / "certificates"
        self._certificates.mkdir()
        self._write_tokens()
        self._system = start_system(folder / "system", **self._common(), **self._of_system())
        self.tls: dict[str, Any] = {}
        self._planner = self._start_planner()

    def close(self) -> None:
        """End all of it."""
        self._planner.terminate()
        self._planner.communicate(timeout=30)
        stop_system(self._system)

    def new_proxy(self) -> Proxy:
        """A proxy in front of the embedded system, for anyone who closes it."""
        proxy = Proxy({name: str(self._system.service[name]) for name in SERVICES}, self.kill)
        self._proxies.append(proxy)
        return proxy

    def end_turn(self, case: Case) -> None:
        """Let other cases begin, once proxies reach all services again where this one killed some."""
        try:
            if case.kills:
                for proxy in [one for one in self._proxies if not one.closed]:
                    proxy.wait_for_services()
        finally:
            self.turns.give(case.kills)

    @property
    def system(self) -> System:
        """The embedded system."""
        return self._system

    def kill(self, name: str) -> None:
        """End a service's process at once; its supervisor starts another one."""
        restarts.kill(self._system, name)

    def wait_for_another(self, name: str, pid: int) -> None:
        """Wait until a service answers, as another process than `pid`."""
        restarts.wait_for_another(self._system, self.tokens["admin"], name, pid)

    def pid(self, name: str) -> int:
        """The process of a service."""
        return restarts.pid(self._system, name)

    def _common(self) -> dict[str, str]:
        """Settings of all services."""
        return {
            "LEMAN_SERVER__TOKENS_FILE": str(self.folder / "tokens.toml"),
            "LEMAN_SERVER__DATABASE_ROOTS": json.dumps([str(self.folder)]),
            "LEMAN_SERVER__REGISTRY": str(self.folder / "registry"),
            "LEMAN_SERVER__REGISTRY_SECONDS": "0",
            "LEMAN_SERVER__MAX_MESSAGE_MB": "4",
            "LEMAN_UDF__ENTRYPOINTS": json.dumps(_ENTRYPOINTS),
            "LEMAN_UDF__MAX_BUNDLE_MB": "1",
            "LEMAN_JWT__ISSUER": _ISSUER,
            "LEMAN_JWT__AUDIENCE": _AUDIENCE,
            "LEMAN_JWT__JWKS": str(self.folder / "keys.json"),
        }

    def _of_system(self) -> dict[str, str]:
        """Settings of the embedded system alone."""
        return {"LEMAN_EXECUTOR__JOB_LEASE_SECONDS": "3", "LEMAN_EXECUTOR__SLOTS": "2"}

    def _write_tokens(self) -> None:
        tables = [(name, roles, "") for name, roles in ROLES.items()]
        tables.append(("expired", ["admin"], "expires = 2020-01-01T00:00:00Z\n"))
        text = "".join(
            f'[[token]]\nname = "{name}"\nroles = {json.dumps(roles)}\ntoken = "{self.tokens[name]}"\n{more}'
            for name, roles, more in tables
        )
        (self.folder / "tokens.toml").write_text(text)
        key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(ECAlgorithm.to_jwk(key.public_key())) | {"kid": "1", "alg": "ES256", "use": "sig"}
        (self.folder / "keys.json").write_text(json.dumps({"keys": [public]}))
        for name, minutes in (("jwt", 60), ("jwt_expired", -60)):
            end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
            claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": "ada", "exp": end, "roles": ["editor"]}
            self.tokens[name] = jwt.encode(claims, key, "ES256", {"kid": "1"})

    def _start_planner(self) -> subprocess.Popen[bytes]:
        """A planner with TLS that passes other calls on to the system; on a second port it asks for certificates."""
        authority, stranger = Authority(self._certificates), self.folder / "stranger"
        stranger.mkdir()
        server, editor = authority.server(), authority.issue("editor")
        nobody = authority.issue("nobody")
        ports, others = [_free_port(), _free_port()], [name for name in SERVICES if name != "planner"]
        settings = self._common() | {
            **{f"LEMAN_PEERS__{name.upper()}": str(self._system.service[name]) for name in others},
            **{f"LEMAN_ADVERTISE__{name.upper()}": f"{HOST}:{ports[0]}" for name in SERVICES},
            "LEMAN_SERVER__PORT": str(ports[0]),
            "LEMAN_SERVER__MTLS_PORT": str(ports[1]),
            "LEMAN_PEERS__TOKEN": self.tokens["peer"],
            "LEMAN_SERVER__TLS_CERT": server.cert,
            "LEMAN_SERVER__TLS_KEY": server.key,
            "LEMAN_SERVER__TLS_CLIENT_CA": authority.ca,
            "LEMAN_SERVER__TLS_CLIENT_ROLES": json.dumps({"CN:editor": ["editor"]}),
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LEMAN_")}
        with (self.folder / "planner.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "leman_planner"],
                cwd=ROOT,
                env=kept | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert process.stdout is not None
        told = json.loads(process.stdout.readline() or "{}")
        assert "port" in told, (self.folder / "planner.log").read_text()
        self.tls = {
            "endpoint": f"{HOST}:{ports[0]}",
            "mtls": f"{HOST}:{ports[1]}",
            "ca": authority.ca,
            "other_ca": Authority(stranger).ca,
            "cert": editor.cert,
            "key": editor.key,
            "nobody_cert": nobody.cert,
            "nobody_key": nobody.key,
        }
        return process


def _free_port() -> int:
    with socket.socket() as held:
        held.bind((HOST, 0))
        return int(held.getsockname()[1])
