"""`python -m tests.cluster.publish LISTEN=TARGET …`: pass TCP connections on, as a container engine does with the ports
that it publishes.

LISTEN is `HOST:PORT`, or `fd:N` for a socket that is inherited and listens already; TARGET is `HOST:PORT`, or several
with commas between them: each connection goes to one that takes it, in turn, as with a Service of Kubernetes. With
`--tls CERT KEY` the side that listens speaks TLS. It prints a line when it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import socket
import ssl
import sys

_BLOCK = 1 << 16
#: Until another one is asked: a host whose link is cut says nothing.
_CONNECT_SECONDS = 2.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the reader's side ends."""
    with contextlib.suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()


class _Targets:
    """Where connections go."""

    def __init__(self, targets: str) -> None:
        self._targets = targets.split(",")
        self._turns = itertools.count()
        self._connections: set[asyncio.Task[None]] = set()

    async def connect(self) -> Streams | None:
        """Return a connection to one that takes it; None where there is none."""
        first = next(self._turns)
        for number in range(len(self._targets)):
            host, port = self._targets[(first + number) % len(self._targets)].rsplit(":", 1)
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(host, int(port))
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until one side has ended it."""
        this = asyncio.current_task()
        assert this is not None
        self._connections.add(this)  # the loop itself holds tasks weakly
        try:
            if connected := await self.connect():
                to_reader, to_writer = connected
                ways = [asyncio.create_task(way) for way in (_pass(reader, to_writer), _pass(to_reader, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                to_writer.close()
                for way in ways:
                    way.cancel()
        finally:
            writer.close()
            self._connections.discard(this)


async def _listen(listen: str, targets: str, context: ssl.SSLContext | None) -> asyncio.Server:
    host, number = listen.rsplit(":", 1)
    serve = _Targets(targets).serve
    if host == "fd":
        return await asyncio.start_server(serve, sock=socket.socket(fileno=int(number)), ssl=context)
    return await asyncio.start_server(serve, host, int(number), ssl=context)


async def _run(pairs: list[str], tls: list[str] | None) -> None:
    context = None
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*tls)
    servers = [await _listen(*pair.split("="), context) for pair in pairs]
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    """Pass on until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.publish")
    parser.add_argument("pairs", nargs="+", metavar="LISTEN=TARGET")
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    given = parser.parse_args()
    asyncio.run(_run(given.pairs, given.tls))


if __name__ == "__main__":
    main()
