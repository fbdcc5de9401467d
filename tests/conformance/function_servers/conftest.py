"""The example server of each language, built once, and started once for all cases that leave it as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import flight

from tests.certificates import Authority
from tests.conformance.function_servers.calls import Exchange, Function, described
from tests.conformance.function_servers.servers import LANGUAGES, Language, Server, started

TOKEN = "the tökén".encode().hex()


@pytest.fixture(autouse=True)
def no_stream_stays() -> Iterator[None]:
    yield
    while Exchange.opened:
        Exchange.opened.pop().cancel()


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(one, id=one.name, marks=[pytest.mark.long] * (one.name == "java"))
        for one in LANGUAGES
        if not one.missing()
    ],
)
def language(request: pytest.FixtureRequest) -> Language:
    return request.param


@pytest.fixture(scope="session")
def command(language: Language, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    return language.build(tmp_path_factory.mktemp(language.name))


@dataclass(frozen=True)
class Called:
    """A server, a client of it, and what it said of its functions."""

    server: Server
    client: flight.FlightClient
    functions: dict[str, Function]

    def ask(self, function: str) -> Exchange:
        """Open a stream."""
        described = self.functions[function]
        return Exchange(self.client, function, described.version, described.inputs)


def call(server: Server) -> Called:
    client = flight.connect(f"grpc://127.0.0.1:{server.port}")
    return Called(server, client, described(client))


@pytest.fixture(scope="session")
def server(language: Language, command: tuple[str, ...]) -> Iterator[Called]:
    with started(language, command) as running:
        yield call(running)


@pytest.fixture
def own_server(language: Language, command: tuple[str, ...]) -> Iterator[Called]:
    """One that the test may kill."""
    with started(language, command) as running:
        yield call(running)


@dataclass(frozen=True)
class Secured:
    """A server over TLS that takes calls with a token."""

    port: int
    ca: bytes

    def client(self) -> flight.FlightClient:
        """A client that trusts it."""
        return flight.connect(f"grpc+tls://localhost:{self.port}", tls_root_certs=self.ca)


@pytest.fixture(scope="session")
def secured(
    language: Language, command: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    files = authority.server()
    trusted = Path(authority.ca).read_bytes()
    with started(language, command, "--token", TOKEN, "--cert", files.cert, "--key", files.key) as running:
        yield Secured(running.port, trusted)
