"""Bundles in pieces: what is stored, what is refused, what is left of an upload that ends early."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
import time
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman.v1 import catalog_pb2, catalog_pb2_grpc
from leman_core.functions.function_definitions import PYTHON
from leman_core.server.server import start_server
from leman_core.server.status import error_from_rpc
from leman_core.settings import Server, Settings
from leman_core.settings.sections import Udf
from leman_core.wire import convert_udfs
from leman_planner import app
from tests.integration.planner.test_planner_service import error_of, functions_of

DEADLINE = 60.0
#: More than fits into a message.
LARGE = os.urandom(5 << 20)
PIECE = 700_000


@contextlib.asynccontextmanager
async def planner(message_mb=1, **udf):
    settings = Settings(server=Server(max_message_mb=message_mb), udf=Udf(**udf))
    async with asyncio.timeout(DEADLINE):
        up = await start_server(settings, "planner", app.create(settings, asyncio.Event()), asyncio.Event())
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
                yield catalog_pb2_grpc.CatalogServiceStub(channel)
        finally:
            await up.stop()


def header(database, data=LARGE, **fields):
    said = {"database": str(database), "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), **fields}
    return catalog_pb2.UploadBundleRequest(header=catalog_pb2.UploadBundleHeader(**said))


def pieces(data=LARGE):
    return [catalog_pb2.UploadBundleRequest(data=data[at : at + PIECE]) for at in range(0, len(data), PIECE)]


def registration(database, data=LARGE):
    udf = UdfDefinition(
        *("large", "1", UdfKind.SCALAR, ("x",), pa.int64(), (pa.int64(),)),
        bundle_sha256=hashlib.sha256(data).hexdigest(),
        bundle_python=PYTHON,
        bundle_size=len(data),
    )
    return catalog_pb2.RegisterUdfRequest(database=str(database), definition=convert_udfs.udf_to_proto(udf))


def stored(database):
    """All files of the registry, those without a name yet among them."""
    return {path.name for path in Path(database, "_leman", "udfs").glob("*")}


async def until_files(database, *, are_there):
    """Returns once files of unfinished uploads are there, or none is any more."""

    def look():
        pause, deadline = threading.Event(), time.monotonic() + DEADLINE
        while any(name.startswith(".tmp") for name in stored(database)) is not are_there:
            assert time.monotonic() < deadline
            pause.wait(0.01)

    await asyncio.to_thread(look)


async def never(*first):
    """A stream that does not end."""
    for message in first:
        yield message
    await asyncio.Event().wait()


def test_a_bundle_larger_than_a_message_is_stored_and_registered(tmp_path):
    async def work():
        async with planner() as stub:
            missing = await error_of(stub.RegisterUdf(registration(tmp_path)))
            first = await stub.UploadBundle(iter([header(tmp_path), *pieces()]))
            registered = await stub.RegisterUdf(registration(tmp_path))
            found = await stub.GetUdf(catalog_pb2.GetUdfRequest(database=str(tmp_path), udf={"name": "large"}))
            again = await stub.UploadBundle(never(header(tmp_path)))  # it hears at once that nothing is to be sent
            return missing[1].reason, first.created, registered.created, found.needs_bundle, again.created

    assert asyncio.run(work()) == ("UDF_BUNDLE_MISSING", True, True, False, False)
    (bundle,) = functions_of(tmp_path, "*.bundle")
    assert bundle.read_bytes() == LARGE
    assert len(stored(tmp_path)) == 2


def test_answers_before_all_is_sent_come_to_a_client_that_still_writes(tmp_path):
    """gRPC's Python client says "Internal error from Core" where the call ends while it writes."""

    async def work():
        outcomes = set()
        async with planner() as stub:
            await stub.UploadBundle(iter([header(tmp_path), *pieces()]))
            for _ in range(30):
                known = await stub.UploadBundle(iter([header(tmp_path), *pieces()]))
                _, refused = await error_of(stub.UploadBundle(iter([header("relative"), *pieces()])))
                outcomes.add((known.created, refused.reason))
        return outcomes

    assert asyncio.run(work()) == {(False, "BAD_DATABASE")}


