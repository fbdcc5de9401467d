"""What Lance and pyarrow make of the options: both go to the endpoint, with the credentials, for each kind of store."""

from __future__ import annotations

import contextlib
import http.server
import threading

import pytest
from lance.file import LanceFileSession

from leman_core.model.databases import StoreOptions
from leman_core.storage import object_stores
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.object_stores import lance_options


class _Recorder(http.server.BaseHTTPRequestHandler):
    """Refuses everything, and remembers it."""

    seen: list[tuple[str, dict[str, str]]]
    #: So many requests are asked to come later.
    busy: int = 0

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.send_response(503 if len(self.seen) <= self.busy else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_said: object) -> None:
        """Say nothing."""


@pytest.fixture
def recorder():
    """Yields (endpoint, list of what was asked: path and headers)."""
    handler = type("Recorder", (_Recorder,), {"seen": [], "do_GET": _Recorder._refuse, "do_HEAD": _Recorder._refuse})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler.seen
    server.shutdown()
    thread.join()
    server.server_close()
    object_stores.set_store_source(object_stores.GivenStores())


CASES = {
    "s3": (
        "s3://lake/db",
        {"region": "eu-x", "access_key_id": "AK", "secret_access_key": "SK", "session_token": "ST"},
        {"authorization": "Credential=AK/", "x-amz-security-token": "ST"},
    ),
    "s3, anonymous": ("s3://lake/db", {"region": "eu-x", "anonymous": True}, {}),
    "gs": ("gs://lake/db", {"token": "TOK"}, {"authorization": "Bearer TOK"}),
    "azure, key": (
        "abfss://lake@acc.dfs.core.windows.net/db",
        {"account_key": "Zm9v"},
        {"authorization": "SharedKey acc:"},
    ),
    "azure, sas": ("abfss://lake@acc.dfs.core.windows.net/db", {"sas_token": "sv=1&sig=x"}, {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("library", ["lance", "pyarrow"])
def test_requests_go_to_the_endpoint_with_the_credentials(recorder, case, library):
    endpoint, seen = recorder
    root, given, expected = CASES[case]
    object_stores.set_store_source(
        object_stores.GivenStores([StoreOptions(root=root, endpoint=endpoint, allow_http=True, **given)])
    )

    with contextlib.suppress(OSError, ValueError):
        if library == "lance":
            LanceFileSession(root, storage_options=lance_options(root)).contains("t.lance")
        else:
            filesystem, path = filesystem_of(f"{root}/t.lance")
            assert path == "lake/db/t.lance"
            filesystem.get_file_info(path)

    path, headers = seen[0]
    assert "/lake" in path
    for name, part in expected.items():
        assert part in headers[name]
    if case == "azure, sas":
        assert "sv=1" in path
        assert "sig=x" in path
    if "authorization" not in expected:
        assert "authorization" not in headers


def test_renewed_credentials_are_another_file_system_and_the_same_ones_are_not():
    def opened(token: str) -> object:
        object_stores.set_store_source(object_stores.GivenStores([StoreOptions(root="gs://lake", token=token)]))
        return filesystem_of("gs://lake/db")[0]

    assert opened("a") is opened("a")
    assert opened("a") is not opened("b")
    object_stores.set_store_source(object_stores.GivenStores())


def test_a_busy_store_is_asked_again_until_it_answers(recorder, monkeypatch):
    endpoint, seen = recorder
    monkeypatch.setattr(_Recorder, "busy", 4)
    object_stores.set_store_source(
        object_stores.GivenStores([StoreOptions(root="s3://lake", endpoint=endpoint, allow_http=True, anonymous=True)])
    )
    filesystem, path = filesystem_of("s3://lake/db/x")
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_file(path).read()
    assert len(seen) == 5


def test_a_bucket_stands_in_the_host_where_it_is_to():
    options = StoreOptions(root="s3://lake", endpoint="https://s3.internal", virtual_hosted=True, region="r")
    object_stores.set_store_source(object_stores.GivenStores([options]))
    try:
        assert lance_options("s3://lake/t.lance") == {
            "aws_region": "r",
            "aws_endpoint": "https://lake.s3.internal",
            "aws_virtual_hosted_style_request": "true",
        }
        assert lance_options("s3://other/t.lance") is None
        assert lance_options("/lake/t.lance") is None
    finally:
        object_stores.set_store_source(object_stores.GivenStores())
