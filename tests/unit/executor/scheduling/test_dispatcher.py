"""Workers connect with what `open` returned, until that is closed."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
from typing import Any

import pytest

from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfKind
from leman_core.model.databases import StoreOptions
from leman_core.model.work import FragmentWork, FunctionSpec, UnitOutcome, WorkContext, WorkUnit
from leman_core.storage import object_stores
from leman_executor.scheduling.dispatcher import Dispatcher, ExecutorEndpoint
from leman_executor.worker.worker_link import Alive, Done, Hello, WorkerTask, connect_to_executor
from leman_executor.worker.worker_loop import ExecutorConnection, run_worker
from tests.unit.executor.manager_helpers import TASK

_UDF = FunctionSpec(
    name="f",
    version="1",
    kind=UdfKind.SCALAR,
    input_columns=("x",),
    bundle_uri="",
    bundle_sha256="",
    bundle_python="",
    entrypoint="m:f",
    stateful=False,
    batch_size=0,
    error_policy=ErrorPolicy(),
)
CONTEXT = WorkContext(
    job_id="job",
    uri="s3://lake/t.lance",
    read_version=1,
    output_schema=b"",
    output_field_ids=(1,),
    column_id="c",
    input_columns=("x",),
    udf=_UDF,
    where="",
    checkpoint=CheckpointBounds(),
    checkpoint_seconds=1.0,
    checkpoint_max_bytes=1,
    redis_url="redis://:sesame-redis@127.0.0.1:1",
    env={"API_KEY": "sesame-env"},
    stores=(StoreOptions(root="s3://lake", token="sesame-store"),),
)


class Units:
    """A source that is asked needlessly."""


def test_who_opened_earlier_does_not_close_what_was_opened_after():
    """A job that was given up closes late: the attempt that has it by then keeps its workers."""

    async def scenario() -> None:
        dispatcher = Dispatcher("127.0.0.1")
        await dispatcher.start()
        first_units, second_units = Units(), Units()
        first = dispatcher.open("job", first_units, CONTEXT)  # type: ignore[arg-type]
        second = dispatcher.open("job", second_units, CONTEXT)  # type: ignore[arg-type]
        worker = asyncio.ensure_future(asyncio.Event().wait())
        workers: dict[str, set[Any]] = dispatcher._workers
        workers[second.secret] = {worker}
        await dispatcher.close(first)
        opened = dispatcher._opened(Hello("job", second.secret))
        assert opened is not None
        assert opened.unit_source is second_units
        assert dispatcher._opened(Hello("job", first.secret)) is None
        assert not worker.cancelled()
        worker.cancel()
        await dispatcher.close(second)
        assert dispatcher._opened(Hello("job", second.secret)) is None
        await dispatcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 10))


class OneUnit(Units):
    """A source with one unit, and with options of stores that are renewed while a worker has it."""

    def __init__(self) -> None:
        self.stores: tuple[StoreOptions, ...] = ()
        self.units = [WorkUnit("u", (FragmentWork(TASK, (), finish=True),))]
        self.outcomes: list[UnitOutcome] = []

    async def next_unit(self, _worker: str, *, heartbeats: bool) -> WorkUnit | None:
        assert heartbeats
        return self.units.pop() if self.units else None

    def on_alive(self, _unit: WorkUnit) -> None:
        self.stores = (StoreOptions(root="gs://lake", token="renewed"),)

    def renewed_stores(self) -> tuple[StoreOptions, ...]:
        return self.stores

    def on_outcome(self, outcome: UnitOutcome) -> None:
        self.outcomes.append(outcome)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_worker_hears_of_renewed_credentials_amid_its_unit(encrypted):
    """What a long call gives is stored with the new ones."""
    before = object_stores._source

    def work(endpoint: ExecutorEndpoint) -> tuple[list[str], list[bool]]:
        tokens, stops = [], []
        with connect_to_executor(endpoint.host, endpoint.port, endpoint.certificate) as link:
            connection = ExecutorConnection(link)
            connection.say(Hello("job", endpoint.secret))
            assert connection.context() == CONTEXT
            unit = connection.next_unit()
            assert unit is not None
            for _ in range(2):  # it is reported once
                connection.say(Alive())
                while object_stores.options_of("gs://lake/t.lance") is None:
                    connection.take_in()
                stops.append(connection.asked_to_stop())
                options = object_stores.options_of("gs://lake/t.lance")
                tokens.append(options.token if options else "")
            connection.say(Done(UnitOutcome("u", ())))
            assert connection.next_unit() is None
        return tokens, stops

    async def scenario() -> None:
        dispatcher, source = Dispatcher("127.0.0.1", encrypted=encrypted), OneUnit()
        await dispatcher.start()
        endpoint = dispatcher.open("job", source, CONTEXT)  # type: ignore[arg-type]
        tokens, stops = await asyncio.to_thread(work, endpoint)
        assert (tokens, stops) == (["renewed"] * 2, [False] * 2)
        assert [outcome.unit_id for outcome in source.outcomes] == ["u"]
        await dispatcher.close(endpoint)
        await dispatcher.stop()

    object_stores.set_store_source(object_stores.GivenStores())
    try:
        asyncio.run(asyncio.wait_for(scenario(), 20))
    finally:
        object_stores.set_store_source(before)


async def _on_the_wire(*, encrypted: bool) -> tuple[bytes, str]:
    """Return all bytes between a worker and its executor, seen from the way between them, and the link's secret."""
    seen = bytearray()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            seen.extend(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(endpoint.host, endpoint.port)
        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    def work(port: int) -> None:
        with connect_to_executor("127.0.0.1", port, endpoint.certificate) as link:
            connection = ExecutorConnection(link)
            connection.say(Hello("job", endpoint.secret))
            assert connection.context() == CONTEXT
            assert connection.next_unit() is not None
            connection.say(Done(UnitOutcome("u", ())))
            assert connection.next_unit() is None

    dispatcher = Dispatcher("127.0.0.1", encrypted=encrypted)
    await dispatcher.start()
    endpoint = dispatcher.open("job", OneUnit(), CONTEXT)  # type: ignore[arg-type]
    proxy = await asyncio.start_server(between, "127.0.0.1", 0)
    await asyncio.to_thread(work, proxy.sockets[0].getsockname()[1])
    await dispatcher.close(endpoint)
    proxy.close()
    await dispatcher.stop()
    return bytes(seen), endpoint.secret


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_no_secret_is_seen_on_the_way_to_a_cluster(encrypted):
    seen, secret = asyncio.run(asyncio.wait_for(_on_the_wire(encrypted=encrypted), 20))
    words = [b"sesame-redis", b"sesame-env", b"sesame-store", b"API_KEY", b"lake", secret.encode()]
    assert [word in seen for word in words] == [not encrypted] * len(words)


def test_a_worker_tells_nothing_to_an_executor_with_another_certificate():
    async def scenario() -> None:
        dispatcher, other = Dispatcher("127.0.0.1", encrypted=True), Dispatcher("127.0.0.1", encrypted=True)
        await dispatcher.start()
        await other.start()
        endpoint = dispatcher.open("job", OneUnit(), CONTEXT)  # type: ignore[arg-type]
        pinned = other.open("job", OneUnit(), CONTEXT)  # type: ignore[arg-type]
        task = WorkerTask(endpoint.host, endpoint.port, Hello("job", endpoint.secret), pinned.certificate)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(run_worker, task)
        in_clear = dataclasses.replace(endpoint, certificate="")
        with pytest.raises(OSError, match=r"closed|reset"):
            await asyncio.to_thread(run_worker, WorkerTask(in_clear.host, in_clear.port, Hello("job", in_clear.secret)))
        await dispatcher.stop()
        await other.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_worker_with_another_secret_is_sent_nothing(encrypted):
    async def scenario() -> None:
        dispatcher = Dispatcher("127.0.0.1", encrypted=encrypted)
        await dispatcher.start()
        endpoint = dispatcher.open("job", OneUnit(), CONTEXT)  # type: ignore[arg-type]
        task = WorkerTask(endpoint.host, endpoint.port, Hello("job", "guessed"), endpoint.certificate)
        with pytest.raises(OSError, match="closed the connection"):
            await asyncio.to_thread(run_worker, task)
        await dispatcher.stop()

    asyncio.run(asyncio.wait_for(scenario(), 20))
