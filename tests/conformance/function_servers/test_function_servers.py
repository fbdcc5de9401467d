"""Each language's example server, by `pyarrow.flight`: docs of the protocol are in `docs/remote_functions.md`."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import flight

from tests.certificates import Authority
from tests.conformance.function_servers.calls import INT64, PROTOCOL, Exchange, batch, described
from tests.conformance.function_servers.conftest import TOKEN, Called
from tests.conformance.function_servers.servers import LANGUAGES, Language, started

#: What pyarrow raises for these statuses of gRPC.
NOT_FOUND, INVALID_ARGUMENT, FAILED_PRECONDITION = pa.ArrowKeyError, pa.ArrowInvalid, pa.ArrowInvalid
NOT_IMPLEMENTED = pa.ArrowNotImplementedError

VECTOR = pa.list_(pa.float32(), 2)
DESCRIPTION = pa.struct([("n", pa.int64()), ("text", pa.string())])
LONG_MILLISECONDS = 60_000
MEBIBYTE_OF_INT64 = pa.record_batch([pa.array(range(131_072), pa.int64())], names=["n"])
WRITTEN_MEBIBYTES = 192
#: So many have 257 MiB, and some kilobytes compressed.
ZEROS = 257 << 17
ELSEWHERE = [language for language in LANGUAGES if language.missing()]


def bearer(token: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def refused(call: Callable[[], object], status: type[BaseException]) -> str:
    """The message that a call is refused with; pyarrow has an exception for most statuses of gRPC."""
    with pytest.raises(status) as told:
        call()
    return str(told.value)


def test_it_says_which_functions_it_has(server: Called):
    assert [action.type for action in server.client.list_actions()] == [f"{PROTOCOL}.describe"]
    outputs = {"upper": pa.string(), "vector": VECTOR, "described": DESCRIPTION}
    assert set(server.functions) == {"double", "fail_on", "slow", "die", *outputs}
    for name, function in server.functions.items():
        of = pa.string() if name == "upper" else pa.int64()
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", function.version)
        assert [(field.type, field.nullable) for field in function.inputs] == [(of, True)]
        assert [(field.name, field.type) for field in function.output] == [("value", outputs.get(name, of))]


def test_there_is_no_other_action(server: Called):
    refused(lambda: list(server.client.do_action(f"{PROTOCOL}.other")), NOT_IMPLEMENTED)


def test_the_schema_of_answers_comes_first_and_says_whose_they_are(server: Called):
    stream = server.ask("double")

    told = stream.reader.schema

    assert [(field.name, field.type) for field in told] == [("value", pa.int64())]
    version = server.functions["double"].version
    assert told.metadata[b"leman.function"] == b"double"
    assert told.metadata[b"leman.version"] == version.encode()
    assert stream.end() == []


def test_each_batch_has_its_answer_in_order(server: Called):
    stream = server.ask("double").send(batch(1, None, -3), batch(), batch(None), batch(2**61))

    assert [answer.to_pylist() for answer in stream.end()] == [[2, None, -6], [], [None], [2**62]]


def opposite(x: int | None) -> list[float] | None:
    return None if x is None else [x, -x]


def description(x: int | None) -> dict[str, object] | None:
    return None if x is None else {"n": x, "text": None if x % 2 else str(x)}


@pytest.mark.parametrize(("function", "value"), [("vector", opposite), ("described", description)])
def test_vectors_and_structs_are_null_wherever_they_are_asked_to_be(server: Called, function, value):
    rows = [[None, 1, None], [None], [None] * 9, [2, None], [*range(20), None, None], []]
    answers = server.ask(function).send(*(batch(*each) for each in rows)).end()
    for answer in answers:
        assert isinstance(answer, pa.Array), answer
        answer.validate(full=True)
    assert [answer.to_pylist() for answer in answers] == [[value(x) for x in each] for each in rows]


def test_text_is_any_unicode(server: Called):
    stream = server.ask("upper").send(batch("é", None, "", "日本 x", "a\u0000b", "𝒳🎉z", of=pa.string()))

    assert stream.values() == ["É", None, "", "日本 X", "A\u0000B", "𝒳🎉Z"]
    assert stream.end() == []


def test_sliced_batches_are_their_rows_only(server: Called):
    stream = server.ask("upper").send(batch("a", "b", None, "d", "e", of=pa.string()).slice(1, 3))
    assert stream.values() == ["B", None, "D"]
    assert stream.end() == []


@pytest.mark.parametrize(
    ("function", "version", "schema", "status", "names"),
    [
        ("halve", None, INT64, NOT_FOUND, ("halve", "double", "upper")),
        ("double", "an-older.one", INT64, FAILED_PRECONDITION, ("an-older.one",)),
        ("double", None, pa.schema([("n", pa.int32())]), INVALID_ARGUMENT, ("double",)),
        ("double", None, pa.schema([("n", pa.string())]), INVALID_ARGUMENT, ("double",)),
        ("double", None, pa.schema([("n", pa.int64()), ("m", pa.int64())]), INVALID_ARGUMENT, ("double",)),
        ("double", None, pa.schema([]), INVALID_ARGUMENT, ("double",)),
    ],
    ids=["function", "version", "narrower", "type", "too-many", "none"],
)
def test_what_it_cannot_do_is_refused_before_any_answer(
    language, server: Called, function, version, schema, status, names
):
    there = server.functions["double"].version

    message = refused(lambda: Exchange(server.client, function, version or there, schema).receive(), status)

    assert all(name in message for name in names)
    if version is not None:
        assert there in message
        assert ("precondition failed" in message) is (language.name != "python"), "pyarrow's server has no such status"


def test_another_protocol_is_refused(server: Called):
    version = server.functions["double"].version
    other = f"{PROTOCOL}0"
    refused(lambda: Exchange(server.client, "double", version, protocol=other).receive(), INVALID_ARGUMENT)


def test_names_of_columns_are_the_callers(server: Called):
    named = pa.schema([("día 日本", pa.int64())])
    stream = Exchange(server.client, "double", server.functions["double"].version, named)
    assert stream.send(batch(4)).values() == [8]
    assert stream.end() == []


def test_a_batch_that_fails_is_answered_and_the_stream_goes_on(server: Called):
    stream = server.ask("fail_on").send(batch(1, 2), batch(5, -7), batch(-1), batch(3))

    first, second, third, last = stream.end()

    assert (first.to_pylist(), last.to_pylist()) == ([1, 2], [3])
    assert second["type"] == third["type"] == "ValueError"
    assert "-7" in second["message"]
    assert isinstance(second["traceback"], str)


def test_a_hundred_thousand_rows(server: Called):
    stream = server.ask("double")
    rows = pa.table({"n": pa.array(range(100_000), pa.int64())})

    for sent in rows.to_batches(max_chunksize=8_192):
        answer = stream.send(sent).receive()
        assert answer.equals(pc.multiply(sent.column(0), 2))

    assert stream.end() == []


def test_a_batch_of_32_mebibytes(server: Called):
    wide = pa.array(["é" * 1023] * (16 << 10), pa.string())
    stream = server.ask("upper").send(pa.record_batch([wide], names=["text"]))

    (answer,) = stream.end()

    assert wide.nbytes > 32 << 20
    assert answer.equals(pa.array(["É" * 1023] * (16 << 10), pa.string()))


def test_kilobytes_that_become_too_much_are_refused_and_the_server_serves_on(server: Called, language: Language):
    if language.name == "python":
        pytest.skip("pyarrow decompresses a message before it gives a batch: docs/remote_functions.md says so")
    zeros = pa.record_batch([pa.array(np.zeros(ZEROS, np.int64))], names=["n"])
    stream = Exchange(server.client, "double", server.functions["double"].version, compression="zstd")
    with pytest.raises(pa.ArrowException):
        stream.send(zeros).receive()
    assert server.ask("double").send(batch(4)).values() == [8]


def test_streams_do_not_wait_for_each_other(server: Called):
    busy = [server.ask("slow").send(batch(LONG_MILLISECONDS)) for _ in range(7)]

    assert server.ask("double").send(batch(21)).values() == [42]

    for stream in busy:
        stream.cancel()


def test_eight_streams_of_one_client(server: Called):
    streams = [server.ask("double") for _ in range(8)]
    for turn in range(20):
        for number, stream in enumerate(streams):
            stream.send(batch(turn, number))

    for number, stream in reversed(list(enumerate(streams))):
        assert [answer.to_pylist() for answer in stream.end()] == [[2 * turn, 2 * number] for turn in range(20)]


def test_who_does_not_read_cannot_write_on(server: Called):
    stream = server.ask("double")
    written, wrote = 0, threading.Condition()

    def write() -> None:
        nonlocal written
        for _ in range(WRITTEN_MEBIBYTES):
            stream.send(MEBIBYTE_OF_INT64)
            with wrote:
                written += 1
                wrote.notify()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with wrote:
        while wrote.wait(timeout=1):  # until a second passes without another batch that was taken
            pass
        stuck_at = written
    for _ in range(WRITTEN_MEBIBYTES):
        answer = stream.receive()
        assert answer[-1].as_py() == 2 * 131_071
    writer.join()

    assert stuck_at < WRITTEN_MEBIBYTES
    assert stream.end() == []


def test_who_goes_away_is_forgotten(server: Called):
    stream = server.ask("slow").send(batch(LONG_MILLISECONDS))
    assert stream.reader.schema.names == ["value"]

    stream.cancel()

    refused(stream.receive, flight.FlightCancelledError)
    assert server.ask("slow").send(batch(1)).values() == [1]


@pytest.mark.parametrize("options", [None, bearer(""), bearer(TOKEN + "0"), bearer(TOKEN[:-1])])
def test_without_its_token_nothing_is_done(secured, options):
    client = secured.client()
    refused(lambda: described(client, options), flight.FlightUnauthenticatedError)
    refused(lambda: list(client.list_actions(options)), flight.FlightUnauthenticatedError)
    refused(lambda: Exchange(client, "double", "1", options=options).receive(), flight.FlightUnauthenticatedError)


def test_with_its_token_over_tls_it_is_the_same(secured, server: Called):
    client = secured.client()

    functions = described(client, bearer(TOKEN))

    assert functions == server.functions, "the same program is the same version, and has the same functions"
    stream = Exchange(client, "double", functions["double"].version, options=bearer(TOKEN))
    assert stream.send(batch(2)).values() == [4]
    assert stream.end() == []


def test_over_tls_nobody_is_served_without(secured):
    for location in (f"grpc://127.0.0.1:{secured.port}", f"grpc+tls://localhost:{secured.port}"):
        refused(lambda location=location: described(flight.connect(location)), flight.FlightUnavailableError)


def shown_at(port: int, ca: str) -> int:
    """The serial number of the certificate that a server shows in a new handshake."""
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        return int(str((connection.getpeercert() or {})["serialNumber"]), 16)


def test_a_renewed_certificate_is_shown_without_a_restart(language, command, tmp_path):
    """Streams that were there go on."""
    authority = Authority(tmp_path)
    files, trusted = authority.server(), Path(authority.ca).read_bytes()
    with started(language, command, "--cert", files.cert, "--key", files.key) as running:
        clients = [flight.connect(f"grpc+tls://localhost:{running.port}", tls_root_certs=trusted) for _ in range(2)]
        version = described(clients[0])["double"].version
        stream = Exchange(clients[0], "double", version)
        assert stream.send(batch(1)).values() == [2]
        before = shown_at(running.port, authority.ca)

        authority.server()  # in the place of the one before

        pause, deadline = threading.Event(), time.monotonic() + 30
        while _shown_meanwhile(running.port, authority.ca) in (before, None):
            assert time.monotonic() < deadline, "it shows the old certificate"
            pause.wait(0.05)
        assert Exchange(clients[1], "double", version).send(batch(2)).values() == [4]
        assert stream.send(batch(3)).values() == [6]
        assert stream.end() == []


def _shown_meanwhile(port: int, ca: str) -> int | None:
    """What it shows; None: it takes no connection, or ends it, as one that restarts in its own place."""
    try:
        return shown_at(port, ca)
    except (ConnectionError, ssl.SSLEOFError):
        return None


def test_a_server_that_dies_ends_its_streams(own_server: Called):
    other, deadly = own_server.ask("double"), own_server.ask("die")
    assert other.send(batch(1)).values() == [2]
    assert deadly.send(batch(665)).values() == [665]

    deadly.send(batch(666))

    refused(deadly.receive, flight.FlightUnavailableError)
    refused(other.receive, flight.FlightUnavailableError)
    assert own_server.server.process.wait(timeout=30) != 0


if ELSEWHERE:

    @pytest.mark.parametrize("other", ELSEWHERE, ids=lambda language: language.name)
    def test_a_toolchain_that_is_missing_is_told(other):
        pytest.skip(f"{other.name}: no {', '.join(other.missing())} on this machine")
