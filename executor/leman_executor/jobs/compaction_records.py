"""The records of traced compactions: what a plan found out, stored before the table's history is cleaned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import structlog

from leman_core.model import keys
from leman_core.model.errors import LemanError
from leman_core.model.plan import Plan, TracedFile
from leman_core.model.ports import CheckpointStore
from leman_core.storage.checkpoints.records import FragmentRecord, pack, unpack

_log = structlog.get_logger(__name__)

#: Older ones are dropped: fragments that were compacted again long ago.
_MOST_RECORDS = 200_000


def store_traced(store: CheckpointStore, plan: Plan, files: Iterable[TracedFile] | None = None) -> None:
    """Add traced files, those of the plan or others, to the record of their column and function version.

    A record is one value, which a plan reads.

    Where two jobs add at once, or the store refuses, no value of a row is lost: the next plan traces the files again.
    """
    by_version: dict[str, list[TracedFile]] = defaultdict(list)
    for traced in plan.traced if files is None else files:
        by_version[keys.function_of(traced.fingerprint)].append(traced)
    try:
        for part, found in by_version.items():
            _add(store, keys.traced_key(part), found)
    except LemanError as error:
        _log.warning("traced compactions are not recorded", uri=plan.header.uri, error=str(error))


def _add(store: CheckpointStore, key: str, found: Iterable[TracedFile]) -> None:
    try:
        known = unpack(store[key])
    except KeyError:
        known = []
    both = [*known, *map(FragmentRecord.of_traced, found)]
    records = {(record.file, record.fingerprint): record for record in both}
    store[key] = pack(list(records.values())[-_MOST_RECORDS:])
