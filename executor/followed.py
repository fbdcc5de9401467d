"""Stores what a plan found out about files that compaction wrote, before the table's history is cleaned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import structlog

from core import keys
from core.checkpoints.records import FragmentRecord
from core.domain.plan import FollowedFile, Plan
from core.ports import CheckpointStore

_log = structlog.get_logger(__name__)

_WRITERS = 8


def store_followed(store: CheckpointStore, plan: Plan) -> None:
    """One record a file. A store that refuses costs no value: the next plan follows again."""

    def put(followed: FollowedFile) -> None:
        record = FragmentRecord.of_followed(followed, plan.header.output)
        store[keys.followed_key(followed.fingerprint, followed.fragment_id)] = record.to_batch()

    try:
        with ThreadPoolExecutor(min(_WRITERS, len(plan.followed)) or 1, thread_name_prefix="followed") as pool:
            list(pool.map(put, plan.followed))
    except (OSError, ValueError, RuntimeError) as error:
        _log.warning("followed compactions are not recorded", uri=plan.header.uri, error=str(error))
