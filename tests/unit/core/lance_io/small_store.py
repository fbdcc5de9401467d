"""A store in memory that speaks as much S3 as Lance and pyarrow need; it may forget what atomic means."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
import threading
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

from leman_core.model.databases import StoreOptions
from leman_core.storage import object_stores

#: That of a store that is near: without any, writers come one after the other.
_LATENCY_SECONDS = 0.02
#: A body that carries its checksum behind it.
_CHUNK = re.compile(rb"[0-9a-f]+\r\n(.*)\r\n0\r\nx-amz-checksum-.*", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>")


class SmallStore(http.server.ThreadingHTTPServer):
    """One bucket, `lake`.

    Args:
        atomic: whether a put with If-None-Match fails where there is an object.

    Attributes:
        refusal: the status, code and sentence with which every request is refused; None: those to other buckets.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *, atomic: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.atomic = atomic
        self.objects: dict[str, bytes] = {}
        self.refusal: tuple[int, str, str] | None = None
        self.requests = 0
        self.lock = threading.Lock()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[SmallStore]:
        """Serve while inside."""
        thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallStore

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/lake").lstrip("/")

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refused(self) -> bool:
        """Refuse a request, as S3 does, where it is to be refused."""
        refusal = self.server.refusal
        if urlsplit(self.path).path.split("/")[1] != "lake":
            refusal = refusal or (404, "NoSuchBucket", "The specified bucket does not exist")
        if refusal is None:
            return False
        with self.server.lock:
            self.server.requests += 1
        status, code, sentence = refusal
        text = f"<Error><Code>{code}</Code><Message>{sentence}</Message><Resource>{self.path}</Resource></Error>"
        self._answer(status, f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode())
        return True

    def do_PUT(self) -> None:
        body = self._body()
        if self._refused():
            return
        time.sleep(_LATENCY_SECONDS)
        with self.server.lock:
            self.server.requests += 1
            there = self._key() in self.server.objects
            if there and self.server.atomic and self.headers.get("If-None-Match") == "*":
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            source = unquote(self.headers.get("x-amz-copy-source", ""))
            if source:
                body = self.server.objects[source.lstrip("/").removeprefix("lake/")]
            self.server.objects[self._key()] = body
        copied = f"<CopyObjectResult><ETag>{_etag(body)}</ETag></CopyObjectResult>" if source else ""
        self._answer(200, copied.encode(), ETag=_etag(body))

    def do_GET(self) -> None:
        if self._refused():
            return
        with self.server.lock:
            self.server.requests += 1
            query = parse_qs(urlsplit(self.path).query)
            body = self.server.objects.get(self._key())
            if "list-type" in query:
                self._answer(200, self._listed(query))
            elif not self._key():
                self._answer(200)  # the bucket is there
            elif body is None:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            else:
                self._part(body)

    do_HEAD = do_GET  # noqa: N815

    def _part(self, body: bytes) -> None:
        times = {"ETag": _etag(body), "Last_Modified": "Mon, 23 Nov 2026 12:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self._answer(200, body, **times)
            return
        begin = int(wanted[1]) if wanted[1] else max(0, len(body) - int(wanted[2]))
        end = min(int(wanted[2]) + 1, len(body)) if wanted[1] and wanted[2] else len(body)
        self._answer(206, body[begin:end], Content_Range=f"bytes {begin}-{end - 1}/{len(body)}", **times)

    def do_POST(self) -> None:
        keys = _KEY.findall(self._body())
        if self._refused():
            return
        with self.server.lock:
            for key in keys:
                self.server.objects.pop(key.decode(), None)
        gone = b"".join(b"<Deleted><Key>" + key + b"</Key></Deleted>" for key in keys)
        self._answer(200, b"<DeleteResult>" + gone + b"</DeleteResult>")

    def do_DELETE(self) -> None:
        if self._refused():
            return
        with self.server.lock:
            self.server.objects.pop(self._key(), None)
        self._answer(204)

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        files, folders = "", dict.fromkeys(())
        for key, body in sorted(self.server.objects.items()):
            if not key.startswith(prefix):
                continue
            rest = key.removeprefix(prefix)
            if delimiter and delimiter in rest:
                folders[prefix + rest.partition(delimiter)[0] + delimiter] = None
                continue
            files += (
                f"<Contents><Key>{key}</Key><LastModified>2026-11-23T12:00:00.000Z</LastModified>"
                f"<ETag>{_etag(body)}</ETag><Size>{len(body)}</Size></Contents>"
            )
        common = "".join(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders)
        count = files.count("<Key>") + len(folders)
        text = f"<IsTruncated>false</IsTruncated><KeyCount>{count}</KeyCount>{files}{common}"
        return f'<?xml version="1.0"?><ListBucketResult>{text}</ListBucketResult>'.encode()

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        sealed = _CHUNK.fullmatch(body)
        return sealed[1] if sealed else body

    def log_message(self, *_said: object) -> None:
        """Say nothing."""


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


@contextlib.contextmanager
def known_store(*, atomic: bool = True) -> Iterator[SmallStore]:
    """One that runs, and that this process knows as `s3://lake`, and as `s3://nobucket`, which is not there."""
    with SmallStore(atomic=atomic).running() as running:
        options = [
            StoreOptions(
                root=root,
                endpoint=running.endpoint,
                allow_http=True,
                region="us-east-1",
                access_key_id="a",
                secret_access_key="b",
            )
            for root in ("s3://lake", "s3://nobucket")
        ]
        object_stores.set_store_source(object_stores.GivenStores(options))
        yield running
        object_stores.set_store_source(object_stores.GivenStores())
