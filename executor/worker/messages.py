"""What a worker sends to its executor: JSON behind a length of four bytes. The answer is a WorkUnit, or null."""

from __future__ import annotations

import msgspec

from core.domain.work import InFlightRows, ProgressReport, UnitOutcome

LENGTH_BYTES = 4


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First words. `worker`: what to call it."""

    job_id: str
    secret: str
    worker: str = ""


class WorkerTask(msgspec.Struct, frozen=True):
    """What the Spark task of a worker is told. `context`: a `WorkContext` as JSON, decoded by whoever needs it.
    `function`: names the version of the function, and no other; what runs it may run nothing else."""

    host: str
    port: int
    hello: Hello
    context: bytes
    function: str = ""


class Running(msgspec.Struct, frozen=True, tag="running"):
    """How far the unit at hand is."""

    report: ProgressReport


class Signed(msgspec.Struct, frozen=True, tag="signed"):
    """What it is about to do, or has made safe."""

    in_flight: InFlightRows


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """It is at work, even where it has nothing to say."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What became of it."""

    outcome: UnitOutcome


WorkerMessage = Hello | Running | Signed | Alive | Done


def framed(message: object) -> bytes:
    """A message as it travels."""
    data = msgspec.json.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
