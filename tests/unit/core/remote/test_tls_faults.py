"""What is said of a function server that TLS keeps from being reached; no server is waited for without success."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

import leman
from leman.functions import FunctionServer
from leman_core.functions import function_servers
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.work import ServerAccess
from tests.certificates import Authority, Files


@leman.udf(name="twice", version="1")
def twice(x: int) -> int:
    return 2 * x


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


def text(path: str) -> str:
    return Path(path).read_text()


def refusal(access: ServerAccess) -> LemanError:
    with function_servers.connect_server(access) as client, pytest.raises(LemanError) as caught:
        function_servers.describe_function(client, access, "twice")
    return caught.value


@contextlib.contextmanager
def running(files: Files | None = None) -> Iterator[int]:
    tls = {"tls_cert": files.cert, "tls_key": files.key} if files is not None else {}
    with FunctionServer([twice], port=0, **tls) as server:
        yield server.port


def fails(access: ServerAccess, *words: str) -> None:
    error = refusal(access)
    assert error.reason == "FUNCTION_TLS_FAILED"
    for word in (access.address, *words):
        assert word in error.message


def test_a_certificate_that_does_not_verify_is_told_with_why_and_what_to_do(authority, tmp_path):
    strangers = Authority(tmp_path)
    other_name = authority.issue("elsewhere", x509.DNSName("elsewhere.internal"))
    ended = authority.issue("old", x509.DNSName("localhost"), days=-1)
    ca = text(authority.ca)
    with running(authority.server()) as port:
        at = f"grpc+tls://localhost:{port}"
        fails(ServerAccess(at), "does not verify", "the system's authorities", "LEMAN_UDF__REMOTE_CREDENTIALS")
        fails(ServerAccess(at, ca=text(strangers.ca)), "does not verify", "with the `ca` in")
        fails(ServerAccess(at, ca="no PEM"), "not valid PEM")
        client = function_servers.connect_server(ServerAccess(at, ca=ca))
        assert function_servers.describe_function(client, ServerAccess(at, ca=ca), "twice").version == "1"
        client.close()
    with running(other_name) as port:
        fails(ServerAccess(f"grpc+tls://localhost:{port}", ca=ca), "not valid for 'localhost'")
    with running(ended) as port:
        fails(ServerAccess(f"grpc+tls://localhost:{port}", ca=ca), "certificate has expired")


def test_the_wrong_scheme_is_told_with_the_right_one(authority):
    with running(authority.server()) as port:
        fails(ServerAccess(f"grpc://localhost:{port}"), "speaks TLS", f"at grpc+tls://localhost:{port}")
    with running() as port:
        fails(ServerAccess(f"grpc+tls://localhost:{port}"), "does not speak TLS", f"at grpc://localhost:{port}")


class _Accepting:
    """Accepts connections, and handles each as configured."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Accepting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                with taken, contextlib.suppress(OSError):
                    if self._context is not None:
                        with self._context.wrap_socket(taken, server_side=True) as secured:
                            secured.recv(1)


def _context(authority: Authority, *, asks: bool) -> ssl.SSLContext:
    context, files = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), authority.server()
    context.load_cert_chain(files.cert, files.key)
    if asks:
        context.set_alpn_protocols(["h2"])
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)
    return context


def test_a_server_that_asks_for_a_certificate_is_told_from_one_that_is_no_flight_server(authority):
    ours, ca = authority.issue("ours"), text(authority.ca)
    with _Accepting(_context(authority, asks=True)) as server:
        at = f"grpc+tls://localhost:{server.port}"
        fails(ServerAccess(at, ca=ca), "asks for a client certificate", "`cert` and `key`")
        shown = refusal(ServerAccess(at, ca=ca, cert=text(ours.cert), key=text(ours.key)))
        assert isinstance(shown, Unavailable), "it took ours, and hung up for another cause"
    with _Accepting(_context(authority, asks=False)) as server:
        fails(ServerAccess(f"grpc+tls://localhost:{server.port}", ca=ca), "ALPN h2")


@pytest.mark.parametrize("scheme", ["grpc", "grpc+tls"])
def test_a_server_that_is_away_or_hangs_up_may_come_back(scheme):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert isinstance(refusal(ServerAccess(f"{scheme}://127.0.0.1:{port}")), Unavailable)
    with _Accepting() as server:
        assert isinstance(refusal(ServerAccess(f"{scheme}://127.0.0.1:{server.port}")), Unavailable)
