"""A channel over TLS that shows and believes what its files have when a call begins."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc

from leman_core.server.tls import Pem, TlsFiles

#: Calls that run when files are renewed have so long to end by themselves; then the next renewal ends them.
_GRACE_SECONDS = 3600.0


class RenewedChannel(grpc.aio.Channel):
    """A channel that is opened anew once its files were renewed; calls that run stay on the one that they have.

    Args:
        files: What it shows and believes.
        opened: Opens a channel with the contents of files.
    """

    def __init__(self, files: TlsFiles, opened: Callable[[Pem], grpc.aio.Channel]) -> None:
        self._files = files
        self._opened = opened
        self._shown = files.current()
        self._channel = opened(self._shown)
        #: Those of before, and since when nobody begins a call on them.
        self._left: deque[tuple[float, grpc.aio.Channel]] = deque()
        self._closing: set[asyncio.Task[None]] = set()

    def _current(self) -> grpc.aio.Channel:
        shown = self._files.current()
        if shown is not self._shown:
            self._left.append((time.monotonic(), self._channel))
            self._shown, self._channel = shown, self._opened(shown)
            self._close_old()
        return self._channel

    def _close_old(self) -> None:
        while time.monotonic() - self._left[0][0] > _GRACE_SECONDS:
            closing = asyncio.get_running_loop().create_task(self._left.popleft()[1].close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _method(self, kind: str, method: tuple[Any, ...], more: dict[str, Any]) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(self._current(), kind)(*method, **more)(*arguments, **options)

        return call

    def unary_unary(self, *method: Any, **more: Any) -> Any:
        return self._method("unary_unary", method, more)

    def unary_stream(self, *method: Any, **more: Any) -> Any:
        return self._method("unary_stream", method, more)

    def stream_unary(self, *method: Any, **more: Any) -> Any:
        return self._method("stream_unary", method, more)

    def stream_stream(self, *method: Any, **more: Any) -> Any:
        return self._method("stream_stream", method, more)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 gRPC's own
        return self._current().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._current().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._current().channel_ready()

    async def close(self, grace: float | None = None) -> None:
        channels = [channel for _, channel in self._left]
        await asyncio.gather(*self._closing, *(channel.close(grace) for channel in (*channels, self._channel)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
