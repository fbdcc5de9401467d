"""Stores what a plan found out about files that compaction wrote, before the table's history is cleaned."""

from __future__ import annotations

import structlog

from core import keys
from core.checkpoints.records import FragmentRecord, pack, unpack
from core.domain.plan import Plan
from core.ports import CheckpointStore

_log = structlog.get_logger(__name__)

#: Older ones are dropped: fragments that were compacted again long ago.
_MOST_RECORDS = 200_000


def store_followed(store: CheckpointStore, plan: Plan) -> None:
    """Adds to what is recorded for the column and function version: one value, so that a plan reads one file.

    Where two jobs add at once, or the store refuses, no value is lost: the next plan follows again.
    """
    header = plan.header
    key = keys.followed_key(keys.function_part(header.udf.name, header.udf.version, header.output.column_id))
    try:
        known = unpack(store[key])
    except KeyError:
        known = []
    found = [FragmentRecord.of_followed(followed, header.output) for followed in plan.followed]
    records = {(record.file, record.fingerprint): record for record in [*known, *found]}
    try:
        store[key] = pack(list(records.values())[-_MOST_RECORDS:])
    except (OSError, ValueError, RuntimeError) as error:
        _log.warning("followed compactions are not recorded", uri=header.uri, error=str(error))
