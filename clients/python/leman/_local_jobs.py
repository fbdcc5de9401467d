"""The jobs of a folder of this machine as their history has them: for reads where services would have to be started.

The history is a Lance table with a row for each state of a job, a JSON document behind a digest of it. Which state
counts, and what else there is to it, decision 15 says. What makes no sense here the services are asked for, which can
mend it.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from leman import local
from leman._job_model import Job, JobError, JobState, Progress, RefreshResult, Stall, trace_of
from leman._rpc_words import translate
from leman._table_model import IndexCoverage, ReasonCount
from leman.errors import LemanError, make

_POSITION = "position"
_COUNTS = frozenset(field.name for field in dataclasses.fields(Progress))
_RESULT = frozenset(field.name for field in dataclasses.fields(RefreshResult))
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def jobs(database: str) -> list[Job] | None:
    """All jobs, newest first; None: the services know, or tell better what is wrong."""
    folder = f"{database}/_leman"
    if os.path.isdir(f"{folder}/damaged"):  # noqa: PTH112 - a str, as on the wire
        return None
    if not os.path.isdir(f"{folder}/jobs.lance"):  # noqa: PTH112
        return []
    try:
        counting: dict[str, dict[str, Any]] = {}
        for said in _states(f"{folder}/jobs.lance"):
            known = counting.get(said["job_id"])
            counting[said["job_id"]] = said if known is None else _counted(known, said)
        found = [_job(said, database) for said in counting.values() if not said.get("deleted")]
    except (LemanError, OSError, ValueError, LookupError, TypeError):
        return None
    return sorted(found, key=lambda job: (job.create_time, job.job_id), reverse=True)


def _states(uri: str) -> Iterator[dict[str, Any]]:
    """The states of all jobs in the order in which they were written. Raises ValueError where one is damaged."""
    table = local.open_table(uri)
    ordered = _POSITION in table.schema.names
    rows = table.to_table(["record", _POSITION] if ordered else ["record"], with_row_id=ordered).to_pylist()
    if ordered:
        rows.sort(key=lambda row: row["_rowid"] if row[_POSITION] is None else row[_POSITION])
    for row in rows:
        digest, _, text = row["record"].partition(" ")
        if digest != hashlib.sha256(text.encode()).hexdigest()[:32]:
            raise ValueError("a state of a job is damaged, or of an early release")
        yield json.loads(text)


def _counted(known: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """Which of two states of a job counts, where `said` was written later: as `counted` of the services."""
    ended = JobState(known["state"]).terminal
    if said.get("deleted") and ended and not known.get("deleted"):
        return said
    if ended or _attempt(said) < _attempt(known):
        return known
    is_others = _attempt(said) == _attempt(known) and said.get("executor", "") != known.get("executor", "")
    return known if is_others else said


def _attempt(said: Mapping[str, Any]) -> int:
    return int(said.get("attempt", 1))


def _job(said: Mapping[str, Any], database: str) -> Job:
    """A job, of the database whose history has it: that may have been copied from elsewhere."""
    asked = said.get("backfill") or said["refresh"]
    state = JobState(said["state"])
    progress = _progress(said.get("progress", {}), state)
    result = said.get("refresh_result")
    return Job(
        job_id=said["job_id"],
        state=state,
        database=database,
        table=asked.get("table") or asked["view"],
        column=asked.get("column", ""),
        where=asked.get("where", ""),
        udf_name=said.get("udf_name", ""),
        udf_version=said.get("udf_version", ""),
        progress=progress,
        reasons=tuple(ReasonCount(c["reason"].upper(), c["fragments"], c["rows"]) for c in said.get("reasons", ())),
        plan_summary=said.get("plan_summary", ""),
        error=_error(said["error"]) if said.get("error") else None,
        table_version=said.get("table_version", 0),
        attempt=_attempt(said),
        create_time=_time(said["created_at"]),
        update_time=_time(said["updated_at"]),
        stalls=tuple(_stall(stall) for stall in said.get("stalls", ())),
        retry_of=said.get("retry_of", ""),
        refresh_result=None if result is None else _result(result, said, state, progress),
        failed_in=tuple(said.get("failed_in", ())),
        queue_position=said.get("queue_position", 0),
        stale_indices=tuple(
            IndexCoverage(**{**index, "columns": tuple(index["columns"])}) for index in said.get("stale_indices", ())
        ),
        labels=said.get("labels", {}),
        priority=said.get("priority", 0),
        initiator=said.get("initiator", ""),
        start_time=_maybe(said.get("started_at")),
        end_time=_maybe(said.get("ended_at")),
        expected_start_time=_maybe(said.get("expected_start_at")),
        env_names=tuple(said.get("env_names", ())),
        trace_id=trace_of(said.get("traceparent", "")),
        columns=tuple(asked.get("columns", ())),
    )


def _progress(said: Mapping[str, Any], state: JobState) -> Progress:
    found = {name: said[name] for name in _COUNTS & said.keys()}
    if state is not JobState.RUNNING:
        found.pop("eta_seconds", None)
    return Progress(**found)


def _result(said: Mapping[str, Any], job: Mapping[str, Any], state: JobState, progress: Progress) -> RefreshResult:
    plain = {"mode": "no_op", "reason": "up_to_date", **{name: said[name] for name in _RESULT & said.keys()}}
    plain["warnings"] = tuple(plain.get("warnings", ()))
    return RefreshResult(
        **plain,
        rows_failed=progress.rows_failed,
        rows_failed_before=progress.rows_failed_before,
        job_id=job["job_id"],
        failed_in=tuple(job.get("failed_in", ())),
        state=state,
    )


def _error(said: Mapping[str, Any]) -> JobError:
    facts = said.get("facts", {})
    if any("://" in text and "@" in text for text in (said["message"], *facts.values())):
        raise ValueError("there may be a password in it, which the services take out")
    code = _CAPITAL.sub("_", said["kind"]).upper()
    error = make(code, said["reason"], translate(said["message"]), facts)
    return JobError(error.reason, error.message, error.facts, error.code)


def _stall(said: Mapping[str, Any]) -> Stall:
    begin, end = said["rows"]
    fragment = None if said["fragment_id"] < 0 else said["fragment_id"]
    return Stall(said["worker"], fragment, (begin, end), said["idle_seconds"], said["silent"], said["message"])


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=int(seconds * 1e6))


def _maybe(seconds: float | None) -> datetime.datetime | None:
    return _time(seconds) if seconds else None
