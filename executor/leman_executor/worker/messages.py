"""What a worker sends to its executor: JSON behind a length of four bytes; the answer is a WorkUnit, or null.

The answer to the first message is a `WorkContext`: secrets of the job travel on this link, and never with Spark.
Null that comes while a unit is at work says that this one is to be given back as far as it is. A WorkUnit without work
says how object stores are reached from now on, and comes at any time.
"""

from __future__ import annotations

import msgspec

from leman_core.model.work import InFlightRows, ProgressReport, UnitOutcome

LENGTH_BYTES = 4


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message of a worker."""

    job_id: str
    secret: str
    #: The name of the worker, for people.
    worker: str = ""


class WorkerTask(msgspec.Struct, frozen=True):
    """What the Spark task of a worker is told: how it reaches its executor, and no other secret."""

    host: str
    port: int
    hello: Hello
    #: The only one that the executor may show, in PEM; empty: the link is in the clear.
    certificate: str = ""
    #: Names one version of a function in one environment; a process that runs it may run no other.
    function: str = ""


class Running(msgspec.Struct, frozen=True, tag="running"):
    """How far the unit at hand is."""

    report: ProgressReport


class InFlight(msgspec.Struct, frozen=True, tag="in_flight"):
    """Rows that the worker is about to compute, or has stored."""

    in_flight: InFlightRows


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """The worker is at work, even where it has nothing else to report."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What became of the unit."""

    outcome: UnitOutcome


WorkerMessage = Hello | Running | InFlight | Alive | Done


def framed(message: object) -> bytes:
    """Return a message as it is sent: its length, then its JSON."""
    data = msgspec.json.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
