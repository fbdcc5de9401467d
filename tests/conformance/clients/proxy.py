"""A proxy in front of the services that passes bytes on as they are, and does harm on request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from leman.v1 import info_pb2

T = TypeVar("T")
HOST = "127.0.0.1"
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.enable_retries", 0),
]
_DETAILS = "grpc-status-details-bin"
_LOST_BY_GRPC = "Internal error from Core"  # says gRPC's Python client, where a connection broke while it was sending
_GET_INFO = "/leman.v1.InfoService/GetInfo"
_HOP_BY_HOP = ("grpc-", "user-agent", "te", "content-type", ":")


@dataclass
class Fault:
    """What is done to the next `times` calls of a method.

    `fail`: answered with an error, without reaching the service. `lose`: the service does its work, and its answer is
    lost. `cut`: ended after so many messages of the answer. `delay`: passed on after so many seconds. `kill`: as `cut`,
    but by killing the service.
    """

    method: str
    kind: str
    times: int = 1
    after: int = 0
    seconds: float = 0.0
    code: str = "UNAVAILABLE"
    reason: str = ""
    retry_delay: float = 0.0
    service: str = ""

    def status(self) -> status_pb2.Status:
        """What a failed call ends with."""
        number = grpc.StatusCode[self.code].value[0]
        status = status_pb2.Status(code=number, message="the proxy says no")
        details: list[Any] = []
        if self.reason:
            details.append(error_details_pb2.ErrorInfo(reason=self.reason, domain="leman"))
        if self.retry_delay:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(round(self.retry_delay * 1000))
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        return status


@dataclass
class Call:
    """A call that came to the proxy. `code`: how it ended; empty: it has not."""

    method: str
    code: str = ""
    token: str = ""


@dataclass
class Book:
    """What the proxy is to do, and what it saw. Used by its loop alone, or while no call is made."""

    faults: list[Fault] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def take(self, method: str) -> Fault | None:
        """The fault for a call of the method."""
        for fault in self.faults:
            if fault.method == method and fault.times > 0:
                fault.times -= 1
                return fault
        return None


class Proxy:
    """Listens on a port for each service, on a loop of its own; addresses that services give are replaced by these
    ports.

    `addresses`: of the services, by name. `kill`: kills a service by its name.
    """

    def __init__(self, addresses: dict[str, str], kill: Callable[[str], None]) -> None:
        self.book = Book()
        self.closed = False
        self._kill = kill
        self._upstream: dict[str, grpc.aio.Channel] = {}
        self._servers: dict[str, grpc.aio.Server] = {}
        self._ports: dict[str, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        for name, address in addresses.items():
            self._do(self._lead(name, address))

    def address(self, name: str) -> str:
        """Where the proxy stands for a service."""
        return f"{HOST}:{self._ports[name]}"

    def go_away(self, name: str, seconds: float) -> None:
        """No one listens at the address of a service for this time; connections that there are break."""

        async def away() -> None:
            await self._servers.pop(name).stop(None)
            self._loop.call_later(seconds, lambda: self._loop.create_task(self._listen(name)))

        self._do(away())

    def wait_for_services(self) -> None:
        """Wait until all services can be reached from here; for half a minute at most."""

        async def wait() -> None:
            await asyncio.gather(*(channel.channel_ready() for channel in self._upstream.values()))

        self._do(wait())

    def close(self) -> None:
        """Stop listening."""
        self.closed = True

        async def end() -> None:
            await asyncio.gather(*(server.stop(None) for server in self._servers.values()))
            await asyncio.gather(*(channel.close() for channel in self._upstream.values()))

        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _lead(self, name: str, address: str) -> None:
        self._upstream[name] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        await self._listen(name)

    async def _listen(self, name: str) -> None:
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers([_Handler(self, name)])
        self._ports[name] = server.add_insecure_port(f"{HOST}:{self._ports.get(name, 0)}")
        await server.start()
        self._servers[name] = server

    async def pass_on(
        self, service: str, path: str, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """Make a call of the service, as its caller made it of the proxy."""
        method = path.removeprefix("/leman.v1.")
        metadata = [(key, value) for key, value in context.invocation_metadata() or () if _is_callers(key)]
        told = dict(metadata).get("authorization", "")
        call = Call(method, token=str(told).removeprefix("Bearer "))
        self.book.calls.append(call)
        fault = self.book.take(method)
        try:
            if fault is not None and fault.kind == "fail":
                await _end_with(context, fault.status(), call)
            if fault is not None and fault.kind == "delay":
                await asyncio.sleep(fault.seconds)
            async for message in self._forward(service, path, requests, metadata, context, fault, call):
                yield message
        finally:
            call.code = call.code or "CANCELLED"

    async def _forward(
        self,
        service: str,
        path: str,
        requests: AsyncIterator[bytes],
        metadata: list[tuple[str, Any]],
        context: Any,
        fault: Fault | None,
        call: Call,
    ) -> AsyncIterator[bytes]:
        made = self._upstream[service].stream_stream(path)(
            requests, timeout=context.time_remaining(), metadata=metadata, wait_for_ready=False
        )
        passed, harm = 0, fault.kind if fault is not None else ""
        try:
            async for message in made:
                if harm == "lose":
                    continue
                yield self._own_addresses(message) if path == _GET_INFO else message
                passed += 1
                if fault is not None and harm in ("cut", "kill") and passed == fault.after:
                    if harm == "kill":
                        self._kill(fault.service)
                    await _end_with(context, fault.status(), call)
            if fault is not None and harm == "lose":
                await _end_with(context, fault.status(), call)
            code, details, trailers = await made.code(), await made.details(), await made.trailing_metadata()
        except grpc.aio.AioRpcError as error:
            code, details, trailers = error.code(), error.details(), error.trailing_metadata()
        finally:
            made.cancel()
        if details == _LOST_BY_GRPC:
            code = grpc.StatusCode.UNAVAILABLE
        call.code = code.name
        context.set_trailing_metadata(tuple((k, v) for k, v in trailers or () if _is_callers(k) or k == _DETAILS))
        context.set_code(code)
        context.set_details(details or "")

    def _own_addresses(self, message: bytes) -> bytes:
        info = info_pb2.GetInfoResponse.FromString(message)
        for name in self._upstream:
            setattr(info, f"{name}_address", self.address(name))
        return info.SerializeToString()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, proxy: Proxy, service: str) -> None:
        self._proxy = proxy
        self._service = service

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method

        async def handle(requests: Any, context: Any) -> AsyncIterator[bytes]:
            async for message in self._proxy.pass_on(self._service, path, requests, context):
                yield message

        return grpc.stream_stream_rpc_method_handler(handle)


def _is_callers(key: str) -> bool:
    return not key.startswith(_HOP_BY_HOP)


async def _end_with(context: Any, status: status_pb2.Status, call: Call) -> None:
    """End a call with an error; does not return."""
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    call.code = code.name
    trailers = ((_DETAILS, status.SerializeToString()),) if status.details else ()
    await context.abort(code, status.message, trailers)
