"""A server with nothing but grpc.aio, which gives the same answers."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection

import grpc
import uvloop

from benchmarks.load.generator import Target


def with_answers(targets: Mapping[str, Target]) -> dict[str, bytes]:
    """Return what each of the named targets answers to its first request: the answer, or an empty one for an error."""
    answers: dict[str, bytes] = {}
    for name, target in targets.items():
        with grpc.insecure_channel(target.address) as channel:
            try:
                answers[name] = channel.unary_unary(target.method)(target.requests[0], metadata=target.metadata)
            except grpc.RpcError:
                answers[name] = b""
    return answers


@contextlib.contextmanager
def bare_server(answers: Mapping[str, bytes]) -> Iterator[str]:
    """A process that answers `/bare/N`, the number of the answer; its address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, list(answers.values())), daemon=True)
    process.start()
    try:
        yield f"127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def on_bare(target: Target, address: str, number: int) -> Target:
    """Return the target that asks the bare server for the same answer."""
    return replace(target, address=address, method=f"/bare/{number}", answers=("OK",))


def _serve(ready: Connection, answers: list[bytes]) -> None:
    uvloop.run(_answer(ready, answers))


async def _answer(ready: Connection, answers: list[bytes]) -> None:
    def behaviour(answer: bytes) -> object:
        async def give(_request: bytes, _context: object) -> bytes:
            return answer

        return give

    server = grpc.aio.server()
    handlers = {str(n): grpc.unary_unary_rpc_method_handler(behaviour(answer)) for n, answer in enumerate(answers)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    ready.send(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()
