"""Entry of a Spark task: bytes in, bytes out. Imports no gRPC and no Spark."""

from __future__ import annotations

import msgspec

from core.checkpoints.lance_store import LanceCheckpointStore, checkpoint_root
from core.coordination import GrantAll, RedisEventSink, RedisReservations, SilentSink
from core.domain.work import UnitOutcome, WorkContext, WorkUnit
from core.ports import EventSink, Reservations
from executor.unit import UnitRunner

_sharing: dict[tuple[str, str], tuple[Reservations, EventSink]] = {}


def run_unit(context_json: bytes, unit_json: bytes, attempt: int) -> bytes:
    """Runs one unit; what comes back is a UnitOutcome as JSON."""
    context = msgspec.json.decode(context_json, type=WorkContext)
    unit = msgspec.json.decode(unit_json, type=WorkUnit)
    reservations, sink = _shared(context)
    outcome: UnitOutcome = UnitRunner(
        context,
        unit,
        store=LanceCheckpointStore(checkpoint_root(context.uri)),
        reservations=reservations,
        sink=sink,
        attempt=attempt,
    ).run()
    return msgspec.json.encode(outcome)


def _shared(context: WorkContext) -> tuple[Reservations, EventSink]:
    """Redis clients of this process, kept while one job follows the other."""
    if not context.redis_url:
        return GrantAll(), SilentSink()
    key = (context.redis_url, context.job_id)
    if key not in _sharing:
        while len(_sharing) >= 8:
            _sharing.pop(next(iter(_sharing)))
        _sharing[key] = (
            RedisReservations(context.redis_url, context.lease_seconds),
            RedisEventSink(context.redis_url, context.job_id),
        )
    return _sharing[key]