def test_a_damaged_bundle_is_replaced(tmp_path):
    async def work():
        async with planner() as stub:
            await stub.UploadBundle(iter([header(tmp_path), *pieces()]))
            await stub.RegisterUdf(registration(tmp_path))
            (bundle,) = functions_of(tmp_path, "*.bundle")
            bundle.write_bytes(LARGE[:-1] + bytes([LARGE[-1] ^ 1]))
            request = catalog_pb2.GetUdfRequest(database=str(tmp_path), udf={"name": "large"})
            before = (await stub.GetUdf(request)).needs_bundle
            healed = (await stub.UploadBundle(iter([header(tmp_path), *pieces()]))).created
            return before, healed, (await stub.GetUdf(request)).needs_bundle

    assert asyncio.run(work()) == (True, True, False)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (lambda d: [], "MISSING_FIELD"),
        (lambda d: pieces(b"x"), "MISSING_FIELD"),
        (lambda d: [header("")], "MISSING_FIELD"),
        (lambda d: [header("relative")], "BAD_DATABASE"),
        (lambda d: [header(d, sha256="../../elsewhere")], "BAD_UDF"),
        (lambda d: [header(d, sha256="A" * 64)], "BAD_UDF"),
        (lambda d: [header(d, size_bytes=0)], "BAD_NUMBER"),
        (lambda d: [header(d, size_bytes=-1)], "BAD_NUMBER"),
        (lambda d: [header(d, size_bytes=(6 << 20) + 1)], "BUNDLE_TOO_LARGE"),
        (lambda d: [header(d), header(d)], "BAD_STREAM"),
        (lambda d: [header(d), *pieces()[:-1]], "UDF_DIGEST_MISMATCH"),
        (lambda d: [header(d), *pieces(), *pieces(b"x")], "UDF_DIGEST_MISMATCH"),
        (lambda d: [header(d), *pieces(LARGE[::-1])], "UDF_DIGEST_MISMATCH"),
    ],
)
def test_what_is_no_bundle_leaves_nothing(tmp_path, messages, reason):
    async def work():
        async with planner(max_bundle_mb=6) as stub:
            _, error = await error_of(stub.UploadBundle(iter(messages(tmp_path))))
            await until_files(tmp_path, are_there=False)
            return error.reason

    assert asyncio.run(work()) == reason
    assert stored(tmp_path) == set()
    assert [path.name for path in tmp_path.iterdir() if path.name != "_leman"] == []


def test_the_bound_holds_for_bundles_in_one_message_too(tmp_path):
    data = LARGE[: (1 << 20) + 1]
    request = registration(tmp_path, data)
    request.bundle = data

    async def work():
        async with planner(message_mb=8, max_bundle_mb=1) as stub:
            return await error_of(stub.RegisterUdf(request))

    code, error = asyncio.run(work())
    assert (code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BUNDLE_TOO_LARGE")
    assert stored(tmp_path) == set()


def test_an_upload_that_stalls_or_whose_caller_leaves_gives_its_place_back(tmp_path):
    async def work():
        async with planner(max_uploads=1, upload_idle_seconds=0.2) as stub:
            stalled = await error_of(stub.UploadBundle(never(header(tmp_path), *pieces()[:2])))
            await until_files(tmp_path, are_there=False)
            left = stub.UploadBundle(never(header(tmp_path), *pieces()[:2]))
            await until_files(tmp_path, are_there=True)
            second = await error_of(stub.UploadBundle(iter([header(tmp_path)])))
            left.cancel()
            await until_files(tmp_path, are_there=False)
            made = await stub.UploadBundle(iter([header(tmp_path), *pieces()]))
            return stalled, second, made.created

    stalled, second, made = asyncio.run(work())
    assert (stalled[0], stalled[1].reason) == (grpc.StatusCode.ABORTED, "UPLOAD_STALLED")
    assert (second[0], second[1].reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_UPLOADS")
    assert made
    assert len(stored(tmp_path)) == 1


def test_pickled_code_needs_the_right_and_the_setting(tmp_path):
    tokens = tmp_path / "tokens.toml"
    entries = {"writer": ["editor"], "coder": ["editor", "code"]}
    tokens.write_text("\n".join(f'[[token]]\nname = "{n}"\nroles = {r}\ntoken = "{n * 4}"' for n, r in entries.items()))
    database = tmp_path / "lake"

    async def work(allow):
        settings = Settings(server=Server(tokens_file=str(tokens)), udf=Udf(allow=allow))
        up = await start_server(settings, "planner", app.create(settings, asyncio.Event()), asyncio.Event())
        found = {}
        async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            stub = catalog_pb2_grpc.CatalogServiceStub(channel)
            for who in entries:
                metadata = (("authorization", f"Bearer {who * 4}"),)
                try:
                    await stub.UploadBundle(iter([header(database, b"x"), *pieces(b"x")]), metadata=metadata)
                    found[who] = "OK"
                except grpc.aio.AioRpcError as error:
                    found[who] = error_from_rpc(error).reason
        await up.stop()
        return found

    assert asyncio.run(work(("scalar", "sql"))) == {"writer": "ROLE_REQUIRED", "coder": "UDF_NOT_ALLOWED"}
    assert asyncio.run(work(("scalar", "pickled"))) == {"writer": "ROLE_REQUIRED", "coder": "OK"}
